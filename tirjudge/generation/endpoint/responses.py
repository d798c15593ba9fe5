"""Responses of OpenAI-compatible endpoints: the fields that are read, in all the variants in use."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from tirjudge_environments import Finish, Usage
from tirjudge_environments.parsing import find_fences


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


class Counts(_Answer):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


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
        written = f"{message.content or ''}{message.reasoning_content or message.reasoning or ''}"
        guess = -(-len(written.encode()) // 4)
        counted = counts.completion_tokens
        return Usage(counts.prompt_tokens or 0, guess if counted is None else counted)


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
    text = text.removesuffix(cut) + cut
    return text, Finish.STOP if stops and text.endswith(stops) else finish


def _closing(turn: str, stops: Iterable[str]) -> str:
    """Return the stop string that closes the fence in which the turn would otherwise end; empty if none."""
    # Models close their fences, so a text that ends inside one has lost its stop string.
    fences = find_fences(turn)
    if not fences or fences[-1].closed:
        return ""
    return next((stop for stop in stops if find_fences(turn + stop)[len(fences) - 1].closed), "")
