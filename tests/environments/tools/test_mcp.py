"""Tools of real MCP servers: their answers within the limits, and everything that a server may do wrong."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest
from pydantic import ValidationError

from tests.environments.tools.mcp_server import CORPUS, FORGED
from tests.rows import every
from tirjudge_environments.testing import fixed_sandbox
from tirjudge_environments.tools import open_tools
from tirjudge_environments.tools.base import Tool, ToolSettings, ToolUnavailable
from tirjudge_sandbox import Execution, Status

SERVER, SDK_SERVER = (Path(__file__).with_name(f"{name}_server.py") for name in ("mcp", "sdk"))
COMMAND, SDK_COMMAND = (f"mcp:{shlex.join([sys.executable, str(server)])}" for server in (SERVER, SDK_SERVER))


def settings(**given: object) -> ToolSettings:
    return ToolSettings.model_validate({"servers": (COMMAND,), **given})


async def called(name: str, arguments: dict[str, object] | None = None, **given: object) -> Execution:
    async with open_tools(settings(**given), fixed_sandbox()) as tools:
        return await by_name(tools, name).call(arguments or {})


def by_name(tools: tuple[Tool, ...], name: str) -> Tool:
    return next(tool for tool in tools if tool.spec.name == name)


def servers() -> list[psutil.Process]:
    """The servers of this process that still run."""
    children = psutil.Process().children(recursive=True)
    return [one for one in children if one.status() != psutil.STATUS_ZOMBIE and str(SERVER) in one.cmdline()]


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(params=every(2, ["sessions", "stateless"]))
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, SDK_SERVER, request.param, str(port)])
    try:
        deadline = time.monotonic() + 120
        while not listens(port):
            assert process.poll() is None, "the server has ended"
            assert time.monotonic() < deadline, "the server does not listen"
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


async def test_a_tool_is_described_and_answers() -> None:
    async with open_tools(settings(), fixed_sandbox()) as tools:
        assert [tool.spec.name for tool in tools] == ["search", "hang", "flood", "endless", "forge", "crash"]
        search = tools[0]
        assert search.spec.description.splitlines()[0] == "Search a corpus of facts."
        assert search.spec.parameters["properties"]["query"]["type"] == "string"
        found = await search.call({"query": "Capital of Australia"})
        assert (found.status, found.stdout) == (Status.OK, CORPUS["capital"])
        failed = await search.call({"query": "Mars"})
        assert (failed.status, failed.stdout) == (Status.ERROR, "")
        assert failed.stderr == "nothing is known\nabout 'Mars'"
        assert (await by_name(tools, "forge").call({})).stdout == FORGED
    assert not servers()


async def check_sdk_server(address: str) -> None:
    # Only the call that hangs has a short limit: on a busy machine, the others may take seconds.
    patient = ToolSettings(servers=(address,), wall_seconds=120.0, output_bytes=1000)
    async with open_tools(patient, fixed_sandbox()) as tools:
        search, _, flood = tools
        assert search.spec.parameters["properties"]["query"]["type"] == "string"
        found = await search.call({"query": "prime"})
        assert (found.status, found.stdout) == (Status.OK, "51 is no prime.")
        failed = await search.call({"query": "Mars"})
        assert failed.status is Status.ERROR
        assert "nothing is known about 'Mars'" in failed.stderr
        wrong = await search.call({"q": 1})
        assert wrong.status is Status.ERROR
        assert "query" in wrong.stderr
        assert (await flood.call({"size": 1_000_000})).status is Status.OUTPUT_LIMIT
        assert (await search.call({"query": "prime"})).status is Status.OK
    async with open_tools(patient.model_copy(update={"wall_seconds": 2.0}), fixed_sandbox()) as tools:
        assert (await by_name(tools, "hang").call({})).status is Status.WALL_LIMIT


@pytest.mark.slow
async def test_a_server_of_the_sdk_over_pipes() -> None:
    await check_sdk_server(SDK_COMMAND)


async def test_a_server_of_the_sdk_over_http(url: str) -> None:
    await check_sdk_server(url)


@pytest.mark.slow
async def test_a_hanging_call_ends_at_its_limit_and_costs_no_other_call() -> None:
    async with open_tools(settings(wall_seconds=2.0), fixed_sandbox()) as tools:
        hang, search = by_name(tools, "hang"), by_name(tools, "search")
        calls = [hang.call({}), *(search.call({"query": "prime"}) for _ in range(6)), hang.call({})]
        first, *others, last = await asyncio.gather(*calls)
        assert (first.status, last.status) == (Status.WALL_LIMIT, Status.WALL_LIMIT)
        assert 2.0 <= first.wall_seconds < 4.0
        assert {(one.status, one.stdout) for one in others} == {(Status.OK, CORPUS["prime"])}
    assert not servers()


@pytest.mark.parametrize("size", [1001, 30_000_000])
async def test_a_flood_is_stopped_and_the_next_call_answers(size: int) -> None:
    used = psutil.Process().memory_info().rss
    async with open_tools(settings(output_bytes=1000), fixed_sandbox()) as tools:
        stopped = await by_name(tools, "flood").call({"size": size})
        assert stopped.status is Status.OUTPUT_LIMIT
        assert len(stopped.stdout) <= 1000
        assert (await by_name(tools, "search").call({"query": "prime"})).stdout == CORPUS["prime"]
    assert psutil.Process().memory_info().rss - used < 10 << 20
    assert not servers()


async def test_a_message_without_an_end_is_stopped() -> None:
    async with open_tools(settings(allowed=("endless",)), fixed_sandbox()) as (endless,):
        for _ in range(2):
            assert (await endless.call({})).status is Status.OUTPUT_LIMIT


async def test_an_answer_of_the_limit_is_whole() -> None:
    whole = await called("flood", {"size": 1000}, output_bytes=1000)
    assert (whole.status, whole.stdout) == (Status.OK, "x" * 1000)


async def test_a_server_that_ends_is_a_failure_of_the_server_and_is_started_again() -> None:
    async with open_tools(settings(), fixed_sandbox()) as tools:
        down = await by_name(tools, "crash").call({})
        assert down.status is Status.SANDBOX_FAILED
        assert down.detail.startswith(COMMAND)
        assert (await by_name(tools, "search").call({"query": "prime"})).status is Status.OK


async def test_a_cancelled_call_ends_its_server() -> None:
    async with open_tools(settings(), fixed_sandbox()) as tools:
        call = asyncio.create_task(by_name(tools, "hang").call({}))
        await asyncio.sleep(0.5)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert not servers()


async def test_only_allowed_tools_are_offered() -> None:
    async with open_tools(settings(allowed=("forge", "search")), fixed_sandbox()) as tools:
        assert [tool.spec.name for tool in tools] == ["search", "forge"]
    with pytest.raises(ToolUnavailable, match="no tool 'find' is offered; there are search, hang"):
        async with open_tools(settings(allowed=("find",)), fixed_sandbox()):
            pass
    assert not servers()


async def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ToolUnavailable, match="the name 'search' of a tool: two tools have it"):
        async with open_tools(settings(servers=(COMMAND, COMMAND)), fixed_sandbox()):
            pass
    assert not servers()


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("/no/such/program", "it cannot be started"),
        ("'unclosed", "it cannot be started"),
        ("sh -c 'echo no token >&2; exit 1'", r"it ended \(no token\)"),
        ("""sh -c 'read line; echo \\{\\"id\\":null,\\"error\\":1\\}; echo noise; exit 0'""", "it ended"),
    ],
)
async def test_a_server_that_does_not_start_is_one_line(command: str, reason: str) -> None:
    with pytest.raises(ToolUnavailable, match=reason) as raised:
        async with open_tools(settings(servers=(f"mcp:{command}",)), fixed_sandbox()):
            pass
    assert "\n" not in str(raised.value)


async def test_a_url_that_answers_nothing_is_one_line() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/mcp"
    with pytest.raises(ToolUnavailable, match="it cannot be reached"):
        async with open_tools(ToolSettings(servers=(url,)), fixed_sandbox()):
            pass


@pytest.mark.parametrize("address", ["mcp:", "mcp: ", "python server.py", "ftp://x"])
def test_an_address_is_a_command_or_a_url(address: str) -> None:
    with pytest.raises(ValueError, match=r"mcp:COMMAND or a URL"):
        ToolSettings(servers=(address,))


async def test_noise_requests_and_odd_answers_of_a_server_do_no_harm(tmp_path: Path) -> None:
    """A server that sends lines that are none, requests, control tokens, images and half a character."""
    script = tmp_path / "server.py"
    script.write_text(
        """
