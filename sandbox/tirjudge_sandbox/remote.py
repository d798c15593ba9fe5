"""The remote backend, whose programs run on servers: `tirjudge sandbox serve`, or SandboxFusion's."""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import httpx
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_before_delay,
    wait_random_exponential,
)

from tirjudge_sandbox.base import (
    MIB,
    Execution,
    Isolation,
    Limits,
    Program,
    SandboxUnavailable,
    Status,
    has_large_files,
    validate,
)
from tirjudge_sandbox.http import fusion_messages as fusion
from tirjudge_sandbox.http import native_messages as native
from tirjudge_sandbox.workers.fair_queue import Backoff, FairQueue

URLS, TOKEN = "TIRJUDGE_SANDBOX_URL", "TIRJUDGE_SANDBOX_TOKEN"
"""Environment variables with the servers' URLs and their token."""
_DEFAULT_LIMITS = Limits()
_AHEAD = 2
"""Programs sent at once, in multiples of the servers' capacity, so that no server waits for the network."""
_backoff = wait_random_exponential(multiplier=0.1, max=2.0)
_FUSION_CAPACITY = 16
"""Programs sent at once to a SandboxFusion server, which does not report its capacity."""
_GATEWAY_FAILURES = frozenset({502, 503, 504})
_THIS_REQUEST = frozenset({400, 413, 422})
"""Statuses that concern one request: another program may succeed on the same server."""
_CONNECT_SECONDS = 10.0
_FRAME_BYTES = MIB
"""Bytes of an answer besides output and files."""
_BYTES_FOR_EACH = 6
"""Bytes of JSON for a byte of output, which may be escaped (`\\u001b`), or of a file, which is in base64."""
_SIGNALS = range(1, 65)
_EXIT_CODES = range(256)
_NOT_NEGATIVE = (
    *("wall_seconds", "cpu_seconds", "queued_seconds"),
    *("max_rss_bytes", "kept_bytes", "cut_bytes"),
)


