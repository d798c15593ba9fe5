"""The answers of an OpenAI-compatible endpoint, as far as the judge reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from tirjudge_environments import ToolCall, Usage


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
        guess = estimated(message.content or "", message.reasoning_content or message.reasoning or "")
        counted = counts.completion_tokens
        written_tokens = guess if counted is None else counted
        return Usage(counts.prompt_tokens or 0, written_tokens, counts.cached_tokens)


class TokenAnswer(_Answer):
    """A response of `/completions` with vLLM's `return_token_ids`."""

    choices: Annotated[list[TokenChoice], Field(min_length=1)]


def calls_of(message: ChatMessage, turn: int) -> Iterator[ToolCall]:
    for index, call in enumerate(message.tool_calls or ()):
        # Tool results need an id, which some servers leave out.
        name = call.id or f"call_{turn}_{index}"
        yield ToolCall(name, call.function.name or "", call.function.arguments or "")


def estimated(*texts: str) -> int:
    """Return the tokens of texts at four bytes each."""
    return -(-sum(len(text.encode(errors="replace")) for text in texts) // 4)
