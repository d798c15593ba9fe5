"""Requests counted by their answer, for Prometheus."""

from __future__ import annotations

from tirjudge_sandbox.server.asgi import App, Event, Receive, Scope, Send

SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300)
"""Bounds of the buckets in which times are counted."""


class RequestMetrics:
    """One server's numbers, in a registry of its own."""

    def __init__(self, paths: frozenset[str]):
        """`paths`: the routes that are counted each by itself; the others are counted as one."""
        from prometheus_client import CollectorRegistry, Counter

        self._paths = paths
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "tirjudge_http_requests", "Requests, by answer.", ("path", "status"), registry=self.registry
        )

    def text(self) -> bytes:
        """All of it, in Prometheus's text format."""
        from prometheus_client import generate_latest

        return bytes(generate_latest(self.registry))

    def counting(self, app: App) -> App:
        """ASGI middleware that counts requests by their answer."""

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            async def watched(event: Event) -> None:
                if event["type"] == "http.response.start":
                    path = scope["path"] if scope["path"] in self._paths else "other"
                    self._requests.labels(path, event["status"]).inc()
                await send(event)

            await app(scope, receive, watched)

        return counted
