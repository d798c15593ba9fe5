"""Conversion of a dialogue to chat messages, with program outputs as user turns or tool results.

An endpoint encodes the text of a message together with its chat template, and many servers then read a
control token in the text as the template's own. In every message such tokens are therefore quoted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tirjudge_environments import By, Context, Segment, ToolCall, ToolSpec
from tirjudge_environments.quoting import quote_control_tokens

GO_ON = "Continue exactly where you stopped."
"""The user turn after an unfinished turn of the judge: a chat API cannot continue an assistant message."""
OUTPUT = "```output"

ChatTurn = dict[str, Any]


def continued(context: Context) -> list[ChatTurn]:
    """Return the prompt messages and, unless it is empty, all the text so far as one assistant message.

    The endpoint is to continue that message (`continue_final_message`).
    """
    written = context.prompt.prefill + "".join(segment.text for segment in context.segments)
    return [*_prompt(context), *([_turn("assistant", written)] if written else [])]


def alternating(context: Context) -> list[ChatTurn]:
    """Return the prompt messages, then assistant turns and, between them, the programs' outputs.

    Outputs that answer native calls become tool messages, the others user turns. Hidden reasoning is not sent
    back, and neither is a prefill that the model has not continued yet: a chat API cannot continue an
    assistant message.
    """
    turns = _prompt(context)
    text = context.prompt.prefill
    answered = {segment.call_id for segment in context.segments if segment.by is By.SANDBOX}
    for segment in context.segments:
        if segment.by is By.MODEL:
            text += segment.text
            calls = [_call(call) for call in segment.tool_calls if call.id in answered]
            if calls:
                written = quote_control_tokens(text) or None
                turns.append({"role": "assistant", "content": written, "tool_calls": calls})
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


def tools(specs: tuple[ToolSpec, ...]) -> Iterator[dict[str, Any]]:
    """Yield tool specifications in the chat API's format."""
    for spec in specs:
        function = {"name": spec.name, "description": spec.description, "parameters": dict(spec.parameters)}
        yield {"type": "function", "function": function}


def _prompt(context: Context) -> list[ChatTurn]:
    return [_turn(message.role, message.content) for message in context.prompt.messages]


def _turn(role: str, content: str) -> ChatTurn:
    return {"role": role, "content": quote_control_tokens(content)}


def _exchange(written: str, output: Segment) -> Iterator[ChatTurn]:
    """Yield the judge's turn up to its program, and the output, with its whole fence, as a user turn."""
    head, fence = written.rstrip(), output.text.removeprefix("\n").rstrip("\n")
    if head.endswith(OUTPUT):
        head, fence = head.removesuffix(OUTPUT).rstrip(), f"{OUTPUT}\n{fence}"
    if head:
        yield _turn("assistant", head)
    yield _turn("user", fence)


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": quote_control_tokens(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}
