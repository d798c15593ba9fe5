"""The judge as an OpenAI-compatible model: questions and responses as messages, errors in OpenAI's form.

The assistant messages at the end of a conversation are the responses. A text with marks between question and
responses could be forged by a response.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from itertools import takewhile
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel

from tirjudge.judging.judgment import Judgment
from tirjudge.judging.questions import Kind
from tirjudge.records.answers import JudgeAnswer
from tirjudge.records.result_row import RecordedView
from tirjudge.records.text import view_heading
from tirjudge.records.verdicts import JudgedCriterion, JurorVerdict, encodable
from tirjudge.serve.answer_schema import filled
from tirjudge.serve.messages import MOST_RESPONSES, JudgeRequest, Messages, QuestionParts
from tirjudge_environments.orders import letter
from tirjudge_sandbox.http.fields import Request, Text
from tirjudge_sandbox.server.guard import App, Event, Receive, Scope, Send
from tirjudge_sandbox.server.settings import FieldRefused

CHAT, MODELS = "/v1/chat/completions", "/v1/models"
_CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}
_NO_TOOLS = "a judge calls no tools but its own"
_UNSUPPORTED: dict[str, tuple[tuple[Any, ...], str]] = {
    "stream": ((None, False), "a verdict is known only when the judge has ended, so nothing is streamed"),
    "n": ((None, 1), "an answer has one verdict"),
    "tools": ((None, []), _NO_TOOLS),
    "functions": ((None, []), _NO_TOOLS),
    "logprobs": ((None, False), "a verdict has no log probabilities"),
}
"""Parameters that would change the form of an answer: the values that ask for nothing, and the reason."""
_SCORES = (0, 0.5, 1, 5, 10)
"""Scores of judges' scales, to see whether a schema accepts any."""


