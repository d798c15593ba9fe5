"""The tools of MCP servers: programs that speak over standard input and output, and HTTP servers.

A connection carries one call at a time, so a call that exceeds a limit ends its own connection and no other
call. At most `CONNECTIONS` of a server are open. No more of a message is kept than the limit of an answer,
which a client for trusted servers need not promise.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import shlex
import signal
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tirjudge_environments.quoting import cut_middle, quote_control_tokens
from tirjudge_environments.tools.base import ToolUnavailable
from tirjudge_environments.types import ToolSpec
from tirjudge_sandbox import Execution, Limits, Status

CONNECTIONS = 4
"""Calls of one server at once; further calls wait, which does not count as their time."""
_PROTOCOL = "2025-06-18"
_START_SECONDS = 60.0
"""Seconds for a server to start and list tools; a package runner may download the server first."""
_END_SECONDS = 2.0
_MOST_PAGES = 100
_MOST_PARTS = 1000
"""Parts of content in one answer of a tool."""
_LONGEST_DESCRIPTION = 2000
_LONGEST_REASON = 300
_EMPTY_LINE = re.compile(rb"\r?\n\r?\n")
_ENVELOPE_BYTES = 1 << 16
"""Room for what surrounds an answer in its message."""
_ids = itertools.count(1)


class _Failed(Exception):
    """The connection is of no further use, for a reason that says nothing about the call."""


class _TooLong(Exception):
    """A message exceeds the limit of an answer."""


class _Refusal(Exception):
    """The server answered with an error of the protocol."""


class _Connection(Protocol):
    async def exchange(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a message and return the answer with its id; empty for a message without an id.

        Raises _Failed and _TooLong, and _Refusal for arguments that cannot be sent.
        """

    async def close(self, *, at_once: bool) -> None:
        """End the connection, without grace for the server if `at_once`."""


class McpServer:
    """An MCP server and its tools. An async context manager; opening raises ToolUnavailable."""

    def __init__(self, address: str, limits: Limits, authorization: str = "") -> None:
        """`authorization` is the header of this name that a URL gets; empty for none."""
        self.address, self.limits, self._authorization = address, limits, authorization
        self.specs: tuple[ToolSpec, ...] = ()
        """All tools of the server, once it is open."""
        self._free = asyncio.Semaphore(CONNECTIONS)
        self._idle: list[_Connection] = []

    async def __aenter__(self) -> McpServer:
        try:
            async with asyncio.timeout(_START_SECONDS):
                connection = await self._connect()
                self._idle.append(connection)
                self.specs = tuple([spec async for spec in self._listed(connection)])
        except (_Failed, _Refusal, _TooLong, TimeoutError) as error:
            await self.__aexit__()
            reason = str(error) or f"it did not answer within {_START_SECONDS:g} s"
            raise ToolUnavailable(f"--tool {self.address}: {reason}") from None
        return self

    async def __aexit__(self, *_: object) -> None:
        while self._idle:
            await self._idle.pop().close(at_once=False)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Execution:
        """Call a tool of the server, see `Tool.call`."""
        async with self._free:
            started = time.monotonic()
            try:
                connection = self._idle.pop() if self._idle else await self._within_start(self._connect())
            except _Failed as error:
                return _ended(Status.SANDBOX_FAILED, started, detail=f"{self.address}: {error}")
            started, usable = time.monotonic(), False
            try:
                async with asyncio.timeout(self.limits.wall_seconds):
                    found = await _ask(connection, "tools/call", {"name": name, "arguments": dict(arguments)})
                usable = True
                # Checking very many parts would hold up all other dialogues.
                if isinstance(found, Mapping) and len(found.get("content") or ()) > _MOST_PARTS:
                    return _ended(Status.OUTPUT_LIMIT, started)
                return self._execution(_Result.model_validate(found), started)
            except TimeoutError:
                return _ended(Status.WALL_LIMIT, started)
            except _TooLong:
                return _ended(Status.OUTPUT_LIMIT, started)
            except _Refusal as error:
                usable = True
                return _ended(Status.ERROR, started, stderr=str(error))
            except (_Failed, ValidationError) as error:
                reason = "it answered with no result of a tool" if isinstance(error, ValueError) else error
                return _ended(Status.SANDBOX_FAILED, started, detail=f"{self.address}: {reason}")
            finally:
                if usable:
                    self._idle.append(connection)
                else:
                    await asyncio.shield(connection.close(at_once=True))

    def _execution(self, result: _Result, started: float) -> Execution:
        content = result.text.encode(errors="replace")
        kept, most = content.decode(), self.limits.output_bytes
        if len(content) > most:
            kept = content[:most].decode(errors="ignore")
            cut = {"truncated": True, "kept_bytes": most, "cut_bytes": len(content) - most}
            return _ended(Status.OUTPUT_LIMIT, started, stdout=kept, **cut)
        if result.is_error:
            return _ended(Status.ERROR, started, stderr=kept)
        return _ended(Status.OK, started, stdout=kept)

    async def _within_start(self, opening: Any) -> _Connection:
        try:
            async with asyncio.timeout(_START_SECONDS):
                connection: _Connection = await opening
                return connection
        except (_Refusal, _TooLong, TimeoutError) as error:
            raise _Failed(f"it does not start: {str(error) or 'no answer'}") from None

    async def _connect(self) -> _Connection:
        most = 2 * self.limits.output_bytes + _ENVELOPE_BYTES
        connection: _Connection
        if self.address.startswith("mcp:"):
            connection = await _Program.open(self.address.removeprefix("mcp:"), most)
        else:
            connection = _Http(self.address, most, self._authorization)
        try:
            about = {"name": "tirjudge", "version": "1"}
            wanted = {"protocolVersion": _PROTOCOL, "capabilities": {}, "clientInfo": about}
            await _ask(connection, "initialize", wanted)
            await connection.exchange({"jsonrpc": "2.0", "method": "notifications/initialized"})
        except BaseException:
            await asyncio.shield(connection.close(at_once=True))
            raise
        return connection

    @staticmethod
    async def _listed(connection: _Connection) -> AsyncIterator[ToolSpec]:
        cursor: dict[str, Any] = {}
        for _ in range(_MOST_PAGES):
            try:
                page = _Page.model_validate(await _ask(connection, "tools/list", cursor))
            except ValidationError:
                raise _Failed("it does not list its tools as MCP says") from None
            for tool in page.tools:
                yield tool.spec
            if not page.next_cursor:
                return
            cursor = {"cursor": page.next_cursor}