import json, sys
tool = {"name": "odd", "description": "Odd <|im_end|>\\n" + "y" * 9000,
        "inputSchema": {"type": "object", "title": "<|im_start|>", "description": "<\uff5cUser\uff5c>"}}
answers = iter([
    {"content": [{"type": "text", "text": "half \\ud800"}, {"type": "image", "data": "", "mimeType": "x"}]},
    {"content": [], "structuredContent": {"found": 3}},
    {"content": "none"},
])
def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "initialize":
        print("a log line", flush=True)
        print("[" * 100000, flush=True)
        say(id="p", method="ping")
        assert json.loads(sys.stdin.readline())["result"] == {}
        say(id="s", method="sampling/createMessage", params={})
        assert json.loads(sys.stdin.readline())["error"]["code"] == -32601
        say(method="notifications/message", params={})
        say(id=asked["id"], result={})
    elif asked.get("method") == "tools/list":
        page = {"tools": [tool]} if "cursor" in asked["params"] else {"tools": [], "nextCursor": "2"}
        say(id=asked["id"], result=page)
    elif asked.get("method") == "tools/call":
        say(id=asked["id"] + 1000, result={"content": [{"type": "text", "text": "of another call"}]})
        say(id=asked["id"], result=next(answers))
"""
    )
    async with open_tools(settings(servers=(f"mcp:{sys.executable} {script}",)), fixed_sandbox()) as (odd,):
        assert odd.spec.description.startswith("Odd < |im_end|>\n")
        assert len(odd.spec.description) < 2100
        assert odd.spec.parameters["title"] == "< |im_start|>"
        assert odd.spec.parameters["description"] == "< \uff5cUser\uff5c>"
        first = await odd.call({})
        assert (first.status, first.stdout) == (Status.OK, "half ?\n(image left out)")
        assert (await odd.call({})).stdout == '{"found": 3}'
        bad = await odd.call({})
        assert bad.status is Status.SANDBOX_FAILED
        assert "no result of a tool" in bad.detail


class Guarded(BaseHTTPRequestHandler):
    """An MCP server with one tool, which answers only requests with its header."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        said = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "serverInfo": {"name": "g", "version": "1"},
        }
        if asked["method"] == "tools/list":
            said = {"tools": [{"name": "search", "inputSchema": {"type": "object"}}]}
        elif asked["method"] == "tools/call":
            said = {"content": [{"type": "text", "text": "Canberra"}]}
        body = json.dumps({"jsonrpc": "2.0", "id": asked.get("id"), "result": said}).encode()
        self.send_response(200 if self.headers["authorization"] == SECRET else 401)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


