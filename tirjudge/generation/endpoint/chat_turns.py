"""The turns of a chat request: a dialogue as alternating messages, and tools in the chat API's form.

An endpoint encodes the text of a chat message together with its chat template, and many servers then read a
control token in the text as the template's own. In every message such tokens are therefore quoted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tirjudge.generation.endpoint.answers import THINKING
from tirjudge_environments import By, Context, Segment, ToolCall, ToolSpec
from tirjudge_environments.quoting import quote_control_tokens

ChatTurn = dict[str, Any]
GO_ON = "Continue exactly where you stopped."
"""The user turn after an unfinished turn of the judge: a chat API cannot continue an assistant message."""
OUTPUT = "```output"


def alternating(
    context: Context,
    tokens: frozenset[str] = frozenset(),
    *,
    thinking: str = "",
    unwanted: frozenset[str] = frozenset(),
) -> list[ChatTurn]:
    """Return the prompt messages, then assistant turns and, between them, the programs' outputs.

    Outputs that answer native calls become tool messages, the others user turns. Hidden reasoning goes back
    with native calls, as all further fields of their messages, except those named in `unwanted`. With
    `thinking`, the name of a field, it goes back with every turn of the judge. A prefill that the model has
    not continued yet is not sent: a chat API cannot continue an assistant message. Control tokens are quoted,
    also the model's own `tokens`.
    """
    turns = _turns(context, thinking)
    for turn in turns:
        for name in unwanted & turn.keys():
            del turn[name]
        for name in ("content", *THINKING):
            if isinstance(turn.get(name), str):
                turn[name] = quote_control_tokens(turn[name], tokens)
        for call in turn.get("tool_calls", ()):
            asked = call["function"]
            asked["arguments"] = quote_control_tokens(asked["arguments"], tokens)
    return turns


def _turns(context: Context, thinking: str) -> list[ChatTurn]:
    turns = [_turn(message.role, message.content) for message in context.prompt.messages]
    text, reasoning = context.prompt.prefill, ""
    # Chat APIs refuse a call without a tool message that answers it.
    answered = {segment.call_id for segment in context.segments if segment.by is By.SANDBOX}
    for segment in context.segments:
        if segment.by is By.MODEL:
            text += segment.text
            reasoning += segment.reasoning
            calls = [_call(call) for call in segment.tool_calls if call.id in answered]
            if calls:
                said = {"role": "assistant", "content": text or None, "tool_calls": calls}
                turns.append(said | dict(segment.further) | _thought(thinking, reasoning))
                text = reasoning = ""
        elif segment.call_id is not None:
            turns.append(_turn("tool", segment.text) | {"tool_call_id": segment.call_id})
        else:
            turns += _exchange(text, segment, _thought(thinking, reasoning))
            text = reasoning = ""
    if text and context.segments:
        turns += [_turn("assistant", text) | _thought(thinking, reasoning), _turn("user", GO_ON)]
    return turns


def _thought(name: str, reasoning: str) -> ChatTurn:
    # A server that insists on the field refuses an empty one.
    return {name: reasoning or " "} if name else {}


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


def _exchange(written: str, output: Segment, thought: ChatTurn) -> Iterator[ChatTurn]:
    """Yield the judge's turn up to its program, and the output, with its whole fence, as a user turn."""
    head, fence = written.rstrip(), output.text.removeprefix("\n").rstrip("\n")
    if head.endswith(OUTPUT):
        head, fence = head.removesuffix(OUTPUT).rstrip(), f"{OUTPUT}\n{fence}"
    if head:
        yield _turn("assistant", head) | thought
    yield _turn("user", fence)


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": _arguments(call.arguments)}
    return {"id": call.id, "type": "function", "function": function, **call.further}


def _arguments(written: str) -> str:
    """Return arguments as the text of a JSON object: some servers fail at any other text."""
    try:
        found = json.loads(written)
    except (ValueError, RecursionError):
        found = None
    return written if isinstance(found, dict) else json.dumps({"arguments": written})


def sent_texts(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts of a chat request."""
    for turn in body["messages"]:
        yield turn["content"] or ""
        yield from (call["function"]["arguments"] for call in turn.get("tool_calls", ()))
    if "tools" in body:
        yield json.dumps(body["tools"])
