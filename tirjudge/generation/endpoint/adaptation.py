"""Adaptation to an endpoint: refusals show which requests the endpoint accepts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tirjudge.generation.endpoint.answers import THINKING
from tirjudge.generation.endpoint.refusals import EndpointRefused
from tirjudge.generation.endpoint.request_fields import DISPENSABLE

_STREAMED = {"stream": True, "stream_options": {"include_usage": True}}
_OF_TURNS = {"role", "content", "tool_calls", "tool_call_id"}
"""Fields without which a turn is no turn."""


@dataclass(frozen=True, slots=True)
class Learnt:
    """The differences between the judge's usual requests and requests that an endpoint accepts."""

    left_out: frozenset[str] = frozenset()
    """Fields that the endpoint does not support."""
    length: str = "max_tokens"
    """The name under which the endpoint accepts the length of an answer."""
    most_tokens: int | None = None
    """The longest answer that the endpoint accepts to be asked for; None if no limit is known."""
    streams: bool = False
    """True for an endpoint that answers only as a stream."""
    thinking: str = ""
    """The field in which the endpoint wants every turn's thinking back; empty if not wanted."""
    unwanted: frozenset[str] = frozenset()
    """Fields of the endpoint's turns that the endpoint refuses in requests."""
    empty_texts: bool = False
    """True for an endpoint that refuses null as the content of a turn with a call."""
    notes: tuple[str, ...] = ()
    """Lines that the user should know."""

    def applied(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the request that the endpoint accepts."""
        asked = dict(body)
        if self.most_tokens is not None and "max_tokens" in asked:
            asked["max_tokens"] = min(asked["max_tokens"], self.most_tokens)
        if self.streams or asked.get("stream"):
            asked = {**_STREAMED, **asked, "stream": True}
        return {
            self.length if name == "max_tokens" else name: value
            for name, value in asked.items()
            if name not in self.left_out
        }

    def adapted(self, refusal: EndpointRefused, sent: Mapping[str, Any]) -> Learnt | None:
        """Return the updated knowledge after a refusal; None if a further request cannot be accepted."""
        return next(self._changes(refusal, sent), None)

    def joined(self, other: Learnt) -> Learnt:
        """Return everything that two requests have learnt at the same time."""
        limits = [limit for limit in (self.most_tokens, other.most_tokens) if limit is not None]
        return Learnt(
            left_out=self.left_out | other.left_out,
            length=other.length if self.length == "max_tokens" else self.length,
            most_tokens=min(limits, default=None),
            streams=self.streams or other.streams,
            thinking=self.thinking or other.thinking,
            unwanted=self.unwanted | other.unwanted,
            empty_texts=self.empty_texts or other.empty_texts,
        )

    def _changes(self, refusal: EndpointRefused, sent: Mapping[str, Any]) -> Iterator[Learnt]:
        if not refusal.of_fields:
            return
        if refusal.stream_only and not sent.get("stream") and "prompt" not in sent:
            yield replace(self, streams=True)
        length, limit = sent.get(self.length), None
        if isinstance(length, int):
            limit = refusal.output_limit(length)
        if limit is not None:
            note = f"requests ask for at most {limit} tokens from now on, because of {refusal.plain}"
            yield self._noted(note, most_tokens=limit)
        if refusal.context_full:
            return
        # OpenAI's newer models refuse the old name, which most other servers require.
        if "max_tokens" in sent and refusal.names("max_completion_tokens"):
            yield replace(self, length="max_completion_tokens")
        # Token ids are for training, where the sampling has to be known.
        if "prompt" in sent:
            return
        if sent.get("stream") and "stream_options" in sent and refusal.names("stream_options"):
            yield replace(self, left_out=self.left_out | {"stream_options"})
        if refusal.wants_thinking:
            if not self.thinking and THINKING[0] not in self.unwanted:
                yield replace(self, thinking=THINKING[0])
            return
        without_text = any(turn.get("content", "") is None for turn in sent.get("messages", ()))
        if without_text and not self.empty_texts and refusal.names("content"):
            yield replace(self, empty_texts=True)
        of_turns = {name for turn in sent.get("messages", ()) for name in turn} - _OF_TURNS
        refused = {name for name in of_turns if refusal.names(name)}
        if refused:
            thinking = "" if self.thinking in refused else self.thinking
            yield replace(self, unwanted=self.unwanted | refused, thinking=thinking)
        named = [name for name in DISPENSABLE if name in sent and refusal.named(name, sent[name])]
        # The field that the body names, else a field in quotation marks, else any that is mentioned.
        quoted = [name for name in named if re.search(rf"['\"`]{name}\b", refusal.complaint.message)]
        exact = [name for name in named if name == refusal.complaint.field.rpartition(".")[2]]
        for name in (*exact, *quoted, *named):
            note = f"requests leave out {name} from now on, because of {refusal.plain}"
            yield self._noted(note, left_out=self.left_out | {name})

    def _noted(self, note: str, **changes: Any) -> Learnt:
        return replace(self, notes=(*self.notes, note), **changes)