SECRET = "Bearer a-secret-of-tests"


@contextmanager
def guarded() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Guarded)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/mcp"
    server.shutdown()
    server.server_close()
    thread.join()


async def test_a_url_gets_the_header_of_its_host_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCH_HEADER", f"{SECRET}\n")
    with guarded() as url:
        known = ToolSettings(servers=(url,), authorization={"127.0.0.1": "SEARCH_HEADER"})
        async with open_tools(known, fixed_sandbox()) as (search,):
            assert (await search.call({})).stdout == "Canberra"
        with pytest.raises(ToolUnavailable, match="it answered with HTTP 401"):
            async with open_tools(ToolSettings(servers=(url,)), fixed_sandbox()):
                pass
        assert known.authorization_for("http://localhost:1/mcp") == ""
        for value in ("", "two\nlines", "not \u00e4scii"):
            monkeypatch.setenv("SEARCH_HEADER", value)
            with pytest.raises(ToolUnavailable, match="the variable SEARCH_HEADER holds no header") as raised:
                async with open_tools(known, fixed_sandbox()):
                    pass
            assert not value or value not in str(raised.value)
    for wrong in (
        {"servers": ("https://me:secret@example.com/mcp",)},
        {"servers": ("https://example.com/mcp",), "authorization": {"example.org": "X"}},
    ):
        with pytest.raises(ValidationError, match=r"holds a password|no tool at this host"):
            ToolSettings.model_validate(wrong)


@pytest.mark.parametrize("server", ["pipes", "http"])
async def test_arguments_that_no_message_can_hold_are_an_error_of_the_judge(
    monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    monkeypatch.setenv("SEARCH_HEADER", SECRET)
    with guarded() as url:
        over_http = ToolSettings(servers=(url,), authorization={"127.0.0.1": "SEARCH_HEADER"})
        async with open_tools(over_http if server == "http" else settings(), fixed_sandbox()) as tools:
            nested: list[object] = []
            for _ in range(2000):
                nested = [nested]
            for query in (float("nan"), nested):
                refused = await tools[0].call({"query": query})
                assert refused.status is Status.ERROR
                assert refused.stderr == "ValueError: the arguments cannot be sent as JSON"
            found = await tools[0].call({"query": "capital of \ud800"})
            assert found.status is Status.OK
            assert "Canberra" in found.stdout
