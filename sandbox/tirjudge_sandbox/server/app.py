"""The routes of the sandbox server: SandboxFusion's, the project's own, and those for operators."""

# No `from __future__ import annotations`: FastAPI reads the routes' annotations, whose names are local here.
import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tirjudge_sandbox.base import MIB, Execution, Isolation, Limits, PackageMissing, Program, Sandbox
from tirjudge_sandbox.http.fusion import (
    PYTHON,
    RunCodeRequest,
    RunCodeResponse,
    RunJupyterRequest,
    RunJupyterResponse,
)
from tirjudge_sandbox.http.native import NAME, Info, RunRequest, execution_to_json
from tirjudge_sandbox.server.guard import CALLER, Access, App, Guard
from tirjudge_sandbox.server.intake import Intake, IntakeLimits
from tirjudge_sandbox.server.metrics import Metrics, RequestMetrics
from tirjudge_sandbox.server.notebooks import Notebooks, run_cells
from tirjudge_sandbox.server.settings import (
    FieldRefused,
    ServerSettings,
    check_program,
    error_details,
    limits_of,
)

if TYPE_CHECKING:
    from fastapi import FastAPI

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


def create_app(
    box: Sandbox,
    settings: ServerSettings,
    *,
    version: str,
    isolation: Isolation | None = None,
    notebooks: Notebooks | None = None,
) -> App:
    """Return an ASGI application that serves an open sandbox.

    `isolation`: the properties that hold where the programs run, reported by `/v1/info`. `notebooks`: None
    means that requests to run cells are refused. Raises PackageMissing without the extra `serve`.
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
    paths = frozenset({"/run_code", "/run_jupyter", "/v1/run", "/v1/info", "/v1/ping", "/metrics"})
    metrics = Metrics(box, paths)
    encoding = asyncio.Lock()

    async def executed(program: Program, limits: Limits, names: Mapping[str, str]) -> Execution:
        check_program(program, limits, settings, names)
        execution = await box.run(program, limits)
        metrics.ended(execution)
        return execution

    @app.post("/run_code", responses=REFUSALS, tags=["SandboxFusion"])
    async def run_code(body: RunCodeRequest) -> RunCodeResponse:
        """Run one program."""
        if body.language != PYTHON:
            return RunCodeResponse.failed(f"this server runs {PYTHON}, not {body.language}")
        limits = body.limits(settings.defaults)
        names = {"source": "code", "fetch": "fetch_files", "wall_seconds": "run_timeout"}
        names |= {"cpu_seconds": "run_timeout", "memory_bytes": "memory_limit_MB"}
        return RunCodeResponse.of(await executed(body.program(CALLER.get()), limits, names), limits)

    @app.post("/run_jupyter", responses=REFUSALS, tags=["SandboxFusion"])
    async def run_jupyter(body: RunJupyterRequest) -> RunJupyterResponse:
        """Run cells one after another in one kernel."""
        if notebooks is None:
            return RunJupyterResponse.failed("this server runs no notebooks: start it with --notebooks")
        answer = await run_cells(notebooks, body, settings, CALLER.get())
        metrics.closed(answer.status)
        return answer

    @app.post("/v1/run", responses=REFUSALS, tags=["tirjudge"], response_model=Execution)
    async def run(body: RunRequest) -> Response:
        """Run one program with all inputs and limits of a `Program`, and return its whole `Execution`."""
        limits = limits_of(body.limits, settings)
        client = f"{CALLER.get()}/{body.client}" if body.client else CALLER.get()
        execution = await executed(replace(body, client=client), limits, {})
        if sum(map(len, execution.files.values())) < MIB:
            content = execution_to_json(execution)
        else:
            # Files of many MiB would hold up all other callers while they are encoded. One answer at a time,
            # because each takes several times its size.
            async with encoding:
                content = await asyncio.to_thread(execution_to_json, execution)
        return Response(content, media_type="application/json")

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
        return JSONResponse({"detail": error_details(error.errors())}, 422)

    app.add_middleware(Intake, limits=intake)
    app.add_middleware(Guard, access=access)
    return metrics.counting(app)
