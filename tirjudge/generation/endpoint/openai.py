"""A generator for any OpenAI-compatible endpoint: vLLM, SGLang, llama.cpp, Ollama, hosted models.

An endpoint encodes the text of a chat message together with its chat template, and many servers then read a
control token in the text as the template's own. In every message such tokens are therefore quoted.
"""

from __future__ import annotations

import json
import logging
import re
from asyncio import Lock
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from tirjudge.generation.base import ContextTooLong, GeneratorFailed, Sampling, Withheld
from tirjudge.generation.endpoint.http import RETRIES, TIMEOUT, JsonEndpoint, Refused, Retry
from tirjudge.generation.model_files import load_encoder
from tirjudge_environments import By, Completion, Context, Finish, Prompt, Segment, ToolCall, ToolSpec, Usage
from tirjudge_environments.parsing import find_fences
from tirjudge_environments.quoting import quote_control_tokens
from tirjudge_environments.tokenization import ChatEncoder

logger = logging.getLogger(__name__)

Tier = Literal["auto", "completions", "turns", "tools"]
Answer = TypeVar("Answer", bound=BaseModel)
ChatTurn = dict[str, Any]
GO_ON = "Continue exactly where you stopped."
"""The user turn after an unfinished turn of the judge: a chat API cannot continue an assistant message."""
OUTPUT = "```output"

EXACT = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""Sent to servers of open models, which otherwise apply the sampling that the model's makers recommend."""

NEUTRAL = {"vllm": EXACT, "sglang": EXACT, "llamacpp": {"top_k": 0, "min_p": 0.0, "repeat_penalty": 1.0}}
"""Fields of chat requests that turn off a server's own sampling, by the `owned_by` of its list of models."""

OWN_FIELDS = {
    "model": "--model",
    "max_tokens": "--max-tokens",
    "max_completion_tokens": "--max-tokens",
    "temperature": "--temperature",
    "top_p": "--top-p",
    "seed": "--seed",
    "n": "--samples",
    "tools": "--tier tools",
    **dict.fromkeys(
        (
            "messages",
            "prompt",
            "stop",
            "stop_token_ids",
            "stream",
            "logprobs",
            "return_token_ids",
            "skip_special_tokens",
        ),
        "",
    ),
}
"""Fields that a request cannot be given, with the option that sets them, if there is one."""
DISPENSABLE = ("temperature", "top_p", "seed", "stop")
"""Fields of the judge that are left out where an endpoint does not support them, or on request."""
_UNSUPPORTED = re.compile(r"n[o']t support|unsupported|deprecated|not permitted", re.IGNORECASE)


