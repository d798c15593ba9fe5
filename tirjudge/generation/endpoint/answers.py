"""The answers of an OpenAI-compatible endpoint, as far as the judge reads them.

Endpoints differ in their spelling, in the fields that they leave out, and in how they report a failure inside
of an answer with status 200.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field

from tirjudge.generation.base import Withheld
from tirjudge.generation.endpoint.finish import Ending, ending
from tirjudge_environments import Finish, ToolCall, Usage

THINKING = ("reasoning_content", "reasoning")
"""Names under which endpoints return the thinking apart from the text."""
_NOT_KEPT = {"role", "content", "tool_calls", "function_call", "refusal", "audio", "annotations"}
"""Fields of a message that are read, or that a provider's server does not need again."""
_LONGEST_WORD = 60


def joined_parts(content: Any) -> Any:
    """Join the text parts of a content that is a list of parts, or a single part."""
    parts = [content] if isinstance(content, dict) else content
    if not isinstance(parts, list):
        return content
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    return "".join(text for text in texts if isinstance(text, str))


def _as_json(arguments: Any) -> Any:
    """Return arguments as JSON text; some servers send the object itself."""
    return arguments if isinstance(arguments, str | None) else json.dumps(arguments)


def _as_word(reason: Any) -> str:
    return "" if reason is None else " ".join(str(reason).split())[:_LONGEST_WORD]


def _as_count(number: Any) -> int | None:
    """Return a number of tokens; None for anything else."""
    if isinstance(number, str) and number.isdecimal():
        return int(number)
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        return None
    return max(0, int(number))


def _as_object(value: Any) -> Any:
    return value if isinstance(value, dict) else None


Count = Annotated[int | None, BeforeValidator(_as_count)]


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Kept(BaseModel):
    """A part of an answer whose further fields the server may need again."""

    model_config = ConfigDict(extra="allow", frozen=True)

    @property
    def further(self) -> dict[str, Any]:
        """Fields that are not read and not empty."""
        return {
            name: value for name, value in (self.model_extra or {}).items() if value not in (None, "", [])
        }


class Function(_Answer):
    name: str | None = None
    arguments: Annotated[str | None, BeforeValidator(_as_json)] = None


class Call(_Kept):
    id: str | None = None
    type: Any = None
    index: Any = None
    function: Function = Function()


class ChatMessage(_Kept):
    content: Annotated[str | None, BeforeValidator(joined_parts)] = None
    refusal: str | None = None
    tool_calls: Annotated[
        list[Call] | None, BeforeValidator(lambda calls: calls if isinstance(calls, list) else None)
    ] = None
    function_call: Function | None = None
    """The form of a call in older servers."""

    @property
    def reasoning(self) -> str:
        """Thinking that was returned apart from the text; empty if there is none."""
        found = ((self.model_extra or {}).get(name) for name in THINKING)
        return next((text for text in found if isinstance(text, str) and text), "")

    @property
    def kept(self) -> dict[str, Any]:
        """The further fields of the message that go back to the server with its calls."""
        return {name: value for name, value in self.further.items() if name not in _NOT_KEPT}

    def calls(self, turn: int) -> Iterator[ToolCall]:
        """Yield the native calls; a call without an id gets an id of the turn with this number."""
        # Some servers send the old field empty with every answer.
        called = self.function_call is not None and (self.function_call.name or self.function_call.arguments)
        old = [Call(function=self.function_call)] if self.function_call is not None and called else []
        for index, call in enumerate(self.tool_calls or old):
            # Tool results need an id, which some servers leave out.
            name = call.id or f"call_{turn}_{index}"
            yield ToolCall(name, call.function.name or "", call.function.arguments or "", call.further)


class _Choice(_Answer):
    finish_reason: Annotated[str, BeforeValidator(_as_word)] = ""
    native_finish_reason: Annotated[str, BeforeValidator(_as_word)] = ""
    """OpenRouter: the reason in the words of the provider behind it."""
    stop_reason: Any = None
    """vLLM: the stop string that was found, or the id of a stop token; None at the end of the turn."""
    matched_stop: Any = None
    """SGLang's name for the same field."""

    @property
    def stop_string(self) -> str | None:
        """The stop string that was found; empty if there was none, None if the endpoint does not say."""
        told = self.model_fields_set & {"stop_reason", "matched_stop"}
        named = (stop for stop in (self.stop_reason, self.matched_stop) if isinstance(stop, str))
        return next(named, "" if told else None)

    @property
    def ending(self) -> tuple[Ending, str]:
        """The meaning of the finish reasons, and the word that says so."""
        read = [(ending(word), word) for word in (self.finish_reason, self.native_finish_reason) if word]
        native = [one for one in read if one[0] is not Ending.UNKNOWN] or read
        # A gateway may call an answer ended that its provider has cut or blocked.
        return next((one for one in native if one[0] is not Ending.WHOLE), (Ending.WHOLE, ""))

    @property
    def failure(self) -> str:
        """The reason why the server generated no whole answer; empty if it did."""
        kind, word = self.ending
        return f"the endpoint ended the answer with {word!r}" if kind is Ending.FAILED else ""

    @property
    def finish(self) -> Finish:
        """The reason why the model stopped; raises Withheld if a filter blocked the answer."""
        match self.ending:
            case Ending.WITHHELD, word:
                raise Withheld(f"the endpoint's content filter blocked the answer ({word})")
            case Ending.CUT, _:
                return Finish.LENGTH
            case Ending.UNKNOWN, _:
                return Finish.UNKNOWN
        return Finish.END


