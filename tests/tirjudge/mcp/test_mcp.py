"""The MCP server as an agent uses it: through the official SDK's client, over both transports."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests.command import TIRJUDGE
from tests.sandbox.serving import serving as sandbox_serving
from tests.served_command import ServedCommand
from tests.tirjudge.endpoint_server import EndpointServer, chat, serving
from tirjudge import Judge
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.mcp.server import create_server
from tirjudge_environments import Context
from tirjudge_sandbox import Limits
from tirjudge_sandbox.local import LocalSandbox

TOKEN = "a-token-for-tests-only"

# The first three come from mcp-run-python's own tests.
ANSWERS = [
    (
        {"python_code": "x = 4\nprint(f'{x=}')\nx"},
        "<status>success</status>\n<output>\nx=4\n</output>\n<return_value>\n4\n</return_value>",
    ),
    (
        {"python_code": "import numpy\nnumpy.array([1, 2, 3])"},
        "<status>success</status>\n<return_value>\n[\n  1,\n  2,\n  3\n]\n</return_value>",
    ),
    (
        {"python_code": "print(unknown)"},
        "<status>run-error</status>\n<error>\nTraceback (most recent call last):\n"
        '  File "main.py", line 1, in <module>\n    print(unknown)\n          ^^^^^^^\n'
        "NameError: name 'unknown' is not defined\n\n</error>",
    ),
    (
        {"python_code": "given['a'] + [more]", "global_variables": {"given": {"a": [1]}, "more": None}},
        "<status>success</status>\n<return_value>\n[\n  1,\n  null\n]\n</return_value>",
    ),
]


@contextmanager
def http_server(*arguments: str, **environment: str) -> Iterator[str]:
    """Start a separate server and yield its URL."""
    with ServedCommand("mcp", "--transport", "http", *arguments, **environment) as server:
        yield server.url
        assert server.end()[0] == 0


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with http_server("--model", "m", "--base-url", "http://127.0.0.1:9/v1") as found:
        yield found


async def text_of(client: Client, **arguments: object) -> str:
    result = await client.call_tool("run_python_code", arguments)
    assert not result.is_error
    (content,) = result.content
    return content.text


async def test_tools_over_standard_input_and_output() -> None:
    async with Client(
        StdioServerParameters(
            command=TIRJUDGE, args=["mcp", "--model", "m", "--base-url", "http://127.0.0.1:9/v1"]
        )
    ) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {"run_python_code", "judge"}
        run = tools["run_python_code"]
        assert run.title == "Run Python code"
        assert run.description.startswith(
            "Tool to execute Python code and return stdout, stderr, and return value."
        )
        assert run.input_schema["required"] == ["python_code"]
        answer = tools["judge"].output_schema
        assert answer["properties"]["scores"]["description"].startswith(
            "One score per response in the format"
        )
        view = answer["$defs"]["JudgedView"]["properties"]
        assert "Index of a response to its score" in view["scores"]["description"]
        assert "in the letters of the row" in view["verdict"]["description"]
        for arguments, answer in ANSWERS:
            assert await text_of(client, **arguments) == answer


@pytest.mark.slow
def test_a_line_that_is_no_message_is_answered_under_its_id() -> None:
    command = [TIRJUDGE, "mcp", "--model", "m", "--base-url", "http://127.0.0.1:9/v1"]
    call = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "run_python_code"}}
    half = json.dumps({"id": 7, **call, "params": {"arguments": {"python_code": "'\ud83d'"}}})
    lines = [
        half,
        '{"jsonrpc": "2.0", "id": 8',
        '{"id": "\\ud83d", "x": "\\ud83d"}',
        "[" * 9999,
        '{"id": 9}',
        "{}",
    ]
    start = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "n", "version": "0"}}
    lines.append(json.dumps({"jsonrpc": "2.0", "id": 10, "method": "initialize", "params": start}))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin
        assert server.stdout
        server.stdin.write("".join(f"{line}\n" for line in lines))
        server.stdin.flush()
        answers = [json.loads(server.stdout.readline()) for _ in lines]
        server.stdin.close()
        assert server.wait(30) == 0
    assert [answer["id"] for answer in answers] == [7, None, None, None, 9, None, 10]
    codes = [answer["error"]["code"] for answer in answers[:-1]]
    assert codes == [-32700, -32700, -32700, -32700, -32600, -32600]
    assert "serverInfo" in answers[-1]["result"]


@pytest.mark.slow
async def test_an_optional_argument_may_be_null_and_an_answer_has_a_size(url: str) -> None:
    with serving() as endpoint:
        options = ("--model", "m", "--base-url", endpoint.url, "--max-characters", "2000")
        with http_server(*options) as short:
            async with Client(short) as client, Client(url) as usual:
                nulls = {"global_variables": None}
                assert "<return_value>\n1\n" in await text_of(usual, python_code="1", **nulls)
                long = {"python_code": "'x' * 900_000"}
                assert 70_000 < len(await text_of(usual, **long)) <= 75_000
                assert len(await text_of(client, **long)) <= 2000
                program = f"```python\nprint(len(response_a))  # {'x' * 3000}\n```\n"
                endpoint.script = lambda body: chat(
                    "<score>4</score>" if "x" * 3000 in str(body["messages"][1:]) else program
                )
                asked = {
                    "prompt": "p",
                    "responses": ["a"],
                    "pointwise": None,
                    "criteria": None,
                    "reference": None,
                }
                answer = await client.call_tool("judge", asked)
                assert answer.structured_content["scores"] == [4.0]
                assert len(answer.content[0].text) <= 2000
                several = await client.call_tool(
                    "judge", {**asked, "responses": ["a"] * 9, "pointwise": True}
                )
                assert several.structured_content["scores"] == [4.0] * 9
                assert several.structured_content["views"] == []
                assert "have no room in 2000 characters" in several.structured_content["detail"]


@pytest.mark.slow
async def test_tools_over_http(url: str) -> None:
    async with Client(url) as client:
        for arguments, answer in ANSWERS:
            assert await text_of(client, **arguments) == answer


async def test_calls_are_independent_and_concurrent(url: str) -> None:
    async with Client(url) as client, Client(url) as other:
        code = "seen = 'x' in globals()\nx = 1\nseen"
        answers = await asyncio.gather(*(text_of(one, python_code=code) for one in (client, other) * 4))
    assert set(answers) == {"<status>success</status>\n<return_value>\nfalse\n</return_value>"}


async def test_a_program_cannot_write_to_the_servers_transport(url: str) -> None:
    code = "import os\nos.write(1, b'</output><status>x</status>')\nNone"
    async with Client(url) as client:
        assert await text_of(client, python_code=code) == (
            "<status>success</status>\n<output>\n&lt;/output&gt;<status>x</status>\n</output>"
        )


@pytest.mark.parametrize(
    ("headers", "size", "status"),
    [({"host": "evil.example"}, 2, 403), ({"content-type": "text/plain"}, 2, 415), ({}, 17 << 20, 413)],
)
def test_the_sandbox_servers_guard_protects_it(
    url: str, headers: dict[str, str], size: int, status: int
) -> None:
    accepted = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    request = httpx.Request("POST", url, headers={**accepted, **headers}, content=b" " * size)
    with httpx.Client() as client:
        assert client.send(request).status_code == status


@pytest.mark.slow
async def test_callers_take_turns(tmp_path: Path) -> None:
    """One caller's waiting code does not delay another's, whose token is another."""
    tokens = ["first-caller-0123456789", "other-caller-0123456789"]
    (tmp_path / "tokens").write_text("\n".join(tokens))
    options = ("--token-file", str(tmp_path / "tokens"), "--backend-option", "capacity=1")
    with http_server(*options, "--model", "m", "--base-url", "http://127.0.0.1:9/v1") as url:
        async with AsyncExitStack() as stack:
            clients = []
            for token in tokens:
                headers = {"authorization": f"Bearer {token}"}
                http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=60))
                clients.append(
                    await stack.enter_async_context(Client(streamable_http_client(url, http_client=http)))
                )
            code = "import time; time.sleep(0.3)"
            first = [asyncio.create_task(text_of(clients[0], python_code=code)) for _ in range(8)]
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            await text_of(clients[1], python_code="1")
            assert sum(task.done() for task in first) <= 4
            await asyncio.gather(*first)


async def test_an_unavailable_judge_is_an_error_in_one_line(url: str) -> None:
    async with Client(url) as client:
        result = await client.call_tool("judge", {"prompt": "p", "responses": ["x", "y"]})
    assert result.is_error
    assert "\n" not in result.content[0].text
    assert "127.0.0.1:9" in result.content[0].text


@pytest.mark.slow
async def test_a_judge_with_a_token_gives_verdicts() -> None:
    options = (
        "--return-mode",
        "json",
        "--code-timeout",
        "1",
        "--prompts",
        "tir",
        "--model",
        "m",
        "--base-url",
    )
    with serving() as endpoint, http_server(*options, endpoint.url, TIRJUDGE_MCP_TOKEN=TOKEN) as url:
        async with (
            httpx2.AsyncClient() as stranger,
            httpx2.AsyncClient(headers={"authorization": f"Bearer {TOKEN}"}, timeout=100) as holder,
            Client(streamable_http_client(url, http_client=holder)) as client,
        ):
            assert (await stranger.post(url, json={})).status_code == 401
            assert await text_of(client, python_code="print('a')\n'b'") == (
                '{"status": "success", "output": ["a"], "return_value": "b"}'
            )
            stopped = await text_of(client, python_code="print('a', flush=True)\nwhile True: pass")
            assert stopped.startswith('{"status": "run-error", "output": ["a"], "error": "TimeoutError: ')
            await judge(client, endpoint)


@pytest.mark.slow
async def test_the_judges_programs_run_in_the_chosen_sandbox() -> None:
    with serving() as endpoint, sandbox_serving() as remote:
        chosen = ("--backend", "remote", "--prompts", "tir", "--model", "m", "--base-url", endpoint.url)
        with http_server(*chosen, TIRJUDGE_SANDBOX_URL=remote.url) as url:
            async with Client(url) as client:
                await judge(client, endpoint)
        # The program, and its second run for the evidence of the verdict.
        assert 'tirjudge_programs_total{status="ok"} 2.0' in remote.metrics()


async def judge(client: Client, endpoint: EndpointServer) -> None:
    """Check the verdict and the programs behind it."""
    program = "print(len(response_a) > len(response_b))"
    endpoint.answers(chat(f"```python\n{program}\n```\n"), chat("<preference>A</preference>"))
    asked = {"prompt": "Which is longer?", "responses": ["same", "size"]}
    answer = (await client.call_tool("judge", asked)).structured_content
    assert answer["verdict"] in ("A", "B")
    assert answer["choice"] == "AB".index(answer["verdict"])
    assert (answer["decided"], answer["views"][0]["evidence"]) == (False, "tie")
    (view,) = answer["views"]
    (shown,) = answer["programs"]
    assert (shown["source"], shown["output"]) == (f"{program}\n", "False")
    assert (shown["order"], shown["letters"]) == (view["order"], view["letters"])
    assert view["verdict_as_shown"] == "A"
    assert view["letters"]["A"] == view["order"][0] == answer["choice"]
    criteria = ["It is kind.", {"text": "It insults.", "weight": 3, "polarity": "negative"}]
    endpoint.script = lambda body: chat(f"<score>{2 if 'insults' in str(body) else 9}</score>")
    by_criteria = await client.call_tool("judge", {"prompt": "p", "responses": ["x"], "criteria": criteria})
    assert by_criteria.structured_content["scores"] == [0.25]
    assert [one["satisfied"] for one in by_criteria.structured_content["criteria"]] == [[1.0], [0.0]]
    assert (await client.call_tool("judge", {"prompt": "p", "responses": []})).is_error


async def test_judge_takes_conversations_of_any_form() -> None:
    seen: list[str] = []

    def watching(context: Context) -> str:
        seen.append(context.prompt.messages[-1].content)
        return "<score>4</score>"

    asked = [{"role": "user", "parts": [{"text": "How far?"}]}]
    run = [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "search", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "384,400 km"}]},
    ]
    with Judge(generator=ScriptedGenerator(watching), tools=False) as judge:
        async with LocalSandbox(capacity=1, preload=()) as box:
            server = create_server(box, judge, version="0", limits=Limits())
            async with Client(server) as client:
                answer = await client.call_tool("judge", {"prompt": asked, "responses": [run]})
                wrong = await client.call_tool("judge", {"prompt": [{"x": "y"}], "responses": ["a"]})
    assert not answer.is_error
    assert answer.structured_content["scores"] == [4.0]
    assert "result of search, id c]\n384,400 km" in seen[0]
    assert wrong.is_error
    assert "prompt, message 1: not a chat message" in wrong.content[0].text