class OpenAIGenerator:
    """Generates through an OpenAI-compatible endpoint, in one of three tiers.

    * ``completions``: token ids in and out (vLLM's ``return_token_ids``), with the logprobs of what was
      sampled. Ids are appended and never re-encoded: the tier for training. Needs a tokenizer.
    * ``turns``: plain chat; program outputs are sent as user turns. Works everywhere.
    * ``tools``: native calls (``run_python``), their outputs as tool messages. A prompt that offers tools
      always uses them; a prompt that offers none is plain chat.
    * ``auto``: ``tools`` if the prompt offers tools, ``completions`` if a tokenizer was given, else
      ``turns``.

    Belongs to one event loop. Raises ValueError for invalid arguments, and GeneratorFailed for a tokenizer
    that cannot be loaded.
    """

    def __init__(
        self,
        model: str,
        base_url: str,
        *,
        api_key: str | None = None,
        tier: Tier = "auto",
        tokenizer: Any = None,
        enable_thinking: bool | None = None,
        concurrency: int = 32,
        timeout: float = TIMEOUT,
        retries: int = RETRIES,
        request_fields: Mapping[str, Any] | None = None,
        on_retry: Callable[[Retry], None] | None = None,
    ) -> None:
        """
        Args:
            model: the model's name at the endpoint.
            base_url: with or without the trailing ``/v1``; a query such as ``?api-version=...`` is kept.
            api_key: sent as a bearer token, or as Azure's ``api-key`` if the query has an ``api-version``;
                None for an endpoint without keys.
            tier: see above.
            tokenizer: the model's tokenizer, for ``completions``: a fast Hugging Face tokenizer, or the
                folder or hub id of one, whose generation config then also gives the tokens that end a turn.
            enable_thinking: for ``completions`` see `ChatEncoder`; chat tiers send it to the endpoint's chat
                template (``chat_template_kwargs``: vLLM, SGLang). None leaves it to the endpoint.
            concurrency: requests in flight at once, over all trajectories.
            timeout: seconds that one attempt may take.
            retries: further attempts after a temporary failure.
            request_fields: further fields of every request, such as ``reasoning_effort``. The judge's own
                are refused, but None leaves out ``temperature``, ``top_p``, ``seed`` or ``stop``. Without
                ``stop`` a model may write past its program, which the session then cuts off.
            on_retry: called for every retry; see `JsonEndpoint`.
        """
        if tier not in get_args(Tier):
            raise ValueError(f"tier must be one of {', '.join(get_args(Tier))}, not {tier!r}")
        if tier == "completions" and tokenizer is None:
            raise ValueError("tier completions sends token ids: it needs the model's tokenizer")
        with_ids = tokenizer is not None and tier in ("auto", "completions")
        self.model = model
        self.encoder: ChatEncoder | None = _encoder(tokenizer, enable_thinking) if with_ids else None
        self._enable_thinking = enable_thinking
        self._tier = tier
        self._endpoint = JsonEndpoint(
            base_url,
            api_key=api_key,
            concurrency=concurrency,
            timeout=timeout,
            retries=retries,
            on_retry=on_retry,
        )
        fields = dict(request_fields or {})
        _check_fields(fields)
        self._left_out = {name for name, value in fields.items() if value is None and name in DISPENSABLE}
        self._fields = {name: value for name, value in fields.items() if name not in self._left_out}
        self._length = "max_tokens"
        """The name under which the endpoint accepts the length of an answer."""
        self._context_length: int | None = None
        self._card: Mapping[str, Any] | None = None
        self._listing = Lock()

    async def generate(self, context: Context, sampling: Sampling) -> Completion:
        """Generate one turn; cancelling closes the connection. Raises GeneratorFailed, ContextTooLong."""
        tier = self._tier_for(context.prompt)
        try:
            if tier == "completions":
                return await self._complete(context, sampling)
            return await self._chat(context, sampling)
        except Refused as refusal:
            if refusal.context_full:
                raise ContextTooLong(
                    f"{refusal}; shorten the row, or use a model with a longer context"
                ) from None
            raise

    @property
    def denied(self) -> bool:
        """True once the endpoint has refused a request for a reason that holds for every request."""
        return self._endpoint.denied

    async def card(self) -> Mapping[str, Any]:
        """Return what the endpoint's list of models says about this model; empty if it lists none."""
        # Rows that start together would otherwise each ask for the list.
        async with self._listing:
            if self._card is None:
                listed = await self._endpoint.get("models")
                cards = listed.get("data") if isinstance(listed, dict) else None
                own = (one for one in cards or () if isinstance(one, dict) and one.get("id") == self.model)
                self._card = next(own, {})
        return self._card

    async def close(self) -> None:
        await self._endpoint.close()

    def _tier_for(self, prompt: Prompt) -> str:
        if prompt.tools and self._tier == "completions":
            raise GeneratorFailed(
                "tier completions has no native tools: use tier tools, or the fence protocol"
            )
        return "completions" if self.encoder and not prompt.tools else "turns"

    async def _complete(self, context: Context, sampling: Sampling) -> Completion:
        if self.encoder is None or context.ids is None:
            raise GeneratorFailed(
                "tier completions needs the context's token ids: pass this generator's encoder to the session"
            )
        body = {
            **self._request(context.prompt, sampling),
            **EXACT,
            "top_p": sampling.top_p,
            "prompt": list(context.ids),
            # The server's own end-of-turn tokens may be those of another model.
            "stop_token_ids": sorted(self.encoder.end_of_turn),
            "logprobs": 1,
            "return_token_ids": True,
            # A stop string that is a special token is only seen in a text that shows them.
            "skip_special_tokens": False,
            **self._fields,
        }
        answer = await self._ask_within_context(body, len(context.ids))
        choice = answer.choices[0]
        if choice.token_ids is None or choice.logprobs is None:
            raise GeneratorFailed(
                f"{self._endpoint.url} returns no token ids or no logprobs: "
                "tier completions needs vLLM 0.10.2 or newer; tier turns needs neither"
            )
        ids, logprobs = tuple(choice.token_ids), tuple(choice.logprobs.token_logprobs)
        if len(ids) != len(logprobs):
            raise GeneratorFailed(
                f"{self._endpoint.url} returned {len(ids)} token ids, but {len(logprobs)} logprobs"
            )
        stopped = choice.stop_string in context.prompt.stop
        return Completion(
            text=self.encoder.decode(ids),
            finish=Finish.STOP if stopped else _finish(choice),
            token_ids=ids,
            logprobs=logprobs,
            usage=Usage(len(context.ids), len(ids)),
        )

    async def _ask_within_context(self, body: dict[str, Any], prompt_length: int) -> TokenAnswer:
        """Request as many tokens as fit; the context's length is read from the endpoint's first refusal."""
        wanted = body["max_tokens"]
        try:
            if self._context_length is not None:
                body["max_tokens"] = max(1, min(wanted, self._context_length - prompt_length))
            return await self._ask("completions", body, TokenAnswer)
        except Refused as refusal:
            length = re.search(r"context length (?:is|of) (\d+)", refusal.message)
            if length is None or int(length[1]) <= prompt_length:
                raise
            self._context_length = int(length[1])
            body["max_tokens"] = min(wanted, self._context_length - prompt_length)
            return await self._ask("completions", body, TokenAnswer)

    async def _chat(self, context: Context, sampling: Sampling) -> Completion:
        prompt = context.prompt
        server = str((await self.card()).get("owned_by"))
        body = NEUTRAL.get(server, {}) | self._request(prompt, sampling)
        body["messages"] = alternating(context, self.encoder.control_tokens if self.encoder else frozenset())
        if prompt.tools:
            body["tools"] = list(offered(prompt.tools))
        # After all others: a user may replace the neutral sampling.
        body |= self._fields
        if self._enable_thinking is not None:
            template = self._fields.get("chat_template_kwargs", {})
            body["chat_template_kwargs"] = {"enable_thinking": self._enable_thinking, **template}
        try:
            answer = await self._ask("chat/completions", body, ChatAnswer)
        except Refused as refusal:
            if refusal.answer_cut:
                # OpenAI answers so in place of an empty text with the finish reason `length`.
                spent = Usage(_estimated(*_sent_texts(body)), sampling.max_tokens)
                return Completion(text="", finish=Finish.LENGTH, usage=spent)
            if not refusal.context_full:
                raise
            # Without max_tokens the endpoint generates as much as fits.
            del body["max_tokens"]
            answer = await self._ask("chat/completions", body, ChatAnswer)
        completion = self._read(answer, context)
        if completion.usage.prompt_tokens:
            return completion
        counted = replace(completion.usage, prompt_tokens=_estimated(*_sent_texts(body)))
        return replace(completion, usage=counted)

    def _request(self, prompt: Prompt, sampling: Sampling) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "temperature": sampling.temperature,
            "max_tokens": sampling.max_tokens,
            # Some servers store a seed in 32 bits.
            "seed": sampling.seed & 0x7FFFFFFF,
        }
        # Some hosted models accept a temperature or a top_p, but not both.
        if sampling.top_p != 1.0:
            body["top_p"] = sampling.top_p
        return body | ({"stop": list(prompt.stop)} if prompt.stop else {})

    async def _ask(self, path: str, body: Mapping[str, Any], answer: type[Answer]) -> Answer:
        sent = {
            self._length if name == "max_tokens" else name: value
            for name, value in body.items()
            if name not in self._left_out
        }
        try:
            return await self._endpoint.post(path, sent, answer)
        except Refused as refusal:
            if refusal.status not in (400, 422) or refusal.context_full or not self._adapts(refusal, sent):
                raise
            # The recursion ends: each adaptation changes a field for good, and few fields can change.
            return await self._ask(path, body, answer)

    def _adapts(self, refusal: Refused, sent: Mapping[str, Any]) -> bool:
        """Return whether a next request will lack what the endpoint has refused."""
        # OpenAI's newer models refuse the old name, which most other servers require.
        if "max_completion_tokens" in refusal.message and "max_tokens" in sent:
            self._length = "max_completion_tokens"
            return True
        # Token ids are for training, where the sampling has to be known.
        if "prompt" in sent or not _UNSUPPORTED.search(refusal.message):
            return False
        named = [name for name in DISPENSABLE if re.search(rf"['\"`]{name}\b|\b{name}[=:]", refusal.message)]
        refused = sent.keys() & named
        for name in sorted(refused - self._left_out):
            logger.warning("requests leave out %s from now on, because of %s", name, refusal)
        self._left_out |= refused
        return bool(refused)

    def _read(self, answer: ChatAnswer, context: Context) -> Completion:
        choice, prompt = answer.choices[0], context.prompt
        text = choice.message.content or choice.message.refusal or ""
        if not context.segments:
            # The request does not carry the prefill, so the model writes it itself.
            text = text.removeprefix(prompt.prefill)
        stops = () if "stop" in self._left_out else prompt.stop
        text, finish = restored(unfinished(context), text, _finish(choice), stops, choice.stop_string)
        calls = tuple(_calls(choice.message, turn=len(context.segments)))
        return Completion(
            text=text,
            finish=Finish.TOOL_CALL if calls else finish,
            reasoning=choice.message.reasoning_content or choice.message.reasoning or "",
            tool_calls=calls,
            usage=answer.usage,
        )


