"""A generator for any OpenAI-compatible endpoint: vLLM, SGLang, llama.cpp, Ollama, hosted models."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeVar, get_args

from pydantic import BaseModel

from tirjudge.generation.base import ContextTooLong, GeneratorFailed, Sampling, Withheld
from tirjudge.generation.endpoint.chat import alternating, continued, tools, unfinished
from tirjudge.generation.endpoint.dialect import Dialect
from tirjudge.generation.endpoint.http import RETRIES, TIMEOUT, JsonEndpoint, Refused, Retry
from tirjudge.generation.endpoint.responses import (
    ChatAnswer,
    ChatChoice,
    ChatMessage,
    TokenAnswer,
    TokenChoice,
    restored,
)
from tirjudge.generation.model_files import load_encoder
from tirjudge_environments import Completion, Context, Finish, Prompt, ToolCall, Usage
from tirjudge_environments.tokenization import ChatEncoder
from tirjudge_environments.types import THINK

Tier = Literal["auto", "completions", "continue", "turns", "tools"]
Answer = TypeVar("Answer", bound=BaseModel)

EXACT = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""Sent to servers of open models, which otherwise apply the sampling that the model's makers recommend."""

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
            "include_stop_str_in_output",
            "add_generation_prompt",
            "continue_final_message",
        ),
        "",
    ),
}
"""Fields that a request cannot be given, with the option that sets them, if there is one."""


class OpenAIGenerator:
    """Generates through an OpenAI-compatible endpoint, in one of four tiers.

    * ``completions``: token ids in and out (vLLM's ``return_token_ids``), with the logprobs of what was
      sampled. Ids are appended and never re-encoded: the tier for training. Needs a tokenizer.
    * ``continue``: chat whose last assistant message is continued (``continue_final_message``: vLLM, SGLang).
    * ``turns``: plain chat; program outputs are sent as user turns. Works everywhere.
    * ``tools``: native calls (``run_python``), their outputs as tool messages. A prompt that offers tools
      always uses them; one that offers none is plain chat.
    * ``auto``: ``tools`` if the prompt offers tools, ``completions`` if a tokenizer was given, else
      ``turns``. The endpoint is not probed: one that does not know ``continue_final_message`` ignores it, and
      starts a new turn that looks like any other answer.

    A parameter that the endpoint refuses (``stop``, ``temperature``, ``seed``, ...) is dropped from then on
    and logged once; without ``stop`` a model may write past its program, which the session then cuts off.
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
            request_fields: further fields of every request, such as ``reasoning_effort``; those that the
                judge sets itself are refused.
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
        self._fields = dict(request_fields or {})
        _check_fields(self._fields)
        self._dialect = Dialect(model, kept=self._fields)
        self._context_length: int | None = None

    async def generate(self, context: Context, sampling: Sampling) -> Completion:
        """Generate one turn; cancelling closes the connection. Raises GeneratorFailed, ContextTooLong."""
        tier = self._tier_for(context.prompt)
        try:
            if tier == "completions":
                return await self._complete(context, sampling)
            return await self._chat(context, sampling, tier)
        except Refused as refusal:
            if refusal.context_full:
                raise ContextTooLong(
                    f"{refusal}; shorten the row, or use a model with a longer context"
                ) from None
            raise

    async def close(self) -> None:
        await self._endpoint.close()

    def _tier_for(self, prompt: Prompt) -> str:
        if prompt.tools and self._tier in ("completions", "continue"):
            raise GeneratorFailed(
                f"tier {self._tier} has no native tools: use tier tools, or the fence protocol"
            )
        if prompt.tools or self._tier == "tools":
            return "turns"
        if self._tier == "auto":
            return "completions" if self.encoder else "turns"
        return self._tier

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
                "tier completions needs vLLM 0.10.2 or newer; tiers continue and turns need neither"
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

    async def _chat(self, context: Context, sampling: Sampling, tier: str) -> Completion:
        prompt = context.prompt
        body = self._request(prompt, sampling)
        if tier == "continue":
            # A thinking model writes the tag itself. Before one that is continued, a template such as Qwen3's
            # puts an empty, closed thinking.
            written = bool(context.segments or (prompt.prefill and not self._opens_thinking(prompt)))
            messages = continued(context) if written else alternating(context)
            body |= EXACT | {
                "top_p": sampling.top_p,
                "include_stop_str_in_output": True,
                "no_stop_trim": True,
            }
            body |= {"add_generation_prompt": not written, "continue_final_message": written}
        else:
            messages = alternating(context)
        body["messages"] = messages
        if prompt.tools:
            body["tools"] = list(tools(prompt.tools))
        body |= self._fields
        if self._enable_thinking is not None:
            template = self._fields.get("chat_template_kwargs", {})
            body["chat_template_kwargs"] = {"enable_thinking": self._enable_thinking, **template}
        try:
            answer = await self._ask("chat/completions", body, ChatAnswer)
        except Refused as refusal:
            if not refusal.context_full:
                raise
            # Without max_tokens the endpoint generates as much as fits.
            del body["max_tokens"]
            answer = await self._ask("chat/completions", body, ChatAnswer)
        return self._read(answer, context, tier)

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
        while True:
            sent = self._dialect.put(body)
            try:
                return await self._endpoint.post(path, sent, answer)
            except Refused as refusal:
                if not self._dialect.learn(refusal, sent):
                    raise

    def _opens_thinking(self, prompt: Prompt) -> bool:
        """Return True if the endpoint's thinking mode makes the model open the thinking of the prefill."""
        return bool(self._enable_thinking) and prompt.prefill.startswith(THINK)

    def _read(self, answer: ChatAnswer, context: Context, tier: str) -> Completion:
        choice, prompt = answer.choices[0], context.prompt
        text = choice.message.content or choice.message.refusal or ""
        if not context.segments and (tier == "turns" or self._opens_thinking(prompt)):
            # The request does not carry the prefill, so the model writes it itself.
            text = text.removeprefix(prompt.prefill)
        stops = prompt.stop if self._dialect.speaks("stop") else ()
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
        if name in OWN_FIELDS:
            option = f"use {OWN_FIELDS[name]}" if OWN_FIELDS[name] else "leave it out"
            raise ValueError(f"the judge sets the request field {name!r} itself: {option}")
    if not isinstance(fields.get("chat_template_kwargs", {}), Mapping):
        raise ValueError("the request field 'chat_template_kwargs' must be a JSON object")


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
