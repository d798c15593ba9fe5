"""What OpenAI-compatible endpoints answer: the fields that are read, and the shapes that are put up with."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from tirjudge_environments import Finish, Usage
from tirjudge_environments.parsing import find_fences


def _joined(content: Any) -> Any:
    """A content of parts as the text of its text parts."""
    if not isinstance(content, list):
        return content
    return "".join(part.get("text") or "" for part in content if isinstance(part, dict))


def _as_json(arguments: Any) -> Any:
    """Arguments are JSON text; some servers send the object itself."""
    return json.dumps(arguments) if isinstance(arguments, dict) else arguments


def _whole(reason: str | None) -> str | None:
    """An engine that was stopped under the request has answered a part of it, or nothing."""
    if reason in ("abort", "error"):
        raise ValueError(f"the endpoint broke off ({reason})")
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
    """vLLM, OpenRouter and Ollama; the others say `reasoning_content`."""
    tool_calls: list[Call] | None = None


class _Choice(_Answer):
    finish_reason: Annotated[str | None, AfterValidator(_whole)] = None
    stop_reason: str | int | None = None
    """vLLM: the stop string that was met, or the id of a stop token; None at the end of the turn."""
    matched_stop: str | int | None = None
    """SGLang's word for the same."""

    @property
    def stop_string(self) -> str:
        """The stop string that was met, where the endpoint tells; else empty."""
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
    """The answer of `/chat/completions`."""

    choices: Annotated[list[ChatChoice], Field(min_length=1)]
    counts: Counts | None = Field(default=None, alias="usage")

    @property
    def usage(self) -> Usage:
        """As counted by the endpoint; what it wrote is guessed at four bytes a token where it tells nothing.

        A budget of tokens in which nothing counts would never end a dialogue.
        """
        counts = self.counts or Counts()
        message = self.choices[0].message
        written = f"{message.content or ''}{message.reasoning_content or message.reasoning or ''}"
        guess = -(-len(written.encode()) // 4)
        told = counts.completion_tokens
        return Usage(counts.prompt_tokens or 0, guess if told is None else told)


class TokenAnswer(_Answer):
    """The answer of `/completions` with vLLM's `return_token_ids`."""

    choices: Annotated[list[TokenChoice], Field(min_length=1)]


def restored(before: str, text: str, finish: Finish, stops: tuple[str, ...], met: str) -> tuple[str, Finish]:
    """A turn's text with the stop string that ended it, and what ended it.

    Args:
        before: what the model wrote in earlier completions of the same turn.
        text: what it wrote now, as the endpoint gave it.
        finish: as the endpoint told; many tell no difference between a stop string and the model's own end.
        stops: the stop strings that the endpoint was asked for.
        met: the one that ended the turn, where the endpoint tells.
    """
    if finish is Finish.LENGTH:
        return text, finish
    cut = met if met in stops else _closing(before + text, stops)
    text = text.removesuffix(cut) + cut
    return text, Finish.STOP if stops and text.endswith(stops) else finish


def _closing(turn: str, stops: Iterable[str]) -> str:
    """The stop string that closes the fence in which the turn would otherwise end: models close theirs."""
    fences = find_fences(turn)
    if not fences or fences[-1].closed:
        return ""
    return next((stop for stop in stops if find_fences(turn + stop)[len(fences) - 1].closed), "")
