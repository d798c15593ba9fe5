"""Requests and responses of the judge server, in its own shapes and in those of OpenRLHF and slime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self
from uuid import uuid4

from pydantic import BeforeValidator, Discriminator, Field, JsonValue, Tag, model_validator

from tirjudge.judging.judgment import Judgment
from tirjudge.judging.questions import Kind, read_question
from tirjudge.selection.group_rewards import GroupOptions, GroupRewards
from tirjudge_environments import JudgeTask
from tirjudge_environments.messages import message_data
from tirjudge_environments.quoting import without_ends
from tirjudge_environments.tasks import LARGEST_WEIGHT, RowError, read_task
from tirjudge_environments.tasks.host_rows import HostColumns, HostRow
from tirjudge_environments.tasks.messages import conversation_of, is_chat, read_messages
from tirjudge_sandbox.http.fields import Message, Request, Text, only
from tirjudge_sandbox.server.settings import FieldRefused

MOST_QUESTIONS = 256
"""The most questions in one request."""
MOST_RESPONSES = 64
"""The most responses to one question."""
MOST_CHARACTERS = 2_000_000
"""The most characters of one question: about half a million tokens."""
MOST_CRITERIA = 64
"""The most criteria of one question."""
_LONGEST_START = 40
"""Most characters of a tokenizer's first token, which may precede a query."""
_PART = only(("type", "text", "image_url", "input_audio", "file"), ("annotations", "cache_control"))
"""The parts of a content that OpenAI's client sends; the error about any but a text names its place."""
_ROLES = ("system", "developer", "user", "assistant")
_MARKS = ("tool_calls", "function_call", "type", "from", "parts", "data", "kwargs")
"""Keys of a message with calls of tools, and of messages in other forms than OpenAI's."""


def _joined(content: object) -> object:
    """Join a content of text parts; any other content is returned as it is. Raises ValidationError."""
    if not isinstance(content, list):
        return content
    content = [_PART(part) for part in content]
    texts = [part.get("text") for part in content if isinstance(part, Mapping) and part.get("type") == "text"]
    whole = len(texts) == len(content) and all(isinstance(text, str) for text in texts)
    return "".join(map(str, texts)) if whole else content


