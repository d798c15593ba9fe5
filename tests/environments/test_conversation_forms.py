"""Conversations in the forms of other libraries and servers: each is the same messages, whoever wrote it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tirjudge_environments import Message, RowError, ToolCall, read_task
from tirjudge_environments.messages import final_text

ARGUMENTS = {"city": "Rome"}
TEXT = json.dumps(ARGUMENTS)
ID = "c1"
WEATHER: tuple[Message, ...] = (
    Message("assistant", "Let me look.", (ToolCall(ID, "weather", TEXT),)),
    Message("tool", "12 degrees", tool_call_id=ID),
    Message("assistant", "It is 12 degrees."),
)
APART = (Message("assistant", "Let me look."), Message("assistant", "", WEATHER[0].tool_calls), *WEATHER[1:])
"""The same where the form has the call in an item of its own."""
LANGCHAIN: list[dict[str, Any]] = [
    {"type": "ai", "content": "Let me look.", "tool_calls": [
        {"name": "weather", "args": ARGUMENTS, "id": ID, "type": "tool_call"}]},
    {"type": "tool", "content": "12 degrees", "tool_call_id": ID, "id": "run-7", "status": "success"},
    {"type": "ai", "content": [{"type": "text", "text": "It is 12 degrees."}], "tool_calls": []},
]  # fmt: skip
FORMS: dict[str, tuple[list[Any], tuple[Message, ...]]] = {
    "openai": ([
        {"role": "assistant", "content": "Let me look.", "tool_calls": [
            {"id": ID, "type": "function", "function": {"name": "weather", "arguments": TEXT}}]},
        {"role": "tool", "tool_call_id": ID, "content": "12 degrees"},
        {"role": "assistant", "content": "It is 12 degrees.", "refusal": None},
    ], WEATHER),
    "anthropic": ([
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "s"},
            {"type": "text", "text": "Let me look."},
            {"type": "tool_use", "id": ID, "name": "weather", "input": ARGUMENTS}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": ID, "content": [
            {"type": "text", "text": "12 degrees"}]}]},
        {"role": "assistant", "content": [{"type": "text", "text": "It is 12 degrees."}]},
    ], WEATHER),
    "anthropic, a tool of the server": ([
        {"role": "assistant", "content": [
            {"type": "text", "text": "Let me look."},
            {"type": "server_tool_use", "id": ID, "name": "weather", "input": ARGUMENTS},
            {"type": "web_search_tool_result", "tool_use_id": ID, "content": "12 degrees"},
            {"type": "text", "text": "It is "}, {"type": "text", "text": "12 degrees."}]},
    ], WEATHER),
    "bedrock": ([
        {"role": "assistant", "content": [{"text": "Let me look."}, {
            "toolUse": {"toolUseId": ID, "name": "weather", "input": ARGUMENTS}}]},
        {"role": "user", "content": [{"toolResult": {"toolUseId": ID, "content": [{"text": "12 degrees"}]}}]},
        {"role": "assistant", "content": [{"text": "It is 12 degrees."}]},
    ], WEATHER),
    "langchain": (LANGCHAIN, WEATHER),
    "langchain, messages_to_dict": (
        [{"type": one["type"], "data": {**one, "additional_kwargs": {}}} for one in LANGCHAIN], WEATHER),
    "langchain, dumpd": ([
        {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", kind], "kwargs": one}
        for kind, one in zip(("AIMessage", "ToolMessage", "AIMessageChunk"), LANGCHAIN, strict=True)
    ], WEATHER),
    "langchain around anthropic": ([
        {**LANGCHAIN[0], "content": [{"type": "text", "text": "Let me look."}, {
            "type": "tool_use", "id": ID, "name": "weather", "input": ARGUMENTS}]}, *LANGCHAIN[1:]], WEATHER),
    "gemini": ([
        {"role": "model", "parts": [{"text": "Hm.", "thought": True}, {"text": "Let me look."}, {
            "functionCall": {"id": ID, "name": "weather", "args": ARGUMENTS}, "thoughtSignature": "s"}]},
        {"role": "user", "parts": [
            {"functionResponse": {"id": ID, "name": "weather", "response": {"t": 12}}}]},
        {"role": "model", "parts": [{"text": "It is 12 degrees."}]},
    ], (WEATHER[0], Message("tool", '{"t": 12}', tool_call_id=ID, name="weather"), WEATHER[2])),
    "responses": ([
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"type": "message", "id": "msg_1", "role": "assistant", "content": [
            {"type": "output_text", "text": "Let me look.", "annotations": []}]},
        {"type": "function_call", "id": "fc_1", "call_id": ID, "name": "weather", "arguments": TEXT},
        {"type": "function_call_output", "call_id": ID, "output": "12 degrees"},
        {"type": "message", "role": "assistant", "content": [
            {"type": "output_text", "text": "It is 12 degrees."}]},
    ], APART),
    "responses, a tool of the server": ([
        {"role": "assistant", "content": "Let me look."},
        {"type": "mcp_call", "id": ID, "name": "weather", "arguments": TEXT, "output": "12 degrees"},
        {"role": "assistant", "content": "It is 12 degrees."},
    ], (*APART[:2], Message("tool", "12 degrees", tool_call_id=ID, name="weather"), APART[-1])),
    "sharegpt": ([
        {"from": "gpt", "value": "Let me look."},
        {"from": "function_call", "value": json.dumps({"name": "weather", "arguments": ARGUMENTS})},
        {"from": "observation", "value": "12 degrees"},
        {"from": "gpt", "value": "It is 12 degrees."},
    ], (APART[0], Message("assistant", "", (ToolCall("", "weather", TEXT),)), Message("tool", "12 degrees"),
        APART[-1])),
    "vercel": ([
        {"role": "assistant", "content": [{"type": "text", "text": "Let me look."}, {
            "type": "tool-call", "toolCallId": ID, "toolName": "weather", "input": ARGUMENTS}]},
        {"role": "tool", "content": [{"type": "tool-result", "toolCallId": ID, "toolName": "weather",
                                      "output": {"type": "text", "value": "12 degrees"}}]},
        {"role": "assistant", "content": "It is 12 degrees."},
    ], (WEATHER[0], Message("tool", '{"type": "text", "value": "12 degrees"}', tool_call_id=ID), WEATHER[2])),
    "inspect": ([
        {"role": "assistant", "content": [{"type": "reasoning", "reasoning": "Hm."}, {
            "type": "text", "text": "Let me look."}], "tool_calls": [
            {"id": ID, "function": "weather", "arguments": ARGUMENTS, "type": "function"}]},
        {"role": "tool", "content": "12 degrees", "tool_call_id": ID, "function": "weather"},
        {"role": "assistant", "content": "It is 12 degrees.", "source": "generate"},
    ], WEATHER),
}  # fmt: skip


@pytest.mark.parametrize(("messages", "expected"), FORMS.values(), ids=FORMS)
def test_an_agents_run_is_the_same_in_every_form(messages: list[Any], expected: tuple[Message, ...]) -> None:
    asked = {"type": "human", "content": "How warm is it?"}
    for row in ({"prompt": "How warm is it?", "response": messages}, {"response": [asked, *messages]}):
        task = read_task(row, default_id="1")
        assert task.prompt == (Message("user", "How warm is it?"),)
        assert task.candidates == (expected if len(expected) > 1 else expected[0].content,)
    assert read_task({"prompt": [asked, *messages], "response": "x"}, default_id="1").prompt[1:] == expected


CHOICE = {"index": 0, "message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}
TEXT_BLOCK = [{"type": "text", "text": "Hello."}]
OUTPUT = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]}


@pytest.mark.parametrize(
    "answer",
    [
        {"id": "chatcmpl-1", "object": "chat.completion", "choices": [CHOICE]},
        {"id": "cmpl-1", "object": "text_completion", "choices": [{"text": "Hello.", "index": 0}]},
        {"id": "resp_1", "object": "response", "output": [{"type": "reasoning", "summary": []}, OUTPUT]},
        {"id": "msg_1", "type": "message", "role": "assistant", "content": TEXT_BLOCK, "usage": {}},
        {"candidates": [{"content": {"role": "model", "parts": [{"text": "Hello."}]}, "index": 0}]},
        {"model": "llama3", "message": {"role": "assistant", "content": "Hello."}, "done": True},
        {"role": "assistant", "content": TEXT_BLOCK},
    ],
)
def test_the_answer_of_a_server_is_its_text(answer: dict[str, Any]) -> None:
    task = read_task({"prompt": "Hi.", "responses": [answer, "Ho."]}, default_id="1")
    assert task.candidates == ("Hello.", "Ho.")


@pytest.mark.parametrize(
    "request_",
    [
        {"model": "m", "messages": [
            {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi."}]},
        {"model": "m", "system": "Be brief.", "messages": [{"role": "user", "content": "Hi."}]},
        {"instructions": "Be brief.", "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Hi."}]}]},
        {"systemInstruction": [{"text": "Be brief."}], "contents": [{"parts": [{"text": "Hi."}]}]},
        [{"type": "system", "content": "Be brief."}, {"type": "human", "content": "Hi."}],
    ],
)  # fmt: skip
def test_the_request_to_a_server_is_its_conversation(request_: Any) -> None:
    task = read_task({"prompt": request_, "response": "Ho."}, default_id="1")
    assert task.prompt == (Message("system", "Be brief."), Message("user", "Hi."))


def test_the_answer_of_a_run_that_ends_with_a_tool_is_no_tools_result() -> None:
    (run,) = read_task({"prompt": "p", "response": FORMS["openai"][0][:2]}, default_id="1").candidates
    assert final_text(run) == "Let me look."
    assert final_text(WEATHER) == "It is 12 degrees."


def test_an_image_is_refused_in_one_line() -> None:
    for part in ({"type": "image_url", "image_url": {"url": "u"}}, {"inlineData": {"data": "x"}}):
        with pytest.raises(RowError, match=r"^prompt, message 1, content is missing, not a text"):
            read_task({"prompt": [{"role": "user", "content": [part]}], "response": "x"}, default_id="1")


@pytest.mark.parametrize(
    "message", [{"role": ["user"], "content": "x"}, {"type": {}}, {"type": 7, "content": "x"}, {3: 4}]
)
def test_hostile_roles_and_types_are_refused_in_one_line(message: Any) -> None:
    for row in ({"prompt": [message], "response": "x"}, {"prompt": "p", "response": [message]}):
        with pytest.raises(
            RowError, match=r"^\w+( A)?, message 1: not a chat message with a role of"
        ) as raised:
            read_task(row, default_id="1")
        assert "\n" not in str(raised.value)
