"""Conversations, transcripts and tools of a row, in the forms of OpenAI, Anthropic, Gemini and LangChain."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from tirjudge_environments.messages import is_transcript
from tirjudge_environments.tasks.cells import RowError, parsed, text_of, type_name
from tirjudge_environments.tasks.columns import similar_name
from tirjudge_environments.types import Message, Response, ToolCall, ToolSpec

Role = Literal["system", "user", "assistant", "tool"]
_ROLES: Mapping[str, Role] = {
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("user", "human", "prompter"), "user"),
    **dict.fromkeys(("assistant", "gpt", "model", "bot", "chatbot", "ai", "functioncall"), "assistant"),
    **dict.fromkeys(("tool", "function", "observation", "ipython"), "tool"),
}
"""Role in a row, in OpenAI's or another name, to role of a message."""
_SHOWN_ROLES = "system, developer, user, assistant, tool"
_CALLS = ("call", "tooluse", "executablecode")
_RESULTS = ("calloutput", "toolresult", "functionresponse", "codeexecutionresult")
"""Ends of the names of parts: types of Anthropic's, of Responses and of LangChain, and Gemini's keys."""
_THINKING = ("thinking", "redactedthinking", "reasoning", "reasoningcontent", "thought")
_CONTENTS = ("content", "value", "parts", "output", "response", "result", "outputs")
"""Keys of what a message or a result says, the most usual one first."""
_IDS = ("callid", "toolcallid", "tooluseid", "id")
"""Keys of a call's id; an item of Responses has an id of its own as well."""
_ARGUMENTS = ("arguments", "args", "input", "parameters")
_ANSWERS = (("choices", "message"), ("choices", "text"), ("candidates", "content"), ("message",), ("output",))
"""Places of the message in a server's answer: OpenAI's chats and completions, Gemini, Ollama, Responses."""
_HISTORIES = ("messages", "contents", "conversations", "conversation", "history", "chathistory", "input")
_INSTRUCTIONS = ("system", "systeminstruction", "instructions")
"""Keys of an object that hold a conversation, and what stands before it."""


def conversation_of(value: Any) -> list[Any] | None:
    """Return the messages of a conversation, each as its own form has it; None for anything else.

    A conversation is a list of messages, one message, or a server's request or answer that holds them.
    """
    if isinstance(value, list):
        return value if value and all(role_of(message) is not None for message in value) else None
    if not isinstance(value, Mapping):
        return None
    if role_of(value) is not None:
        return [value]
    held = {similar_name(key): one for key, one in value.items()}
    for place in _ANSWERS:
        if answer := _single(held, place):
            return conversation_of(
                {"role": "assistant", "content": answer} if isinstance(answer, str) else answer
            )
    history = next((held[key] for key in _HISTORIES if is_chat(held.get(key))), ())
    # Gemini's form may leave out the role of a user.
    said = [{"role": "user", **one} if "parts" in one else one for one in history]
    before = [{"role": "system", "content": held[key]} for key in _INSTRUCTIONS if held.get(key)]
    return conversation_of([*before, *said]) if said else None


def _single(held: Any, place: Iterable[str]) -> Any:
    """Return what is at a place, through lists of one object; None if nothing is there."""
    for step in place:
        held = held[0] if isinstance(held, list) and len(held) == 1 else held
        held = held.get(step) if isinstance(held, Mapping) else None
    return held


def read_messages(value: Any, name: str, *, silent: bool = False) -> tuple[Message, ...]:
    """Return the messages of a conversation; raises RowError, whose message begins with `name`.

    The forms are those of OpenAI's chats and Responses, Anthropic, Gemini, LangChain and ShareGPT. Thinking
    that a form keeps apart is left out. With `silent`, as in what a policy wrote, a message may lack its
    content, and a call its name and arguments.
    """
    items = enumerate(conversation_of(value) or value, 1)
    return tuple(one for number, item in items for one in _read(item, f"{name}, message {number}", silent))


def role_of(message: Any) -> Role | None:
    """Return the role of a chat message; None for anything else."""
    if not isinstance(message, Mapping):
        return None
    message = _unwrapped(message)
    said = next((message[key] for key in ("role", "from") if message.get(key) is not None), None)
    if said is not None:
        role, content = _ROLES.get(_name(said)), message.get("content") or message.get("parts")
        # Anthropic and Gemini give the results of tools the role of the user.
        answered = (
            role == "user" and is_chat(content) and all(_kind(one)[0].endswith(_RESULTS) for one in content)
        )
        return "tool" if answered else role
    kind = _name(message.get("type"))
    if kind.endswith((*_CALLS, *_RESULTS)):
        return "tool" if kind.endswith(_RESULTS) else "assistant"
    if kind == "reasoning":
        return "assistant"
    return _ROLES.get(kind.removesuffix("chunk").removesuffix("message")) if "content" in message else None


def _name(value: Any) -> str:
    """Return the name of a role or a type as the tables here have it; empty for anything but a text."""
    return re.sub("[_-]", "", value.lower()) if isinstance(value, str) else ""


