"""Chat messages, transcripts and tools of a row, in OpenAI's form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from tirjudge_environments.messages import is_transcript
from tirjudge_environments.tasks.cells import RowError, parsed, text_of, type_name
from tirjudge_environments.types import Message, Response, ToolCall, ToolSpec

_ROLES: Mapping[str, Literal["system", "user", "assistant", "tool"]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
    "human": "user",
    "prompter": "user",
    "gpt": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "ai": "assistant",
}
"""Role in a row, in OpenAI's or another name, to role of a message."""
_SHOWN_ROLES = "system, developer, user, assistant, tool"


def read_messages(value: list[Any], name: str) -> tuple[Message, ...]:
    """Return chat messages; raises RowError, whose message begins with `name`."""
    return tuple(_message(item, f"{name}, message {number}") for number, item in enumerate(value, 1))


def role_of(message: Any) -> Literal["system", "user", "assistant", "tool"] | None:
    """Return the role of a chat message; None for anything else."""
    if not isinstance(message, Mapping):
        return None
    return _ROLES.get(str(message.get("role", message.get("from"))).lower())


def is_conversation(value: Any) -> bool:
    """Return True for a list of chat messages with at least one message."""
    return is_chat(value) and all(role_of(message) is not None for message in value)


def _message(value: Any, name: str) -> Message:
    role = role_of(value)
    if role is None:
        raise RowError(f"{name}: not a chat message with a role of {_SHOWN_ROLES} and a content")
    # ShareGPT names a message's fields `from` and `value`.
    content, given = value.get("content", value.get("value")), value.get("tool_calls")
    if given and (role != "assistant" or not isinstance(given, list)):
        raise RowError(f"{name}: tool_calls must be a list in a message of the assistant")
    calls = tuple(_call(call, f"{name}, call {number}") for number, call in enumerate(given or (), 1))
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, Mapping) else None for part in content]
        content = "".join(text_of(part, f"{name}, content") for part in parts)
    # OpenAI's form has null next to calls, and some tools have no result.
    if content is None and (calls or role == "tool"):
        content = ""
    return Message(
        role,
        text_of(content, f"{name}, content"),
        calls,
        _word(value, "tool_call_id", name) if role == "tool" else "",
        _word(value, "name", name),
    )


def _call(value: Any, name: str) -> ToolCall:
    """Return a call in OpenAI's form, or without the wrapper `function`; arguments may be an object."""
    called = value.get("function", value) if isinstance(value, Mapping) else None
    if not isinstance(called, Mapping) or not isinstance(called.get("name"), str):
        raise RowError(f"{name}: not a tool call with a function that has a name and arguments")
    arguments = called.get("arguments")
    if isinstance(arguments, Mapping):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return ToolCall(_word(value, "id", name), called["name"], text_of(arguments, f"{name}, arguments"))


def _word(value: Mapping[str, Any], key: str, name: str) -> str:
    """Return the text under `key`; empty if absent."""
    found = value.get(key)
    return "" if found is None else text_of(found, f"{name}, {key}")


def response_of(messages: tuple[Message, ...]) -> Response:
    """Return a transcript as it is, and the content of the last message of any other chat."""
    several = len(messages) > 1 and messages[0].role == "assistant"
    return messages if several or is_transcript(messages) else messages[-1].content


def is_chat(value: Any) -> bool:
    """Return True for a list of objects with at least one entry."""
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


def read_tools(value: Any) -> tuple[ToolSpec, ...]:
    """Return the tools that were offered for the responses; raises RowError."""
    if value is None or value == "":  # an empty cell of a table
        return ()
    found = parsed(value)
    if not isinstance(found, list):
        raise RowError("tools must be a list of tools in OpenAI's form, or empty (--column tools=)")
    return tuple(_tool(tool, f"tool {number}") for number, tool in enumerate(found, 1))


def _tool(value: Any, name: str) -> ToolSpec:
    """Return a tool in OpenAI's form, or without the wrapper `function`."""
    tool = value.get("function", value) if isinstance(value, Mapping) else None
    if not isinstance(tool, Mapping) or not isinstance(tool.get("name"), str):
        raise RowError(f"{name}: not an object with a name, a description and parameters")
    parameters = tool.get("parameters") or {}
    if not isinstance(parameters, Mapping):
        raise RowError(f"{name}, parameters: {type_name(parameters)}, not a JSON schema")
    return ToolSpec(tool["name"], _word(tool, "description", name), dict(parameters))
