"""The routes of the sandbox server: SandboxFusion's, the project's own, and those for operators."""

# No `from __future__ import annotations`: FastAPI reads the routes' annotations, whose names are local here.
import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from tirjudge_sandbox.base import (
    Execution,
    InvalidProgram,
    Isolation,
    Limits,
    PackageMissing,
    Program,
    Sandbox,
)
from tirjudge_sandbox.http.fields import Base64, message_to_json
from tirjudge_sandbox.http.fusion_messages import PYTHON, RunCodeRequest, RunCodeResponse
from tirjudge_sandbox.http.native_messages import NAME, Info, ProgramRequest, execution_to_json
from tirjudge_sandbox.server.guard import CALLER, Access, App, Guard, Receive, Scope, Send
from tirjudge_sandbox.server.intake import Intake, IntakeLimits
from tirjudge_sandbox.server.metrics import Metrics, RequestMetrics
from tirjudge_sandbox.server.settings import (
    FieldRefused,
    ServerSettings,
    check_program,
    error_details,
    limits_of,
)

if TYPE_CHECKING:
    from fastapi import FastAPI, Response

REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"description": "The body is not JSON."},
    401: {"description": "No valid token."},
    403: {"description": "A host name that this server does not accept, or a page of another origin."},
    408: {"description": "The body did not arrive in time."},
    411: {"description": "No Content-Length."},
    413: {"description": "The body is too large."},
    415: {"description": "The content type is not application/json."},
    429: {"description": "Too many requests at once: try again after Retry-After seconds."},
}
"""The answers of the guard and the intake, for the documentation of a route."""

_SMALL, _MANY = 1 << 12, 1000
"""Bytes of a piece, and number of pieces, beyond which what was encoded is sent."""


def create_app(
    box: Sandbox, settings: ServerSettings, *, version: str, isolation: Isolation | None = None
) -> App:
    """Return an ASGI application that serves an open sandbox.

    `isolation`: the properties that hold where the programs run, reported by `/v1/info`. Raises
    PackageMissing without the extra `serve`.
    """
    try:
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
        from fastapi import FastAPI, Response
    except ImportError:
        raise PackageMissing(
            "serving needs FastAPI, uvicorn and prometheus_client: pip install 'tirjudge[serve]'"
        ) from None

    app = FastAPI(title="tirjudge sandbox", version=version, docs_url=None, redoc_url=None)
    paths = frozenset({"/run_code", "/v1/run", "/v1/info", "/v1/ping", "/metrics"})
    metrics = Metrics(box, paths)

    async def executed(program: Program, limits: Limits, names: Mapping[str, str]) -> Execution:
        check_program(program, limits, settings, names)
        execution = await box.run(program, limits)
        metrics.ended(execution)
        return execution

    @app.post("/run_code", responses=REFUSALS, tags=["SandboxFusion"], response_model=RunCodeResponse)
    async def run_code(body: RunCodeRequest) -> Response:
        """Run one program."""
        if body.language != PYTHON:
            refusal = f"this server runs {PYTHON}, not {body.language}"
            return await _answer(partial(message_to_json, RunCodeResponse.failed(refusal)))
        limits = body.limits(settings.defaults)
        names = {"source": "code", "fetch": "fetch_files", "wall_seconds": "run_timeout"}
        names |= {"cpu_seconds": "run_timeout", "memory_bytes": "memory_limit_MB"}
        execution = await executed(body.program(CALLER.get()), limits, names)
        return await _answer(partial(message_to_json, RunCodeResponse.of(execution, limits)))

    @app.post("/v1/run", responses=REFUSALS, tags=["tirjudge"], response_model=Execution)
    async def run(body: ProgramRequest) -> Response:
        """Run one program with all inputs and limits of a `Program`, and return its whole `Execution`."""
        limits = limits_of(body.limits, settings)
        try:
            program = body.program(CALLER.get())
        except InvalidProgram as error:
            raise FieldRefused(str(error), error.field) from None
        execution = await executed(program, limits, {})
        return await _answer(partial(execution_to_json, execution))

    @app.get("/v1/info", tags=["tirjudge"])
    async def info() -> Info:
        """Return version, capacity, isolation and largest limits of this server."""
        return Info(
            server=NAME, version=version, capacity=box.capacity, isolation=isolation, most=settings.most
        )

    @app.get("/v1/ping", tags=["SandboxFusion"])
    async def ping() -> str:
        """Return `pong`."""
        return "pong"

    return with_operations(app, metrics, settings.access, settings.intake)


async def _answer(pieces: Callable[[], Iterator[bytes | Base64]]) -> "Response":
    """Return an answer. A large one is encoded in parts while it is sent, between which others are served.

    The memory that it takes is then that of its content, however slowly the caller reads, and content that
    the caller does not read is never encoded. `pieces` returns the answer in pieces, each time from the
    beginning.
    """
    from fastapi.responses import Response, StreamingResponse

    class Streamed(StreamingResponse):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            # `Intake` ends this when the caller hangs up. The base class starts tasks for that, which then
            # refer to each other, and so to the content, until the next collection of garbage.
            await self.stream_response(send)

    async def parts() -> AsyncIterator[list[bytes | Base64]]:
        gathered: list[bytes | Base64] = []
        for piece in pieces():
            gathered.append(piece)
            if len(piece) > _SMALL or len(gathered) > _MANY:
                yield gathered
                gathered = []
                await asyncio.sleep(0)
        yield gathered

    async def encoded() -> AsyncIterator[bytes]:
        async for part in parts():
            yield b"".join(map(bytes, part))

    # The first pass only adds up the length, which `Base64` knows without encoding anything.
    first, sizes = None, []
    async for part in parts():
        first = first or part
        sizes.append(sum(map(len, part)))
    if first is not None and not any(sizes[1:]):
        return Response(b"".join(map(bytes, first)), media_type="application/json")
    headers = {"content-length": str(sum(sizes))}
    return Streamed(encoded(), headers=headers, media_type="application/json")


class _Heads:
    """ASGI middleware that answers HEAD, which probes send, as GET; uvicorn leaves out the body."""

    def __init__(self, app: App):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method") == "HEAD":
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, send)


def with_operations(app: "FastAPI", metrics: RequestMetrics, access: Access, intake: IntakeLimits) -> App:
    """Add what every server needs: `/metrics`, answers 422 that name the field, access control and limits."""
    from fastapi import Request, Response
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import JSONResponse, PlainTextResponse
    from prometheus_client import CONTENT_TYPE_LATEST

    @app.get("/metrics", response_class=PlainTextResponse, tags=["operation"])
    async def scrape() -> Response:
        """Return the metrics in Prometheus's text format."""
        return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST)

    @app.exception_handler(RequestValidationError)
    @app.exception_handler(FieldRefused)
    async def refuse(_: Request, error: Any) -> Response:
        return JSONResponse({"detail": error_details(error.errors(), getattr(error, "body", None))}, 422)

    app.add_middleware(_Heads)
    # The last one added is the outer one: `Intake` counts by the caller that `Guard` has set.
    app.add_middleware(Intake, limits=intake)
    app.add_middleware(Guard, access=access)
    # Around everything, so that refused requests are counted too.
    return metrics.counting(app)