class ResponseFormat(Request):
    """The form of the answer's content: the verdict alone, or a JSON object with the reason."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: dict[str, Any] | None = None
    """With the type `json_schema`: an object whose `schema` names some of the JSON object's fields."""

    def content(self, fields: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        """Return the object with the first fitting value of each field; raises ValueError if none fits."""
        if self.type == "json_object":
            return {name: values[0] for name, values in fields.items()}
        return filled((self.json_schema or {}).get("schema"), fields)

    def check(self, responses: int) -> None:
        """Raise FieldRefused for a schema that no verdict on so many responses fits."""
        if self.type != "json_schema":
            return
        fields: dict[str, Sequence[Any]] = {"verdict": [None], "choice": [None], "score": _SCORES}
        if responses > 1:
            names = [letter(index) for index in range(responses)]
            fields = {"verdict": [*names, "tie"], "choice": [*range(responses), None], "score": [None]}
        try:
            self.content({**fields, "reason": [" "]})
        except ValueError as error:
            raise FieldRefused(str(error), "response_format", "json_schema") from None


class ChatRequest(QuestionParts):
    """A request to `/v1/chat/completions`.

    Parameters of OpenAI's interface and of vLLM's that say how to sample are ignored, since the server's
    options decide. Any other parameter is refused, as OpenAI does: it may be misspelt.
    """

    ignored: ClassVar[frozenset[str]] = frozenset(
        {
            # OpenAI's
            "audio", "frequency_penalty", "function_call", "logit_bias", "max_completion_tokens",
            "max_tokens", "metadata", "modalities", "parallel_tool_calls", "prediction", "presence_penalty",
            "prompt_cache_key", "prompt_cache_retention", "reasoning_effort", "safety_identifier", "seed",
            "service_tier", "stop", "store", "stream_options", "temperature", "tool_choice", "top_logprobs",
            "top_p", "user", "verbosity", "web_search_options",
            # vLLM's
            "add_generation_prompt", "add_special_tokens", "allowed_token_ids", "bad_words", "best_of",
            "cache_salt", "chat_template", "chat_template_kwargs", "continue_final_message", "echo",
            "ignore_eos", "include_reasoning", "include_stop_str_in_output", "length_penalty", "min_p",
            "min_tokens", "priority", "prompt_logprobs", "repetition_penalty", "request_id",
            "return_tokens_as_token_ids", "skip_special_tokens", "spaces_between_special_tokens",
            "stop_token_ids", "top_k", "truncate_prompt_tokens", "use_beam_search",
        }
    )  # fmt: skip

    model: Text
    messages: Messages
    """The conversation, and after it the responses: one assistant message for each."""
    response_format: ResponseFormat | None = None
    stream: bool | None = None
    n: int | None = None
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    logprobs: bool | None = None
    kind: Kind | None = None
    """As in a request to `/v1/judge`."""
    id: Text = ""
    """As in a request to `/v1/judge`."""

    def question(self) -> JudgeRequest:
        """Return the question. Raises FieldRefused for messages without one, and for unsupported fields."""
        for name, (accepted, reason) in _UNSUPPORTED.items():
            if getattr(self, name) not in accepted:
                raise FieldRefused(f"{reason}: leave it out", name)
        last = takewhile(lambda message: message.role == "assistant", reversed(self.messages))
        responses = [[message] if message.tool_calls else message.content for message in last][::-1]
        prompt = self.messages[: len(self.messages) - len(responses)]
        if not responses or not prompt:
            text = "must be the conversation, then each response to judge as an assistant message"
            raise FieldRefused(text, "messages")
        if len(responses) > MOST_RESPONSES:
            text = f"end with {len(responses)} responses, at most {MOST_RESPONSES} are accepted"
            raise FieldRefused(text, "messages")
        if self.response_format:
            self.response_format.check(len(responses))
        shared = {name: getattr(self, name) for name in (*QuestionParts.model_fields, "kind", "id")}
        return JudgeRequest(prompt=prompt, responses=responses, **shared)


class Reply(BaseModel):
    """The assistant's message: the verdict."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    """Letter of the best response (the first is A), `tie`, or the score of a single response.

    With the response format `json_object` it is an object with `verdict`, `choice`, `score` and `reason`, and
    with `json_schema` those fields that the schema names. None without a verdict.
    """
    refusal: str | None
    """The reason why there is no verdict, or none that fits the schema; None if there is a verdict."""
    reasoning_content: str
    """The dialogues, each with its programs and their outputs."""


class Choice(BaseModel):
    """The only choice of an answer."""

    index: int = 0
    message: Reply
    logprobs: None = None
    finish_reason: Literal["stop"] = "stop"


class TokenCounts(BaseModel):
    """The tokens of all dialogues together."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatAnswer(BaseModel):
    """An answer of `/v1/chat/completions`."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: TokenCounts
    judgment: JudgeAnswer
    """The answer that `/v1/judge` gives."""

    @classmethod
    def of(cls, judgment: Judgment, model: str, form: ResponseFormat | None) -> Self:
        """Return a judgment as an answer of the model called `model`."""
        answer, dialogue = judgment.answer(), _dialogue(judgment)
        score = judgment.score
        verdict = answer.verdict if score is None else f"{score:g}"
        refusal = f"{answer.stop}: {answer.detail}".rstrip(": ") if verdict is None else None
        if verdict is not None and form is not None and form.type != "text":
            fields = {"verdict": answer.verdict, "choice": answer.choice, "score": score, "reason": dialogue}
            try:
                whole = form.content({name: [value] for name, value in fields.items()})
                verdict = json.dumps(whole, ensure_ascii=False)
            except ValueError as error:
                verdict, refusal = None, str(error)
        read, written = answer.prompt_tokens, answer.completion_tokens
        return cls(
            id=f"chatcmpl-{answer.id}",
            created=int(time.time()),
            model=model,
            choices=[Choice(message=Reply(content=verdict, refusal=refusal, reasoning_content=dialogue))],
            usage=TokenCounts(prompt_tokens=read, completion_tokens=written, total_tokens=read + written),
            judgment=answer,
        )


class ServedModel(BaseModel):
    """A model that the server has."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "tirjudge"


class ModelList(BaseModel):
    """The answer of `/v1/models`."""

    object: Literal["list"] = "list"
    data: list[ServedModel]


class OpenAIErrors:
    """ASGI middleware that gives the failures of the OpenAI-compatible routes the form of OpenAI's errors.

    It is outside of everything else, so that a refused token or a full queue has this form as well.
    """

    def __init__(self, app: App):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ours = scope["type"] == "http" and (scope["path"] == CHAT or scope["path"].startswith(MODELS))
        await self._app(scope, receive, _Errors(send) if ours else send)


class _Errors:
    """A `send` that keeps an answer of 400 or more until its body has arrived, and rewrites it."""

    def __init__(self, send: Send):
        self._send = send
        self._start: Event | None = None
        self._body = b""

    async def __call__(self, event: Event) -> None:
        if event["type"] == "http.response.start" and event["status"] >= 400:
            self._start = event
            return
        if self._start is None or event["type"] != "http.response.body":
            await self._send(event)
            return
        self._body += event.get("body", b"")
        if event.get("more_body", False):
            return
        # OpenAI answers 400 to what is wrong with a body.
        status = 400 if self._start["status"] == 422 else self._start["status"]
        body = json.dumps({"error": _error(status, self._body)}).encode()
        size = str(len(body)).encode()
        headers = [
            (name, size if name.lower() == b"content-length" else value)
            for name, value in self._start["headers"]
        ]
        await self._send({**self._start, "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})


def _error(status: int, body: bytes) -> dict[str, Any]:
    detail = json.loads(body)["detail"] if body else HTTPStatus(status).phrase
    param = None
    if not isinstance(detail, str):
        field = ".".join(map(str, detail[0]["loc"][1:]))
        param = field if field.partition(".")[0] in ChatRequest.model_fields else None
        detail = f"{param}: {detail[0]['msg']}" if param else detail[0]["msg"]
    kind = (
        "rate_limit_error" if status == 429 else "invalid_request_error" if status < 500 else "server_error"
    )
    return {"message": detail, "type": kind, "param": param, "code": _CODES.get(status)}


def _dialogue(judgment: Judgment) -> str:
    """Return all dialogues as text, without hidden thinking."""
    task, jury = judgment.episode.task, judgment.jury
    return encodable(
        "\n\n".join(
            _view(RecordedView.of(one, task, texts=True), jury, judgment.criteria)
            for one in judgment.trajectories
        )
    )


def _view(view: RecordedView, jury: Sequence[JurorVerdict], criteria: Sequence[JudgedCriterion]) -> str:
    parts = [view_heading(view, jury, criteria)]
    for passage in view.segments:
        if not passage.hidden:
            program = passage.kind == "program"
            parts.append(f"```python\n{passage.text.strip()}\n```" if program else passage.text.strip())
    return "\n\n".join(parts)