def _unwrapped(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message without what LangChain writes around it: type and `data`, or class and `kwargs`."""
    kind, inner = message.get("type"), message.get("data")
    if isinstance(message.get("kwargs"), Mapping) and isinstance(message.get("id"), list) and message["id"]:
        kind, inner = message["id"][-1], message["kwargs"]
    return {**inner, "type": kind} if isinstance(inner, Mapping) else message


def _read(value: Any, name: str, silent: bool) -> Iterator[Message]:
    """Yield the messages of an item of a conversation; the result of a tool is a message of its own."""
    role = role_of(value)
    if role is None:
        raise RowError(f"{name}: not a chat message with a role of {_SHOWN_ROLES} and a content")
    value = _unwrapped(value)
    called = value.get("tool_calls") or value.get("function_call")
    called = called or _single(value, ("additional_kwargs", "tool_calls"))
    called = [called] if isinstance(called, Mapping) else called
    if called and (role != "assistant" or not isinstance(called, list)):
        raise RowError(f"{name}: tool_calls must be a list in a message of the assistant")
    calls = [_call(one, f"{name}, call {number}", silent) for number, one in enumerate(called or (), 1)]
    texts, said, spoken = list[str](), list[ToolCall](), False
    for kind, part in _parts(value, role, may_lack=bool(calls) or silent):
        if kind.endswith(_RESULTS):
            if texts or said:
                yield Message(role, "".join(texts), tuple(said))
            texts, said, spoken = [], [], True
            id = _text(_held(part, _IDS), f"{name}, tool_call_id", True)
            yield Message("tool", _result(part, name), (), id, _word(part, "name", name))
        elif kind.endswith(_CALLS):
            said.append(_call(part, f"{name}, call {len(said) + 1}", True, str(part.get("type") or kind)))
        elif kind not in _THINKING:
            texts.append(_text(part, f"{name}, content", False))
    item = _name(value.get("type"))
    if texts or said or calls or not (spoken or item == "reasoning"):
        # The name of an item that is a call is its tool's. LangChain has Anthropic's calls twice.
        author = "" if item.endswith(_CALLS) else _word(value, "name", name)
        yield Message(role, "".join(texts), tuple(said or calls), name=author)


def _parts(value: Mapping[str, Any], role: Role, *, may_lack: bool) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a message, each with its kind: a call, a result of a tool, thinking, else text."""
    own = "" if value.get("role") else _name(value.get("from") or value.get("type"))
    content = next((value[key] for key in _CONTENTS if value.get(key) is not None), None)
    if "from" in value and own.endswith(_CALLS):
        called = parsed(content)
        yield from ((own, one) for one in (called if is_chat(called) else [called or {}]))
        return
    if own.endswith((*_CALLS, *_RESULTS)) or own == "reasoning":
        yield own, value
        # Tools that a server runs have call and result in one item.
        if own.endswith(_CALLS) and (value.get("output") or value.get("outputs")) is not None:
            yield "toolresult", value
        return
    parts = [_kind(part) for part in content] if isinstance(content, list) else [("", content)]
    if role == "tool" and not any(kind.endswith(_RESULTS) for kind, _ in parts):
        yield "toolresult", value
    elif content is not None or not may_lack:
        yield from parts


def _kind(part: Any) -> tuple[str, Any]:
    """Return the kind of a part of a content, and what is said about it: under its type, or under its key."""
    if not isinstance(part, Mapping):
        return "", part
    if part.get("type") or part.get("thought") is True:
        return _name(part.get("type") or "thought"), part
    named = ((similar_name(key), one) for key, one in part.items() if isinstance(one, Mapping))
    kind, held = next(((kind, one) for kind, one in named if kind.endswith((*_CALLS, *_RESULTS))), ("", part))
    return kind, held if kind else part.get("text")


def _text(value: Any, name: str, may_lack: bool) -> str:
    """Return the text of a part, which may be an object with a text."""
    if isinstance(value, Mapping) and (kind := value.get("type")):
        value = value.get("text", value.get("refusal"))
        if value is None and not may_lack:
            raise RowError(f"{name} is missing, not a text: a part of type {str(kind)[:40]!r} is not read")
    return "" if value is None and may_lack else text_of(value, name)


def _result(value: Mapping[str, Any], name: str) -> str:
    """Return the text of a tool's result: its texts, or the JSON of any other value."""
    said = _held(value, _CONTENTS)
    if is_chat(said) and all(part.get("type") or "text" in part for part in said):
        return "".join(_text(_kind(part)[1], f"{name}, content", False) for part in said)
    if isinstance(said, Mapping | list):
        return json.dumps(said, ensure_ascii=False)
    return _text(said, f"{name}, content", True)


def _call(value: Any, name: str, may_lack: bool, tool: str = "") -> ToolCall:
    """Return a call in any form, also in OpenAI's without the wrapper `function`; `tool` is a default name.

    Arguments may be an object.
    """
    function = value.get("function") if isinstance(value, Mapping) else None
    called = function if isinstance(function, Mapping) else value
    called = called if isinstance(called, Mapping) else {}
    found = function if isinstance(function, str) else _held(called, ("name", "toolname"))
    if not (isinstance(found, str) or may_lack):
        raise RowError(f"{name}: not a tool call with a function that has a name and arguments")
    arguments = _held(called, _ARGUMENTS)
    if arguments is None and may_lack:
        known = (*_IDS, "name", "toolname", "type", "status", "output", "outputs", "function")
        arguments = {key: one for key, one in called.items() if similar_name(key) not in known}
    if not isinstance(arguments, str | None):
        arguments = json.dumps(arguments, ensure_ascii=False)
    id = _held(value, _IDS) if called else ""
    tool = found if isinstance(found, str) else tool
    return ToolCall(_text(id, f"{name}, id", True), tool, text_of(arguments, f"{name}, arguments"))


def _held(value: Mapping[str, Any], names: Iterable[str]) -> Any:
    """Return the value under the first of these names, as `similar_name` leaves them; None without any."""
    found = {similar_name(key): one for key, one in value.items() if one is not None}
    return next((found[name] for name in names if name in found), None)


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