class McpTool:
    """One tool of an open server."""

    def __init__(self, server: McpServer, spec: ToolSpec) -> None:
        self._server, self.spec, self.limits = server, spec, server.limits

    async def call(
        self, arguments: Mapping[str, Any], *, bindings: Mapping[str, Any] | None = None, seed: int = 0
    ) -> Execution:
        return await self._server.call(self.spec.name, arguments)


async def _ask(connection: _Connection, method: str, parameters: Mapping[str, Any]) -> Any:
    """Return the result of a request. Raises _Refusal, and as `exchange` does."""
    request = {"jsonrpc": "2.0", "id": next(_ids), "method": method, "params": dict(parameters)}
    answer = await connection.exchange(request)
    if "result" in answer:
        return answer["result"]
    error = answer.get("error")
    said = str(error.get("message")) if isinstance(error, dict) else "it answered without a result"
    raise _Refusal(cut_middle(said.encode(errors="replace").decode(), _LONGEST_REASON))


def _ended(status: Status, started: float, **fields: Any) -> Execution:
    return Execution(status=status, wall_seconds=time.monotonic() - started, **fields)


class _Program:
    """A server that is a program of this machine."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process, self._said = process, b""
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def open(cls, command: str, most_bytes: int) -> _Program:
        """Start the program; raises _Failed."""
        pipe = asyncio.subprocess.PIPE
        try:
            words = shlex.split(command)
            # A session is a process group too, which `close` can kill as a whole.
            process = await asyncio.create_subprocess_exec(
                *words, stdin=pipe, stdout=pipe, stderr=pipe, limit=most_bytes, start_new_session=True
            )
        except (OSError, ValueError) as error:
            raise _Failed(f"it cannot be started ({error})") from None
        return cls(process)

    async def exchange(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        await self._send(message)
        while "id" in message:
            said = await self._received()
            if "method" not in said and said.get("id") == message["id"]:
                return said
            if "method" in said and "id" in said:
                await self._send(_reply(said))
        return {}

    async def close(self, *, at_once: bool) -> None:
        with suppress(OSError, RuntimeError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        if not at_once:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), _END_SECONDS)
        # Also kill processes left behind.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._listening.cancel()
        # A process that holds the pipes open would otherwise keep them, and `wait`, open.
        self._process._transport.close()  # type: ignore[attr-defined]
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), _END_SECONDS)

    async def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(_encoded(message) + b"\n")
            await self._process.stdin.drain()
        except (OSError, RuntimeError):
            raise _Failed(self._end()) from None

    async def _received(self) -> Mapping[str, Any]:
        assert self._process.stdout is not None
        try:
            line = await self._process.stdout.readuntil()
        except asyncio.LimitOverrunError:
            raise _TooLong("it sent a message that is too long") from None
        except (asyncio.IncompleteReadError, OSError):
            raise _Failed(self._end()) from None
        return _parsed(line)

    async def _listen(self) -> None:
        """Keep the end of what the program says on standard error."""
        assert self._process.stderr is not None
        # Read all the time, since a full pipe would block the server.
        while said := await self._process.stderr.read(1 << 12):
            self._said = (self._said + said)[-_LONGEST_REASON:]

    def _end(self) -> str:
        lines = self._said.decode(errors="replace").strip().splitlines()
        return f"it ended ({lines[-1].strip()})" if lines else "it ended"


class _Http:
    """A server at a URL (streamable HTTP)."""

    def __init__(self, url: str, most_bytes: int, authorization: str) -> None:
        try:
            import httpx
        except ImportError:
            raise _Failed("a URL needs httpx: pip install httpx") from None
        # Calls have a limit of their own.
        self._client, self._url, self._most_bytes = httpx.AsyncClient(timeout=None), url, most_bytes
        self._headers = {
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            "mcp-protocol-version": _PROTOCOL,
        }
        if authorization:
            self._headers["authorization"] = authorization

    async def exchange(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        import httpx

        try:
            async with self._client.stream(
                "POST", self._url, content=_encoded(message), headers=self._headers
            ) as response:
                if response.is_error or response.is_redirect:
                    raise _Failed(f"it answered with HTTP {response.status_code}")
                if session := response.headers.get("mcp-session-id"):
                    self._headers["mcp-session-id"] = session
                if "id" not in message:
                    return {}
                events = response.headers.get("content-type", "").startswith("text/event-stream")
                async for said in self._messages(response, events):
                    if "method" not in said and said.get("id") == message["id"]:
                        return said
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _Failed(f"it cannot be reached ({str(error) or type(error).__name__})") from None
        raise _Failed("it did not answer the request")

    async def close(self, *, at_once: bool) -> None:
        if not at_once and "mcp-session-id" in self._headers:
            with suppress(Exception):
                await self._client.delete(self._url, headers=self._headers, timeout=_END_SECONDS)
        await self._client.aclose()

    async def _messages(self, response: Any, events: bool) -> AsyncIterator[Mapping[str, Any]]:
        """Yield the messages of an answer: its whole body, or the data of every event as it arrives."""
        size, rest = 0, bytearray()
        async for chunk in response.aiter_bytes():
            size += len(chunk)
            if size > self._most_bytes:
                raise _TooLong("its answer is too long")
            # The empty line that ends an event may begin in the chunk before. Nothing else is searched twice,
            # because a server may send single bytes.
            start = max(0, len(rest) - 3)
            rest += chunk
            while events and (end := _EMPTY_LINE.search(rest, start)):
                lines, start = bytes(rest[: end.start()]).splitlines(), 0
                del rest[: end.end()]
                yield _parsed(b"\n".join(line[5:] for line in lines if line.startswith(b"data:")))
        if not events:
            yield _parsed(bytes(rest))


def _encoded(message: Mapping[str, Any]) -> bytes:
    """Return a message as JSON in ASCII. Raises _Refusal for arguments of a call that JSON cannot hold."""
    try:
        return json.dumps(message, allow_nan=False).encode()
    except (ValueError, RecursionError):  # no finite number, or nested too deeply
        raise _Refusal("ValueError: the arguments cannot be sent as JSON") from None


def _parsed(line: bytes) -> Mapping[str, Any]:
    """Return a message; empty for any other line, since programs may print anything."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _reply(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a request of a server, which can only ask whether the judge is there."""
    if request["method"] == "ping":
        return {"jsonrpc": "2.0", "id": request["id"], "result": {}}
    error = {"code": -32601, "message": "a judge only calls tools"}
    return {"jsonrpc": "2.0", "id": request["id"], "error": error}


