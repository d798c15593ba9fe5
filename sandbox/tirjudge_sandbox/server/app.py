"""The routes: SandboxFusion's, our own, and what operators ask for."""

# No `from __future__ import annotations`: FastAPI reads the routes' annotations, whose names are local here.
from collections.abc import Mapping
from typing import Any

from tirjudge_sandbox.base import Execution, Isolation, Limits, Program, Sandbox, SandboxUnavailable
from tirjudge_sandbox.http.fusion import (
    PYTHON,
    RunCodeRequest,
    RunCodeResponse,
    RunJupyterRequest,
    RunJupyterResponse,
)
from tirjudge_sandbox.http.native import NAME, Info, IsolationMessage, LimitsMessage, RunRequest, RunResponse
from tirjudge_sandbox.server.asgi import App
from tirjudge_sandbox.server.fields import check
from tirjudge_sandbox.server.metrics import Metrics
from tirjudge_sandbox.server.notebooks import Notebooks, run_cells
from tirjudge_sandbox.server.operation import operated
from tirjudge_sandbox.server.settings import ServerSettings

REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"description": "The body is no JSON."},
    401: {"description": "No valid token."},
    403: {"description": "A host name that is not this server's, or a page of another origin."},
    408: {"description": "The body did not arrive in time."},
    411: {"description": "No Content-Length."},
    413: {"description": "The body is too large."},
    415: {"description": "The content type is not application/json."},
    429: {"description": "Too many requests at once: come again after Retry-After seconds."},
}
"""What the guard and the intake answer, for a route's documentation."""


def create_app(
    box: Sandbox,
    settings: ServerSettings,
    *,
    version: str,
    isolation: Isolation | None = None,
    notebooks: Notebooks | None = None,
) -> App:
    """The service around an open sandbox, as an ASGI application.

    `isolation`: what holds where the programs run, for callers who ask. `notebooks`: None means that
    requests for cells are answered with a refusal. Raises SandboxUnavailable where the
    extra `serve` is not installed.
    """
    try:
        import prometheus_client  # noqa: F401
        from fastapi import FastAPI, Request
    except ImportError:
        raise SandboxUnavailable("serving needs FastAPI and more: pip install 'tirjudge[serve]'") from None

    app = FastAPI(title="tirjudge sandbox", version=version, docs_url=None, redoc_url=None)
    paths = frozenset({"/run_code", "/run_jupyter", "/v1/run", "/v1/info", "/v1/ping", "/metrics"})
    metrics = Metrics(box, paths)

    async def executed(program: Program, limits: Limits, names: Mapping[str, str]) -> Execution:
        check(program, limits, settings, names)
        execution = await box.run(program, limits)
        metrics.ended(execution)
        return execution

    @app.post("/run_code", responses=REFUSALS, tags=["SandboxFusion"])
    async def run_code(asked: RunCodeRequest, request: Request) -> RunCodeResponse:
        """Run one program."""
        if asked.language != PYTHON:
            return RunCodeResponse.failed(f"this server runs {PYTHON}, not {asked.language}")
        limits = asked.limits(settings.defaults)
        names = {"source": "code", "fetch": "fetch_files", "wall_seconds": "run_timeout"}
        names |= {"cpu_seconds": "run_timeout", "memory_bytes": "memory_limit_MB"}
        return RunCodeResponse.of(await executed(asked.program(_caller(request)), limits, names), limits)

    @app.post("/run_jupyter", responses=REFUSALS, tags=["SandboxFusion"])
    async def run_jupyter(asked: RunJupyterRequest, request: Request) -> RunJupyterResponse:
        """Run cells one after another in one kernel."""
        if notebooks is None:
            return RunJupyterResponse.failed("this server runs no notebooks: start it with --notebooks")
        answer = await run_cells(notebooks, asked, settings, _caller(request))
        metrics.closed(answer.status)
        return answer

    @app.post("/v1/run", responses=REFUSALS, tags=["tirjudge"])
    async def run(asked: RunRequest, request: Request) -> RunResponse:
        """Run one program, with all that a program can be given, and tell all that is known of its end."""
        limits = asked.limits.limits(settings.defaults)
        return RunResponse.of(await executed(asked.program(_caller(request)), limits, {}))

    @app.get("/v1/info", tags=["tirjudge"])
    async def info() -> Info:
        """What this server is and allows."""
        return Info(
            server=NAME,
            version=version,
            capacity=box.capacity,
            isolation=None if isolation is None else IsolationMessage.of(isolation),
            most=LimitsMessage.of(settings.most),
        )

    @app.get("/v1/ping", tags=["SandboxFusion"])
    async def ping() -> str:
        """`pong`."""
        return "pong"

    def _caller(request: Request) -> str:
        return request.client.host if request.client else ""

    return operated(app, metrics, settings.access, settings.intake)
