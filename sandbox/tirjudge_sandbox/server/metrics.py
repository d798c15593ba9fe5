"""What a server tells Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tirjudge_sandbox.base import Execution, Sandbox
from tirjudge_sandbox.pool import PoolStats
from tirjudge_sandbox.server.request_metrics import SECONDS, RequestMetrics

_GAUGES = {
    "capacity": "Programs that run at once at most.",
    "running": "Programs that run.",
    "queued": "Programs that wait.",
    "workers": "Workers alive.",
    "failing": "Lost or refused workers in a row; 0 is health.",
}
_COUNTERS = {
    "started": "Workers started.",
    "recycled": "Workers that ended as planned.",
    "lost": "Workers that ended otherwise.",
    "refused": "Workers that did not start.",
}


class Metrics(RequestMetrics):
    """A sandbox server's numbers."""

    def __init__(self, box: Sandbox, paths: frozenset[str]):
        """`paths`: see `RequestMetrics`."""
        from prometheus_client import Counter, Histogram

        super().__init__(paths)
        self._programs = Counter(
            "tirjudge_programs", "Programs, by how they ended.", ("status",), registry=self.registry
        )
        self._notebooks = Counter(
            "tirjudge_notebooks", "Notebooks, by how they ended.", ("status",), registry=self.registry
        )
        self._wall, self._queued = (
            Histogram(name, text, buckets=SECONDS, registry=self.registry)
            for name, text in (
                ("tirjudge_program_seconds", "Wall time of a program."),
                ("tirjudge_queue_seconds", "Time that a program waited."),
            )
        )
        if hasattr(box, "stats"):
            self.registry.register(_PoolCollector(box))

    def ended(self, execution: Execution) -> None:
        """Count a program."""
        self._programs.labels(execution.status.value).inc()
        self._wall.observe(execution.wall_seconds)
        self._queued.observe(execution.queued_seconds)

    def closed(self, status: str) -> None:
        """Count a notebook."""
        self._notebooks.labels(str(status)).inc()


class _PoolCollector:
    """A pool's own numbers, read when they are asked for."""

    def __init__(self, box: Any):
        self._box = box

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        stats: PoolStats = self._box.stats()
        for name, text in _GAUGES.items():
            yield GaugeMetricFamily(f"tirjudge_sandbox_{name}", text, getattr(stats, name))
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(f"tirjudge_sandbox_workers_{name}", text, getattr(stats, name))
