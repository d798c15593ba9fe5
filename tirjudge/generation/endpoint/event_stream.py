"""Answers that arrive as a stream of server-sent events, with the parts joined to one answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tirjudge.generation.endpoint.answers import joined_parts

_JOINED = ("content", "refusal", "reasoning_content", "reasoning")
"""Texts of a message that a stream sends in parts, each a text or a list of parts of its own."""
_LINE_END = re.compile(r"\r\n|\n|\r")
"""The end of a line of server-sent events (HTML Standard, section 9.2.5)."""


class StreamBroken(ValueError):
    """A stream ended before its answer did."""


def is_stream(content: bytes, content_type: str) -> bool:
    """Return True for a body of server-sent events, whatever its content type says."""
    start = content.lstrip()[:64]
    return start.startswith((b"data:", b"event:", b"id:", b": ")) or (
        "text/event-stream" in content_type and not start.startswith((b"{", b"[", b"<"))
    )


def joined(content: bytes) -> dict[str, Any]:
    """Return the answer whose parts a stream contains; an event with an error stands for the whole.

    Raises StreamBroken for a stream without an end, whose text may be half an answer.
    """
    answer: dict[str, Any] = {}
    choice: dict[str, Any] = {"index": 0, "message": {}}
    calls: dict[Any, dict[str, Any]] = {}
    ended = False
    for data in _events(content):
        if data.strip() == "[DONE]":
            ended = True
            break
        try:
            part = json.loads(data)
        except (ValueError, RecursionError):
            raise StreamBroken(f"an event of the stream is no JSON: {data[:60]!r}") from None
        if not isinstance(part, dict):
            continue
        if says_failed(part.get("error")) or part.get("object") == "error":
            return part if part.get("error") else {"error": part}
        # The last part with the tokens has no choices.
        answer |= {name: value for name, value in part.items() if name != "choices" and value is not None}
        for one in part.get("choices") or ():
            if isinstance(one, dict) and not one.get("index"):
                _add(choice, calls, one)
        ended = ended or bool(choice.get("finish_reason"))
    if not ended:
        raise StreamBroken("the stream ended before the answer did")
    if calls:
        choice["message"]["tool_calls"] = list(calls.values())
    return answer | {"choices": [choice]}


def _events(content: bytes) -> Iterator[str]:
    lines: list[str] = []
    # JSON texts may contain the further line breaks of `str.splitlines`, such as U+2028.
    for line in (*_LINE_END.split(content.decode("utf-8", errors="replace")), ""):
        if not line.strip():
            if lines:
                yield "\n".join(lines)
            lines = []
        elif line.startswith("data:"):
            text = line.removeprefix("data:").removeprefix(" ")
            # Some servers leave out the empty line between two events.
            if lines and text.lstrip().startswith(("{", "[DONE]")):
                yield "\n".join(lines)
                lines = []
            lines.append(text)


def _add(choice: dict[str, Any], calls: dict[Any, dict[str, Any]], part: Mapping[str, Any]) -> None:
    whole, message = part.get("message"), choice["message"]
    delta = part.get("delta") if isinstance(part.get("delta"), dict) else whole
    for name, value in part.items():
        # A later part may repeat the finish reason as an empty text.
        if name not in ("delta", "message") and value not in (None, ""):
            choice[name] = value
    for name, value in (delta or {}).items():
        if name == "tool_calls":
            for number, call in enumerate(value or ()):
                if isinstance(call, dict):
                    _add_call(calls, call, number if delta is whole else len(calls))
        elif name in _JOINED and isinstance(text := joined_parts(value), str):
            message[name] = (message.get(name) or "") + text
        elif isinstance(value, list) and isinstance(message.get(name), list):
            message[name] = [*message[name], *value]
        elif value is not None:
            message[name] = value


def _add_call(calls: dict[Any, dict[str, Any]], part: Mapping[str, Any], number: int) -> None:
    """Add a part of a call; `number` stands for its index if it has none."""
    given = part.get("index")
    key = number if given is None else given
    # Gemini gives all calls of an answer the index 0: the id, or arguments that are whole, tells them apart.
    while key in calls and _is_another(part, calls[key]):
        key = (key, "next")
    call = calls.setdefault(key, {"function": {"name": "", "arguments": ""}})
    call.update({name: value for name, value in part.items() if name != "function" and value})
    function = part.get("function") or {}
    call["function"]["name"] = call["function"]["name"] or function.get("name") or ""
    arguments = function.get("arguments") or ""
    call["function"]["arguments"] += arguments if isinstance(arguments, str) else json.dumps(arguments)


def _is_another(part: Mapping[str, Any], call: Mapping[str, Any]) -> bool:
    """Return True if a part begins another call than the one with its index."""
    # Older vLLM gives every part an id of its own, but only the first part a name.
    if not (part.get("function") or {}).get("name"):
        return False
    if part.get("id") and call.get("id"):
        return bool(part["id"] != call["id"])
    return _is_whole(call["function"]["arguments"])


def _is_whole(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False


def says_failed(error: Any) -> bool:
    """Return True for the value of a field `error` that reports one: some gateways send empty ones."""
    return any(error.values()) if isinstance(error, Mapping) else bool(error)