class RemoteSandbox:
    """A sandbox whose programs run on servers, each on the least busy one.

    A server that fails is left out and tried again later. If a server cannot be reached or is overloaded, the
    program is retried there or elsewhere, which costs it nothing but time. The result of a program is never
    retried. Cancelling `run` closes the connection, upon which this project's server kills the program; `run`
    does not wait for that.
    """

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        *,
        token: str | None = None,
        capacity: int | None = None,
        patience_seconds: float = 60.0,
        allow_weak_isolation: bool = False,
        prepare: object = None,
    ):
        """Raises ValueError for an invalid URL, for a capacity below 1, and for `prepare`.

        `url`: one URL, several separated by commas, or a list; None means the environment variable
        TIRJUDGE_SANDBOX_URL. `token`: None means TIRJUDGE_SANDBOX_TOKEN, if set. `capacity`: programs that
        the servers run at once; None means the capacities that they report (16 for SandboxFusion, which
        reports none). `patience_seconds`: the longest time without an answer, beyond the program's wall
        limit, before the result is SANDBOX_FAILED. `allow_weak_isolation`: also accept servers that lack an
        isolation property or, like SandboxFusion, do not report them.
        """
        if capacity is not None and capacity < 1:
            raise ValueError(f"capacity must be at least 1, not {capacity}")
        if prepare is not None:
            raise ValueError(
                "programs run on a server, and its operator prepares programs: "
                "tirjudge sandbox serve --prepare FILE"
            )
        if url is None:
            url = os.environ.get(URLS, "")
        urls = url.split(",") if isinstance(url, str) else url
        token = token or os.environ.get(TOKEN)
        self._endpoints = [
            Endpoint(one.strip(), token, allow_weak_isolation=allow_weak_isolation)
            for one in urls
            if one.strip()
        ]
        self.capacity = capacity or len(self._endpoints)
        self._wanted = capacity
        self._patience = patience_seconds
        self._queue: FairQueue | None = None

    async def __aenter__(self) -> Self:
        """Ask each server what it is.

        Raises SandboxUnavailable if none answers, or if one isolates too weakly.
        """
        if not self._endpoints:
            raise SandboxUnavailable(f"no sandbox server is named: pass url=, or set {URLS}")
        for endpoint in self._endpoints:
            endpoint.open()
        try:
            await asyncio.gather(*(self._met(endpoint) for endpoint in self._endpoints))
            if not (met := [endpoint.capacity for endpoint in self._endpoints if endpoint.met]):
                failures = "; ".join(endpoint.failure for endpoint in self._endpoints)
                raise SandboxUnavailable(f"no sandbox server answers: {failures}")
        except BaseException:
            await self._close()
            raise
        # A server that does not answer yet is assumed to be as large as the largest other.
        missing = len(self._endpoints) - len(met)
        self.capacity = self._wanted or sum(met) + missing * max(met)
        self._queue = FairQueue(self.capacity * _AHEAD)
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close all connections."""
        self._queue = None
        await self._close()

    async def run(self, program: Program, limits: Limits = _DEFAULT_LIMITS) -> Execution:
        """Run one program; see `Sandbox.run`.

        Also raises ValueError for limits beyond a server's, TypeError for bindings that are not JSON, and
        RuntimeError outside of `async with`.
        """
        validate(program, limits)
        if self._queue is None:
            raise RuntimeError("the sandbox is not open: use it inside `async with`")
        queue, clock = self._queue, asyncio.get_running_loop().time
        called = clock()
        await queue.acquire(program.client)
        try:
            execution = await self._answer(program, limits)
        except (EndpointFailed, EndpointRefused) as error:
            return Execution(status=Status.SANDBOX_FAILED, detail=str(error), queued_seconds=clock() - called)
        finally:
            queue.release(program.client)
        # The time on the network counts as queueing, since the program did not run.
        return replace(execution, queued_seconds=max(0.0, clock() - called - execution.wall_seconds))

    async def _answer(self, program: Program, limits: Limits) -> Execution:
        attempts = AsyncRetrying(
            retry=retry_if_exception_type(EndpointFailed),
            # Before, so that no wait which a server asks for is longer than the patience.
            stop=stop_before_delay(self._patience),
            wait=_wait,
            reraise=True,
        )
        return await attempts(self._attempt, program, limits)

    async def _attempt(self, program: Program, limits: Limits) -> Execution:
        return await self._least_busy().run(program, limits, self._patience)

    def _least_busy(self) -> Endpoint:
        usable = [endpoint for endpoint in self._endpoints if endpoint.usable]
        if not usable:
            raise EndpointFailed("; ".join(endpoint.failure for endpoint in self._endpoints))
        return min(usable, key=lambda endpoint: endpoint.running / endpoint.capacity)

    async def _met(self, endpoint: Endpoint) -> None:
        try:
            await endpoint.meet()
        except EndpointFailed:
            # The server may answer later: see `Endpoint.usable`.
            return
        except EndpointRefused as error:
            raise SandboxUnavailable(str(error)) from error

    async def _close(self) -> None:
        for endpoint in self._endpoints:
            await endpoint.close()


def _wait(state: RetryCallState) -> float:
    """Return the wait that the server asks for, or else an exponential one."""
    error = state.outcome.exception() if state.outcome else None
    requested = error.after_seconds if isinstance(error, EndpointFailed) else 0.0
    return max(requested, _backoff(state))


@dataclass(frozen=True)
class Dialect:
    """One protocol for running a program on a server."""

    path: str
    request: Callable[[Program, Limits], dict[str, Any]]
    """Makes the JSON of a request, lone surrogates included. Raises TypeError for bindings that are not
    JSON."""
    execution: Callable[[bytes, Limits], Execution]
    """Reads an answer. Raises ValueError if it is malformed."""


_NATIVE = Dialect(path="/v1/run", request=native.to_request, execution=native.to_execution)
_FUSION = Dialect(path="/run_code", request=fusion.to_request, execution=fusion.to_execution)


def _body(dialect: Dialect, program: Program, limits: Limits) -> bytes:
    # A lone surrogate, which JSON cannot carry, becomes a question mark.
    return json.dumps(dialect.request(program, limits), ensure_ascii=False).encode("utf-8", "replace")


class EndpointFailed(Exception):
    """The server failed, not the program: it cannot be reached or is overloaded. Worth a retry."""

    def __init__(self, text: str, after_seconds: float = 0.0):
        super().__init__(text)
        self.after_seconds = after_seconds
        """Time after which the server wants to be asked again."""


class EndpointRefused(Exception):
    """The server refused the request, and would refuse it again."""


class Endpoint:
    """A connection pool to one server. Belongs to one event loop, and must be closed."""

    def __init__(self, url: str, token: str | None, *, allow_weak_isolation: bool):
        """Raises ValueError if `url` is not an HTTP URL."""
        try:
            parsed = httpx.URL(url.rstrip("/"))
        except httpx.InvalidURL as error:
            raise ValueError(f"a sandbox server's URL cannot be read: {error}") from None
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise ValueError(f"a sandbox server's URL begins with http:// or https://, not {parsed.scheme!r}")
        self.name = f"{parsed.host}:{parsed.port or parsed.scheme}"
        """Host and port, without the secrets that the URL may hold."""
        self.capacity = 1
        self.running = 0
        """Programs that were sent and have not come back."""
        self.backoff = Backoff()
        self.failure = ""
        """Description of the last failure."""
        self._allow_weak = allow_weak_isolation
        self._dialect: Dialect | None = None
        headers = {"accept-encoding": "identity"}
        if token:
            headers["authorization"] = f"Bearer {token}"
        self._connect = partial(
            httpx.AsyncClient,
            # Without the password, since httpx logs the URL.
            base_url=parsed.copy_with(userinfo=b""),
            auth=(parsed.username, parsed.password) if parsed.password else None,
            headers=headers,
            # The queue bounds what is sent, and a wait for the pool of httpx would look like a silent server.
            limits=httpx.Limits(max_connections=None),
        )
        self._client = self._connect()

    @property
    def met(self) -> bool:
        """True once the server has reported what it is."""
        return self._dialect is not None

    @property
    def usable(self) -> bool:
        """False for a while after a failure; then the server is tried with one program."""
        return self.backoff.failures == 0 or (self.backoff.due and self.running == 0)

    def open(self) -> None:
        """Allow connections, also after `close`, and forget what was known of the server."""
        if self._client.is_closed:
            self._client = self._connect()
        self._dialect, self.backoff, self.failure = None, Backoff(), ""

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def meet(self) -> Dialect:
        """Ask the server what it is.

        Raises EndpointFailed, and EndpointRefused if its isolation is too weak.
        """
        response = await self._answered("GET", "/v1/info", None, _CONNECT_SECONDS, _FRAME_BYTES)
        if response.status_code == 404:
            # SandboxFusion has no such route.
            dialect, self.capacity, isolation = _FUSION, _FUSION_CAPACITY, fusion.UNKNOWN
        else:
            dialect = _NATIVE
            self.capacity, isolation = self._parse_info(response)
        if isolation.missing and not self._allow_weak:
            raise EndpointRefused(
                f"{self.name} does not give {', '.join(isolation.missing)} ({'; '.join(isolation.notes)}): "
                "allow_weak_isolation accepts it anyway"
            )
        self._dialect = dialect
        return dialect

    async def run(self, program: Program, limits: Limits, patience_seconds: float) -> Execution:
        """Run a program on the server, asking first what the server is if that is not known yet.

        `patience_seconds`: the longest wait for an answer beyond the program's wall limit. Raises
        EndpointFailed, EndpointRefused, TypeError for bindings that are not JSON, and ValueError for limits
        beyond the server's.
        """
        self.running += 1
        try:
            dialect = self._dialect or await self._introduced()
            if has_large_files(program):
                body = await asyncio.to_thread(_body, dialect, program, limits)
            else:
                body = _body(dialect, program, limits)
            seconds = limits.wall_seconds + patience_seconds
            fetched = limits.disk_bytes if program.fetch else 0
            most = _FRAME_BYTES + _BYTES_FOR_EACH * (limits.output_bytes + fetched)
            response = await self._answered("POST", dialect.path, body, seconds, most)
            self._accepted(response)
            return self._read(dialect, response, program, limits)
        finally:
            self.running -= 1

    async def _introduced(self) -> Dialect:
        try:
            return await self.meet()
        except EndpointRefused as error:
            # Worth a retry, because another server may run the program.
            raise self._failed(str(error)) from error

    async def _answered(
        self, method: str, path: str, body: bytes | None, seconds: float, most_bytes: int
    ) -> httpx.Response:
        """Send a request, and read an answer of at most `most_bytes` within `seconds`.

        Raises EndpointFailed without an answer, and for answers that ask to retry later; EndpointRefused for
        an answer that is too large or compressed, which could be small on the network and large in memory.
        """
        timeout = httpx.Timeout(seconds, connect=_CONNECT_SECONDS)
        headers = {"content-type": "application/json"} if body is not None else {}
        request = self._client.build_request(method, path, content=body, headers=headers, timeout=timeout)
        try:
            # The timeouts of httpx are those of a single read: a server could send a byte at a time.
            async with asyncio.timeout(seconds + _CONNECT_SECONDS):
                response = await self._whole(await self._client.send(request, stream=True), most_bytes)
        except TimeoutError:
            raise self._failed(f"no whole answer within {seconds + _CONNECT_SECONDS:g} s") from None
        except httpx.TransportError as error:
            raise self._failed(f"{type(error).__name__} {error}".strip()) from error
        if response.status_code in _GATEWAY_FAILURES:
            raise self._failed(f"HTTP status {response.status_code}")
        self.backoff.succeeded()
        # An overloaded server is not left out: only this program waits, for as long as the server asks.
        if response.status_code == 429:
            raise EndpointFailed(f"{self.name} is overloaded", _seconds(response))
        return response

    async def _whole(self, arriving: httpx.Response, most_bytes: int) -> httpx.Response:
        """Return an answer with its body."""
        content = bytearray()
        try:
            if arriving.headers.get("content-encoding", "identity") != "identity":
                raise EndpointRefused(f"{self.name} compresses its answers, which it was asked not to")
            async for chunk in arriving.aiter_raw():
                content += chunk
                if len(content) > most_bytes:
                    raise EndpointRefused(f"{self.name} sent an answer of more than {most_bytes} bytes")
        finally:
            await arriving.aclose()
        return httpx.Response(arriving.status_code, headers=arriving.headers, content=bytes(content))

    def _failed(self, why: str) -> EndpointFailed:
        self.backoff.failed()
        self.failure = f"{self.name}: {why}"
        return EndpointFailed(self.failure)

    def _parse_info(self, response: httpx.Response) -> tuple[int, Isolation]:
        """Return the capacity and the isolation that a server reports."""
        if response.status_code != 200:
            raise EndpointRefused(f"{self.name} refuses: {_detail(response)}")
        try:
            info = native.Info.model_validate_json(response.content)
        except ValueError:
            raise EndpointRefused(f"{self.name} is not a sandbox server") from None
        if info.server != native.NAME or info.isolation is None:
            raise EndpointRefused(f"{self.name} does not report how it isolates programs")
        return info.capacity, info.isolation

    def _accepted(self, response: httpx.Response) -> None:
        if response.status_code == 200:
            return
        # Our server names the field that it refuses: too large limits are a mistake of the caller.
        if response.status_code == 422 and '"limits"' in response.text:
            raise ValueError(f"{self.name}: {_detail(response)}")
        if response.status_code in _THIS_REQUEST:
            raise EndpointRefused(f"{self.name} refuses: {_detail(response)}")
        raise self._failed(_detail(response))

    def _read(
        self, dialect: Dialect, response: httpx.Response, program: Program, limits: Limits
    ) -> Execution:
        try:
            execution = dialect.execution(response.content, limits)
            _check(execution, program, limits)
            return execution
        except ValueError as error:
            detail = f"{self.name} sent an answer that cannot be read: {error}"
            return Execution(status=Status.SANDBOX_FAILED, detail=detail)


def _check(execution: Execution, program: Program, limits: Limits) -> None:
    """Raise ValueError for a result that no program could have within its limits."""
    # Undecodable bytes became single characters, so the characters are never more than the bytes.
    if len(execution.stdout) + len(execution.stderr) > limits.output_bytes:
        raise ValueError(f"more output than the limit of {limits.output_bytes} bytes")
    if foreign := execution.files.keys() - set(program.fetch):
        raise ValueError(f"a file that was not asked for: {min(foreign)[:60]!r}")
    if sum(map(len, execution.files.values())) > limits.disk_bytes:
        raise ValueError(f"more files than the limit of {limits.disk_bytes} bytes")
    for name in _NOT_NEGATIVE:
        value = getattr(execution, name)
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} is {value}")
    for name, known in (("signal", _SIGNALS), ("exit_code", _EXIT_CODES)):
        value = getattr(execution, name)
        if value is not None and value not in known:
            raise ValueError(f"{name} is {value}")


def _seconds(response: httpx.Response) -> float:
    # Retry-After may also hold a date, which is ignored.
    value = response.headers.get("retry-after", "")
    return float(value) if value.isascii() and value.isdigit() else 0.0


def _detail(response: httpx.Response) -> str:
    """Return status and reason of a refusal; the reason as FastAPI formats it, or else the body."""
    try:
        detail: Any = response.json()["detail"]
        if isinstance(detail, list):
            detail = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in detail)
        text = str(detail)
    except (ValueError, KeyError, TypeError, RecursionError):
        text = response.text
    return f"HTTP status {response.status_code}, {text[:300]}"