class ChatChoice(_Choice):
    message: Annotated[ChatMessage, BeforeValidator(lambda given: given or {})] = ChatMessage()


class TokenLogprobs(_Answer):
    token_logprobs: list[float]


class TokenChoice(_Choice):
    token_ids: list[int] | None = None
    logprobs: TokenLogprobs | None = None


class PromptDetails(_Answer):
    cached_tokens: Count = None


class Counts(_Answer):
    prompt_tokens: Count = Field(None, validation_alias=AliasChoices("prompt_tokens", "input_tokens"))
    completion_tokens: Count = Field(
        None, validation_alias=AliasChoices("completion_tokens", "output_tokens")
    )
    total_tokens: Count = None
    prompt_tokens_details: Annotated[PromptDetails | None, BeforeValidator(_as_object)] = None
    prompt_cache_hit_tokens: Count = None
    """DeepSeek's name for `prompt_tokens_details.cached_tokens`."""
    cached_tokens_read: Count = Field(
        None, validation_alias=AliasChoices("cache_read_input_tokens", "cached_tokens")
    )
    """Anthropic's and Moonshot's names for the same."""
    cache_creation_input_tokens: Count = None

    @property
    def cached(self) -> int:
        """Tokens that the provider says to have had in its cache."""
        details = self.prompt_tokens_details
        return (
            (details.cached_tokens if details else None)
            or self.prompt_cache_hit_tokens
            or self.cached_tokens_read
            or 0
        )

    @property
    def written(self) -> int | None:
        """Tokens that the model wrote, thinking included; None if the endpoint does not count them.

        xAI and Gemini count the thinking only in the total, and bill it.
        """
        if self.completion_tokens is None or not self.prompt_tokens or self.total_tokens is None:
            return self.completion_tokens
        further = max(0, self.total_tokens - self.prompt_tokens - self.completion_tokens)
        created = self.cache_creation_input_tokens or 0
        # Some providers leave cached tokens out of the prompt's, and not out of the total.
        return self.completion_tokens + (
            0 if further in (self.cached, created, self.cached + created) else further
        )

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens from the provider's cache, at most all prompt tokens."""
        return min(self.cached, self.prompt_tokens or 0)

    @property
    def most_read(self) -> int | None:
        """The most tokens that the model can have read; None if the endpoint does not count them.

        Some providers leave cached tokens out of the prompt's.
        """
        if not self.prompt_tokens:
            return None
        return self.prompt_tokens + self.cached + (self.cache_creation_input_tokens or 0)


class ChatAnswer(_Answer):
    """A response of `/chat/completions`."""

    choices: Annotated[list[ChatChoice], Field(min_length=1)]
    counts: Annotated[Counts | None, BeforeValidator(_as_object)] = Field(default=None, alias="usage")

    @property
    def failure(self) -> str:
        """The reason why the server generated no whole answer; empty if it did."""
        return self.choices[0].failure

    @property
    def usage(self) -> Usage:
        """Tokens as the endpoint counted them; an uncounted completion is estimated at four bytes a token."""
        # Without an estimate a token budget would never end the dialogue.
        counts = self.counts or Counts.model_validate({})
        message = self.choices[0].message
        guess = estimated(message.content or "", message.reasoning)
        written_tokens = guess if counts.written is None else counts.written
        return Usage(counts.prompt_tokens or 0, written_tokens, counts.cached_tokens)


class TokenAnswer(_Answer):
    """A response of `/completions` with vLLM's `return_token_ids`."""

    choices: Annotated[list[TokenChoice], Field(min_length=1)]

    @property
    def failure(self) -> str:
        """The reason why the server generated no whole answer; empty if it did."""
        return self.choices[0].failure


def estimated(*texts: str) -> int:
    """Return the tokens of texts at four bytes each."""
    return -(-sum(len(text.encode(errors="replace")) for text in texts) // 4)