class ChatMessage(Request):
    """One message of a conversation, with a text or, as in OpenAI's requests, a list of text parts.

    Fields of OpenAI's messages that change nothing in the text are ignored. A message with sounds is refused,
    unless these are null or empty.
    """

    ignored: ClassVar[frozenset[str]] = frozenset(
        {"annotations", "audio", "function_call", "reasoning", "reasoning_content", "refusal"}
    )

    role: Annotated[
        Literal["system", "user", "assistant", "tool"],
        BeforeValidator(lambda role: "system" if role == "developer" else role),
    ]
    content: Annotated[Text, BeforeValidator(_joined)]
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: Text | None = None
    name: Text | None = None

    @model_validator(mode="before")
    @classmethod
    def _text_alone(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and given.get("audio"):
            raise ValueError("a judge reads texts alone, and this message has audio")
        return given


def _in_openais_form(given: Any) -> Any:
    """Return a conversation of any form in OpenAI's form, and anything else as it is; raises RowError."""
    if isinstance(given, str) or (isinstance(given, list) and not any(map(_is_foreign, given))):
        return given
    found = conversation_of(given)
    return (
        given
        if found is None
        else [message_data(message) for message in read_messages(found, "conversation")]
    )


def _is_foreign(message: Any) -> bool:
    """Return True for a message that calls tools, or that has another form than OpenAI's."""
    if not isinstance(message, Mapping):
        return False
    content: Any = message.get("content")
    kinds = {str(part.get("type")) for part in content} if is_chat(content) else set()
    other = message.get("role") not in _ROLES or not kinds <= {"text", "image_url", "input_audio", "file"}
    return other or any(message.get(mark) for mark in _MARKS)


_Chat = Annotated[list[ChatMessage], Field(min_length=1)]
Messages = Annotated[_Chat, BeforeValidator(_in_openais_form)]
Prompt = Annotated[Annotated[Text, Field(min_length=1)] | _Chat, BeforeValidator(_in_openais_form)]
"""A text, or the chat messages so far, in the form of any server or library."""
Said = Annotated[Text | _Chat, BeforeValidator(_in_openais_form)]
"""A response: a text, or the messages of an agent's run."""


class CriterionRequest(Request):
    """One thing that the responses are judged by."""

    text: Annotated[Text, Field(min_length=1)]
    weight: Annotated[float, Field(ge=0, le=LARGEST_WEIGHT)] = 1.0
    polarity: Literal["positive", "negative"] = "positive"
    must_have: bool = False


Criteria = Annotated[list[Text | CriterionRequest], Field(min_length=1, max_length=MOST_CRITERIA)]
"""Criteria that responses are judged by, each in a dialogue of its own."""


class QuestionParts(Request):
    """The parts of a question besides its prompt and its responses."""

    domain: Text = ""
    """Such as `math` or `safety`, for formats that depend on it."""
    reference: Text | None = None
    """A reference answer that the judge is shown."""
    criteria: Criteria | None = None
    """Criteria that the responses are judged by, each in a dialogue of its own; None: the whole prompt."""


class _Question(QuestionParts):
    """A prompt, and what its responses are judged by."""

    prompt: Prompt


class JudgeRequest(_Question):
    """A prompt, and the responses to judge."""

    responses: Annotated[list[Said], Field(min_length=1, max_length=MOST_RESPONSES)]
    kind: Kind | None = None
    """None: one response is scored, the better of two or the best of more is chosen."""
    id: Text = ""
    """Returned with the answer. It seeds the order in which responses are shown, and the sampling."""

    @classmethod
    def of(cls, row: HostRow) -> Self:
        """Return the question on a completion of a host."""
        return cls.model_validate({**row.question, "responses": [row.completion]})

    def task(self) -> JudgeTask:
        """Return the task; without an id its text gives it one, so equal questions get equal answers.

        Raises RowError for a prompt without text, and for criteria that repeat each other or have no weight.
        """
        parts = {"prompt", "responses", "domain", "id", "reference", "criteria"}
        return read_question(self.model_dump(include=parts, exclude_none=True))


_FIELDS = GroupOptions.model_fields
_Options = Annotated[GroupOptions, BeforeValidator(only(_FIELDS, optional=_FIELDS))]


class GroupRequest(_Question):
    """A prompt, and the completions to compare: a request to `/v1/group`."""

    completions: Annotated[list[Said], Field(min_length=1, max_length=MOST_RESPONSES)]
    options: _Options = GroupOptions()

    def task(self) -> JudgeTask:
        """Return the task.

        Raises RowError for a prompt without text, and for criteria that repeat each other or have no weight.
        """
        row = self.model_dump(
            include={"prompt", "domain", "reference", "criteria", "completions"}, exclude_none=True
        )
        return read_task({**row, "responses": row["completions"]}, default_id="group")


class MemberRequest(_Question):
    """One completion of a group that is sent one by one: a request to `/v1/group/member`."""

    completion: Said
    size: Annotated[int, Field(ge=1, le=MOST_RESPONSES)]
    """Completions of the group. Its members agree in everything but the completion and their name."""
    member: Annotated[Text, Field(min_length=1)]
    """A name that no other request has; a request that is repeated keeps it."""
    group: Text = ""
    """Tells groups of the same prompt apart, where a framework can name them."""
    options: _Options = GroupOptions()
    wait_seconds: Annotated[float, Field(gt=0, le=3600)] = 300.0
    """Seconds in which the other members must arrive."""

    @classmethod
    def of(cls, row: HostRow, size: int, options: Mapping[str, Any], wait_seconds: float) -> Self:
        """Return the request of a host's completion, under a name of its own."""
        # Drawn once for all attempts of the client, so that the server knows a repeated request.
        own = {"completion": row.completion, "group": row.group, "member": uuid4().hex}
        shared = {**row.question, "size": size, "options": options, "wait_seconds": wait_seconds}
        return cls.model_validate({**shared, **own})

    @property
    def key(self) -> str:
        """The group's name: what its members agree in."""
        named = self.prompt, self.size, self.group, self.options, self.domain
        return repr((*named, self.reference, self.criteria))

    def whole(self, completions: Sequence[Any]) -> GroupRequest:
        """Return the request of the group."""
        shared = {name: getattr(self, name) for name in ("options", *_Question.model_fields)}
        return GroupRequest(completions=[*completions], **shared)


class MemberAnswer(Message):
    """The reward of one completion."""

    reward: float | None
    group: GroupRewards
    """The rewards of the whole group, in the order in which its members arrived."""


Several = Annotated[list[JudgeRequest], Field(min_length=1, max_length=MOST_QUESTIONS)]

Questions = Annotated[
    Annotated[JudgeRequest, Tag("one")] | Annotated[Several, Tag("many")],
    Discriminator(lambda body: "many" if isinstance(body, list) else "one"),
]
"""One question, or a list of questions."""


Texts = Annotated[list[Text], Field(min_length=1, max_length=MOST_QUESTIONS)]


class RewardRequest(Request):
    """OpenRLHF's request: prompts, and the same prompts followed by the policy's responses."""

    query: Texts
    """Prompt and response in one text."""
    prompts: Texts
    """One prompt per query, in the same order."""
    labels: list[JsonValue] | None = None
    """Sent by OpenRLHF and ignored."""

    def questions(self) -> list[JudgeRequest]:
        """Return one question per query. Raises FieldRefused for a query without its prompt."""
        if len(self.query) != len(self.prompts):
            text = f"has {len(self.prompts)} texts, query has {len(self.query)}"
            raise FieldRefused(text, "prompts")
        pairs = zip(self.query, self.prompts, strict=True)
        return [_question(index, query, prompt) for index, (query, prompt) in enumerate(pairs)]


class SampleRequest(Request):
    """A sample of slime's rollout, as its reward model `remote_rm` sends it."""

    prompt: Prompt
    response: Text
    label: JsonValue = None
    """A reference answer that the judge is shown, as in rows; an empty one is none."""

    def question(self) -> JudgeRequest:
        """Return the question of the sample; raises FieldRefused for a prompt that cannot be read."""
        columns = HostColumns(prompt="prompt", reference="label")
        row = {"label": None, **self.model_dump(include={"prompt", "label"}, exclude_none=True)}
        try:
            return JudgeRequest.of(HostRow.read(row, self.response, columns, where="the sample"))
        except RowError as error:
            raise FieldRefused(str(error)) from None


class RewardResponse(Message):
    """One number for each query."""

    rewards: list[float]
    scores: list[float]
    """The same numbers, by which OpenRLHF filters groups."""
    extra_logs: dict[str, list[float]]
    """Logged by OpenRLHF with its own metrics."""

    @classmethod
    def of(cls, judgments: list[Judgment], rewards: list[float]) -> Self:
        logs: dict[str, Any] = {
            "judge_programs": [float(sum(len(one.calls) for one in each.trajectories)) for each in judgments],
            "judge_decided": [float(judgment.decided is True) for judgment in judgments],
            "judge_no_verdict": [float(judgment.score is None) for judgment in judgments],
        }
        return cls(rewards=rewards, scores=rewards, extra_logs=logs)


def _question(index: int, query: str, prompt: str) -> JudgeRequest:
    if not prompt.strip():
        raise FieldRefused("is empty", "prompts", index)
    before, found, response = query.partition(prompt)
    # Only padding and the tokenizer's first token may precede the prompt.
    if not found or len(without_ends(before)) > _LONGEST_START:
        raise FieldRefused("does not begin with its prompt", "query", index)
    return JudgeRequest(prompt=prompt, responses=[without_ends(response)])