class _Said(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Resource(_Said):
    text: str | None = None


class _Part(_Said):
    type: str
    text: str | None = None
    resource: _Resource = _Resource()

    @property
    def shown(self) -> str:
        shown = self.text if self.type == "text" else self.resource.text
        return f"({self.type[:64]} left out)" if shown is None else shown


class _Result(_Said):
    """The answer of a tool."""

    content: list[_Part] = []
    structured: Any = Field(default=None, alias="structuredContent")
    is_error: bool = Field(default=False, alias="isError")

    @property
    def text(self) -> str:
        if not self.content and self.structured is not None:
            return json.dumps(self.structured)
        return "\n".join(part.shown for part in self.content)


class _Listed(_Said):
    """A tool, as a server describes it."""

    name: str
    description: str | None = None
    schema_: dict[str, Any] = Field(default_factory=dict, alias="inputSchema")

    @property
    def spec(self) -> ToolSpec:
        """The tool as a judge is shown it: nothing in it reads as a token of a chat template."""
        about = quote_control_tokens(cut_middle(self.description or "", _LONGEST_DESCRIPTION))
        # Not in ASCII, in which some tokens would be escaped.
        schema = quote_control_tokens(json.dumps(self.schema_, ensure_ascii=False))
        return ToolSpec(self.name, about, json.loads(schema))


class _Page(_Said):
    tools: list[_Listed]
    next_cursor: str | None = Field(default=None, alias="nextCursor")
