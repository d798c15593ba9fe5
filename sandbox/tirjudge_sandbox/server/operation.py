"""What every server of ours has beside its routes: numbers, refusals of bad fields, a guard and an intake."""

# No `from __future__ import annotations`: FastAPI reads the route's annotations, whose names are local here.
from typing import TYPE_CHECKING, Any

from tirjudge_sandbox.server.asgi import App
from tirjudge_sandbox.server.fields import FieldRefused, shown
from tirjudge_sandbox.server.guard import Access, Guard
from tirjudge_sandbox.server.intake import Intake, IntakeLimits
from tirjudge_sandbox.server.request_metrics import RequestMetrics

if TYPE_CHECKING:
    from fastapi import FastAPI


def operated(app: "FastAPI", metrics: RequestMetrics, access: Access, intake: IntakeLimits) -> App:
    """The application with `/metrics`, 422 that names the field, and only what may come in."""
    from fastapi import Request, Response
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import JSONResponse, PlainTextResponse
    from prometheus_client import CONTENT_TYPE_LATEST

    @app.get("/metrics", response_class=PlainTextResponse, tags=["operation"])
    async def scrape() -> Response:
        """Numbers for Prometheus."""
        return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST)

    @app.exception_handler(RequestValidationError)
    @app.exception_handler(FieldRefused)
    async def refuse(_: Request, error: Any) -> Response:
        return JSONResponse({"detail": shown(error.errors())}, 422)

    app.add_middleware(Intake, limits=intake)
    app.add_middleware(Guard, access=access)
    return metrics.counting(app)
