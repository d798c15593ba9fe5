"""Chat messages as a judge reads them: conversations, and transcripts of agents, as text and as data.

A transcript is a list of messages with calls of tools or their results, or with several turns. Its text has a
heading for every part, `[message 2: result of search, id call_1]`. No text of the transcript reads as a
heading (see `quoting`), and its middle is left out if it is long. Its data is OpenAI's form, whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from tirjudge_environments.quoting import cut_middle, quote_lines, starts_with
from tirjudge_environments.types import Message, Response, ToolSpec

LONGEST_SHOWN = 16_000
"""Characters of a transcript that a prompt shows."""
_SHARE = 8
"""The longest part of a cut transcript has 1 / `_SHARE` of all shown characters."""
_PLAIN_NAME = re.compile(r"[\w.:/-]{1,64}", re.ASCII)
_LONGEST_NAME = 64
_is_heading = starts_with(["[message "])


def is_transcript(messages: Iterable[Message]) -> bool:
    """Return True if any message calls a tool or is the result of a call."""
    return any(message.tool_calls or message.role == "tool" for message in messages)


def conversation_text(messages: Sequence[Message]) -> str:
    """Return the judged conversation as one text: a single user message alone, else turns with roles.

    A conversation with calls of tools is a transcript.
    """
    if is_transcript(messages):
        return transcript_text(messages)
    if len(messages) == 1 and messages[0].role == "user":
        return messages[0].content
    return "\n\n".join(f"{message.role.capitalize()}: {message.content}" for message in messages)


def response_text(response: Response, limit: int | None = None) -> str:
    """Return a response as a judge is shown it: a text, or the text of a transcript.

    `limit` is the most characters. Without it a text is whole, and a transcript has `LONGEST_SHOWN`.
    """
    if isinstance(response, str):
        return response if limit is None else cut_middle(response, limit)
    return transcript_text(response, LONGEST_SHOWN if limit is None else limit)


def transcript_text(messages: Sequence[Message], limit: int = LONGEST_SHOWN) -> str:
    """Return the text of a transcript.

    Of a transcript with more than `limit` characters, each part is cut to an eighth of them, and parts in the
    middle are left out, under a heading that counts them.
    """
    parts = list(transcript_parts(messages))
    longest = max(limit // _SHARE, 2) if sum(len(text) for _, _, text in parts) > limit else limit
    # Quoted after the cut, which could begin a line in the middle of a quoted one.
    bodies = [quote_lines(cut_middle(body, longest), _is_heading) for _, _, body in parts]
    shown = [
        f"[{heading}]\n{body}" if body else f"[{heading}]"
        for (_, heading, _), body in zip(parts, bodies, strict=True)
    ]
    first, last = _middle(list(map(len, shown)), limit)
    if first < last:
        ends = f"{parts[first][0]} to {parts[last - 1][0]}"
        shown[first:last] = [f"[message {ends}: {last - first} parts left out]"]
    return "\n".join(shown)


def _middle(sizes: Sequence[int], limit: int) -> tuple[int, int]:
    """Return the range of parts to leave out, so that each side of it has at most half of `limit`."""
    if sum(sizes) <= limit:
        return 0, 0
    first, last, before, behind = 0, len(sizes), limit // 2, limit // 2
    while sizes[first] <= before:
        before -= sizes[first]
        first += 1
    while sizes[last - 1] <= behind:
        last -= 1
        behind -= sizes[last]
    return first, last


def transcript_parts(messages: Sequence[Message]) -> Iterator[tuple[int, str, str]]:
    """Yield the parts of a transcript: the message's number from 1, a heading in one line, and the text.

    The parts of a message are its content, unless that is empty, and each call with its arguments.
    """
    called: dict[str, str] = {}
    for number, message in enumerate(messages, 1):
        if message.role == "tool":
            # In OpenAI's form a result has the id of its call, and no name.
            name = called.get(message.tool_call_id) or message.name
            said = f"result of {_one_line(name) if name else 'a tool'}{_id(message.tool_call_id)}"
        else:
            said = message.role + (f" {_one_line(message.name)}" if message.name else "")
        if message.content or not message.tool_calls:
            yield number, f"message {number}: {said}", message.content
        for call in message.tool_calls:
            if call.id:
                called[call.id] = call.name
            yield number, f"message {number}: call of {_one_line(call.name)}{_id(call.id)}", call.arguments


def response_data(response: Response) -> str | list[dict[str, Any]]:
    """Return a response as JSON values: a text, or a transcript in OpenAI's form."""
    return response if isinstance(response, str) else list(map(message_data, response))


def conversation_data(messages: Sequence[Message]) -> str | list[dict[str, Any]]:
    """Return the judged conversation as JSON values: its text, or a transcript in OpenAI's form."""
    return list(map(message_data, messages)) if is_transcript(messages) else conversation_text(messages)


def message_data(message: Message) -> dict[str, Any]:
    """Return a message in OpenAI's form, without fields that are empty; `content` is always a text."""
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in message.tool_calls
    ]
    optional = {"tool_calls": calls, "tool_call_id": message.tool_call_id, "name": message.name}
    said = {"role": message.role, "content": message.content}
    return said | {name: value for name, value in optional.items() if value}


def tool_data(tool: ToolSpec) -> dict[str, Any]:
    """Return a tool in OpenAI's form."""
    described = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": described}


def tools_text(tools: Iterable[ToolSpec]) -> str:
    """Return one line per offered tool, with the JSON schema of the arguments."""
    longest = LONGEST_SHOWN // _SHARE
    told = (
        f"{tool.name}: {tool.description}; arguments {json.dumps(dict(tool.parameters))}" for tool in tools
    )
    shown = "\n".join(" ".join(cut_middle(line, longest).split()) for line in told)
    return cut_middle(shown, LONGEST_SHOWN)


def texts_of(response: Response) -> Iterator[str]:
    """Yield every text of a response: the response itself, or each text in the messages of a transcript."""
    if isinstance(response, str):
        yield response
        return
    for message in response:
        yield from (message.content, message.tool_call_id, message.name)
        for call in message.tool_calls:
            yield from (call.id, call.name, call.arguments)


def whole_text(response: Response) -> str:
    """Return the text of a response whole: a text itself, or a transcript as JSON."""
    return response if isinstance(response, str) else json.dumps(response_data(response))


def final_text(response: Response) -> str:
    """Return the answer: a text itself, or what the assistant said last in a transcript."""
    if isinstance(response, str):
        return response
    return next((message.content for message in reversed(response) if message.role == "assistant"), "")


def with_short_contents(response: Response, limit: int) -> Response:
    """Return the response with texts of more than `limit` characters cut in the middle.

    Arguments of calls stay whole, since a cut would leave no JSON.
    """
    if isinstance(response, str):
        return cut_middle(response, limit)
    return tuple(replace(message, content=cut_middle(message.content, limit)) for message in response)


def _one_line(name: str) -> str:
    """Return a name that cannot end its heading: unchanged, or quoted, escaped and cut."""
    return name if _PLAIN_NAME.fullmatch(name) else json.dumps(name[:_LONGEST_NAME])


def _id(call: str) -> str:
    return f", id {_one_line(call)}" if call else ""
