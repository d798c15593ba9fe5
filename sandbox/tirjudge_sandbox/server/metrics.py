"""Prometheus metrics of a server: requests by answer, and programs and workers of a sandbox."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tirjudge_sandbox.base import Execution, Sandbox
from tirjudge_sandbox.server.guard import App, Event, Receive, Scope, Send
from tirjudge_sandbox.workers.pool import PoolStats

SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300)
"""Upper bounds, in seconds, of the histogram buckets for times."""

_GAUGES = {
    "capacity": "The most programs that run at once.",
    "running": "Programs that are running.",
    "queued": "Programs that are waiting.",
    "workers": "Workers alive.",
    "failing": "Workers lost or refused in a row; 0 when healthy.",
}
_COUNTERS = {
    "started": "Workers started.",
    "recycled": "Workers that ended as planned.",
    "lost": "Workers that ended unexpectedly.",
    "refused": "Workers that did not start.",
}


class RequestMetrics:
    """The metrics of any server, in a registry of its own: HTTP requests by path and status."""

    def __init__(self, paths: frozenset[str]):
        """`paths`: the routes that are counted separately; all others are counted as `other`."""
        from prometheus_client import CollectorRegistry, Counter

        self._paths = paths
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "tirjudge_http_requests",
            "Requests, by path and status of the answer.",
            ("path", "status"),
            registry=self.registry,
        )

    def text(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        from prometheus_client import generate_latest

        return bytes(generate_latest(self.registry))

    def counting(self, app: App) -> App:
        """Wrap an ASGI application to count its requests by path and status."""

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            async def watched(event: Event) -> None:
                if event["type"] == "http.response.start":
                    path = scope["path"] if scope["path"] in self._paths else "other"
                    self._requests.labels(path, event["status"]).inc()
                await send(event)

            await app(scope, receive, watched)

        return counted


class Metrics(RequestMetrics):
    """The metrics of a sandbox server."""

    def __init__(self, box: Sandbox, paths: frozenset[str]):
        """`paths`: see `RequestMetrics`."""
        from prometheus_client import Counter, Histogram

        super().__init__(paths)
        self._programs = Counter(
            "tirjudge_programs", "Programs, by status.", ("status",), registry=self.registry
        )
        self._wall, self._queued = (
            Histogram(name, text, buckets=SECONDS, registry=self.registry)
            for name, text in (
                ("tirjudge_program_seconds", "Wall time of a program."),
                ("tirjudge_queue_seconds", "Time that a program waited for its start."),
            )
        )
        if hasattr(box, "stats"):
            self.registry.register(_PoolCollector(box))

    def ended(self, execution: Execution) -> None:
        """Count a program that has ended."""
        self._programs.labels(execution.status.value).inc()
        self._wall.observe(execution.wall_seconds)
        self._queued.observe(execution.queued_seconds)


class _PoolCollector:
    """The statistics of a pool, read whenever the metrics are requested."""

    def __init__(self, box: Any):
        self._box = box

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        stats: PoolStats = self._box.stats()
        for name, text in _GAUGES.items():
            yield GaugeMetricFamily(f"tirjudge_sandbox_{name}", text, getattr(stats, name))
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(f"tirjudge_sandbox_workers_{name}", text, getattr(stats, name))
