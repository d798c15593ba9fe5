"""One sandbox server: its capabilities, the programs sent to it, and its failures."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import httpx

from tirjudge_sandbox.base import MIB, Execution, Isolation, Limits, Program, Status
from tirjudge_sandbox.http.native import NAME, Info
from tirjudge_sandbox.remote.dialects import FUSION, NATIVE, UNKNOWN, Dialect
from tirjudge_sandbox.workers.fair_queue import Backoff

FUSION_CAPACITY = 16
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
        self._client = httpx.AsyncClient(
            # Without the password, since httpx logs the URL.
            base_url=parsed.copy_with(userinfo=b""),
            auth=(parsed.username, parsed.password) if parsed.password else None,
            headers=headers,
            limits=httpx.Limits(max_connections=None),
        )

    @property
    def met(self) -> bool:
        """True once the server has reported what it is."""
        return self._dialect is not None

    @property
    def usable(self) -> bool:
        """False for a while after a failure; then the server is tried with one program."""
        return self.backoff.failures == 0 or (self.backoff.due and self.running == 0)

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
            dialect, self.capacity, isolation = FUSION, FUSION_CAPACITY, UNKNOWN
        else:
            dialect, (self.capacity, isolation) = NATIVE, self._parse_info(response)
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
            # A lone surrogate, which JSON cannot carry, becomes a question mark.
            body = json.dumps(dialect.request(program, limits), ensure_ascii=False).encode("utf-8", "replace")
            seconds = limits.wall_seconds + patience_seconds
            most = _FRAME_BYTES + _BYTES_FOR_EACH * (limits.output_bytes + limits.disk_bytes)
            response = await self._answered("POST", dialect.path, body, seconds, most)
            self._accepted(response)
            return self._read(dialect, response, program, limits)
        finally:
            self.running -= 1

    async def _introduced(self) -> Dialect:
        try:
            return await self.meet()
        except EndpointRefused as error:
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
        if response.status_code != 200:
            raise EndpointRefused(f"{self.name} refuses: {_detail(response)}")
        try:
            info = Info.model_validate_json(response.content)
        except ValueError:
            raise EndpointRefused(f"{self.name} is not a sandbox server") from None
        if info.server != NAME or info.isolation is None:
            raise EndpointRefused(f"{self.name} does not report how it isolates programs")
        return info.capacity, info.isolation.isolation()

    def _accepted(self, response: httpx.Response) -> None:
        if response.status_code == 200:
            return
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
    for name in ("wall_seconds", "cpu_seconds", "queued_seconds", "max_rss_bytes"):
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
    except (ValueError, KeyError, TypeError):
        detail = response.text
    return f"HTTP status {response.status_code}, {str(detail)[:300]}"