def _check_fields(fields: Mapping[str, Any]) -> None:
    """Raise ValueError for a request field that the judge sets itself."""
    for name in fields:
        if name in OWN_FIELDS and not (fields[name] is None and name in DISPENSABLE):
            option = f"use {OWN_FIELDS[name]}" if OWN_FIELDS[name] else "leave it out"
            raise ValueError(f"the judge sets the request field {name!r} itself: {option}")
    if not isinstance(fields.get("chat_template_kwargs", {}), Mapping):
        raise ValueError("the request field 'chat_template_kwargs' must be a JSON object")


def _sent_texts(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts of a chat request."""
    for turn in body["messages"]:
        yield turn["content"] or ""
        yield from (call["function"]["arguments"] for call in turn.get("tool_calls", ()))
    if "tools" in body:
        yield json.dumps(body["tools"])


def _estimated(*texts: str) -> int:
    """Return the tokens of texts at four bytes each."""
    return -(-sum(len(text.encode(errors="replace")) for text in texts) // 4)


def _encoder(tokenizer: Any, enable_thinking: bool | None) -> ChatEncoder:
    if isinstance(tokenizer, str):
        return load_encoder(tokenizer, enable_thinking=enable_thinking)
    return ChatEncoder(tokenizer, enable_thinking=enable_thinking)


def _finish(choice: ChatChoice | TokenChoice) -> Finish:
    match choice.finish_reason:
        case "content_filter":
            raise Withheld("the endpoint's content filter blocked the answer")
        case "length" | "max_tokens":
            return Finish.LENGTH
        case _:
            return Finish.END


def _calls(message: ChatMessage, turn: int) -> Iterator[ToolCall]:
    for index, call in enumerate(message.tool_calls or ()):
        # Tool results need an id, which some servers leave out.
        name = call.id or f"call_{turn}_{index}"
        yield ToolCall(name, call.function.name or "", call.function.arguments or "")


def alternating(context: Context, tokens: frozenset[str] = frozenset()) -> list[ChatTurn]:
    """Return the prompt messages, then assistant turns and, between them, the programs' outputs.

    Outputs that answer native calls become tool messages, the others user turns. Hidden reasoning is not sent
    back, and neither is a prefill that the model has not continued yet: a chat API cannot continue an
    assistant message. Control tokens are quoted, also the model's own `tokens`.
    """
    turns = _turns(context)
    for turn in turns:
        turn["content"] = turn["content"] and quote_control_tokens(turn["content"], tokens)
        for call in turn.get("tool_calls", ()):
            asked = call["function"]
            asked["arguments"] = quote_control_tokens(asked["arguments"], tokens)
    return turns


def _turns(context: Context) -> list[ChatTurn]:
    turns = [_turn(message.role, message.content) for message in context.prompt.messages]
    text = context.prompt.prefill
    # Chat APIs refuse a call without a tool message that answers it.
    answered = {segment.call_id for segment in context.segments if segment.by is By.SANDBOX}
    for segment in context.segments:
        if segment.by is By.MODEL:
            text += segment.text
            calls = [_call(call) for call in segment.tool_calls if call.id in answered]
            if calls:
                turns.append({"role": "assistant", "content": text or None, "tool_calls": calls})
                text = ""
        elif segment.call_id is not None:
            turns.append(_turn("tool", segment.text) | {"tool_call_id": segment.call_id})
        else:
            turns += _exchange(text, segment)
            text = ""
    if text and context.segments:
        turns += [_turn("assistant", text), _turn("user", GO_ON)]
    return turns


def unfinished(context: Context) -> str:
    """Return the text of the judge's current turn so far, its prefill included."""
    text = context.prompt.prefill
    for segment in context.segments:
        text = text + segment.text if segment.by is By.MODEL else ""
    return text


def offered(specs: tuple[ToolSpec, ...]) -> Iterator[dict[str, Any]]:
    """Yield tool specifications in the chat API's format."""
    for spec in specs:
        function = {"name": spec.name, "description": spec.description, "parameters": dict(spec.parameters)}
        yield {"type": "function", "function": function}


def _turn(role: str, content: str) -> ChatTurn:
    return {"role": role, "content": content}


def _exchange(written: str, output: Segment) -> Iterator[ChatTurn]:
    """Yield the judge's turn up to its program, and the output, with its whole fence, as a user turn."""
    head, fence = written.rstrip(), output.text.removeprefix("\n").rstrip("\n")
    if head.endswith(OUTPUT):
        head, fence = head.removesuffix(OUTPUT).rstrip(), f"{OUTPUT}\n{fence}"
    if head:
        yield _turn("assistant", head)
    yield _turn("user", fence)


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _joined(content: Any) -> Any:
    """Join the text parts of a content that is a list of parts."""
    if not isinstance(content, list):
        return content
    return "".join(part.get("text") or "" for part in content if isinstance(part, dict))


def _as_json(arguments: Any) -> Any:
    """Return arguments as JSON text; some servers send the object itself."""
    return json.dumps(arguments) if isinstance(arguments, dict) else arguments


def _whole(reason: str | None) -> str | None:
    """Raise ValueError if the server aborted the request: the text is then incomplete."""
    if reason in ("abort", "error"):
        raise ValueError(f"the endpoint aborted the request ({reason})")
    return reason


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Function(_Answer):
    name: str | None = None
    arguments: Annotated[str | None, BeforeValidator(_as_json)] = None


class Call(_Answer):
    id: str | None = None
    function: Function = Function()


class ChatMessage(_Answer):
    content: Annotated[str | None, BeforeValidator(_joined)] = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    """The field of vLLM, OpenRouter and Ollama; others use `reasoning_content`."""
    tool_calls: list[Call] | None = None


class _Choice(_Answer):
    finish_reason: Annotated[str | None, AfterValidator(_whole)] = None
    stop_reason: str | int | None = None
    """vLLM: the stop string that was found, or the id of a stop token; None at the end of the turn."""
    matched_stop: str | int | None = None
    """SGLang's name for the same field."""

    @property
    def stop_string(self) -> str:
        """The stop string that was found; empty if the endpoint does not report it."""
        return next((stop for stop in (self.stop_reason, self.matched_stop) if isinstance(stop, str)), "")


class ChatChoice(_Choice):
    message: ChatMessage


class TokenLogprobs(_Answer):
    token_logprobs: list[float]


class TokenChoice(_Choice):
    token_ids: list[int] | None = None
    logprobs: TokenLogprobs | None = None


class PromptDetails(_Answer):
    cached_tokens: int | None = None


class Counts(_Answer):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None
    prompt_cache_hit_tokens: int | None = None
    """DeepSeek's name for `prompt_tokens_details.cached_tokens`."""

    @property
    def cached_tokens(self) -> int:
        """Tokens of the prompt that the provider had in its cache, at most all of them."""
        details = self.prompt_tokens_details
        found = (details.cached_tokens if details else None) or self.prompt_cache_hit_tokens or 0
        return max(0, min(found, self.prompt_tokens or 0))


class ChatAnswer(_Answer):
    """A response of `/chat/completions`."""

    choices: Annotated[list[ChatChoice], Field(min_length=1)]
    counts: Counts | None = Field(default=None, alias="usage")

    @property
    def usage(self) -> Usage:
        """Tokens as the endpoint counted them; an uncounted completion is estimated at four bytes a token."""
        # Without an estimate a token budget would never end the dialogue.
        counts = self.counts or Counts()
        message = self.choices[0].message
        guess = _estimated(message.content or "", message.reasoning_content or message.reasoning or "")
        counted = counts.completion_tokens
        written_tokens = guess if counted is None else counted
        return Usage(counts.prompt_tokens or 0, written_tokens, counts.cached_tokens)


class TokenAnswer(_Answer):
    """A response of `/completions` with vLLM's `return_token_ids`."""

    choices: Annotated[list[TokenChoice], Field(min_length=1)]


def restored(before: str, text: str, finish: Finish, stops: tuple[str, ...], met: str) -> tuple[str, Finish]:
    """Restore the stop string that an endpoint cut off; return the text and why it ended.

    Args:
        before: text of earlier completions of the same turn.
        text: text of this completion, as the endpoint returned it.
        finish: as the endpoint reported it; many do not distinguish a stop string from the end of the turn.
        stops: the stop strings of the request.
        met: the stop string that ended the turn; empty if the endpoint does not report it.
    """
    if finish is Finish.LENGTH:
        return text, finish
    cut = met if met in stops else _closing(before + text, stops)
    # Some endpoints leave the stop string in the text.
    text = text.removesuffix(cut) + cut
    return text, Finish.STOP if stops and text.endswith(stops) else finish


def _closing(turn: str, stops: Iterable[str]) -> str:
    """Return the stop string that closes the fence in which the turn would otherwise end; empty if none."""
    # Models close their fences, so a text that ends inside one has lost its stop string.
    fences = find_fences(turn)
    if not fences or fences[-1].closed:
        return ""
    return next((stop for stop in stops if find_fences(turn + stop)[len(fences) - 1].closed), "")
