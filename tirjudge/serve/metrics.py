"""What a judge server tells Prometheus."""

from __future__ import annotations

from tirjudge.judgment import Judgment
from tirjudge_sandbox.server.metrics import SECONDS, RequestMetrics


class JudgeMetrics(RequestMetrics):
    """Requests by answer; judgments by how they ended, their time, their programs and their tokens."""

    def __init__(self, paths: frozenset[str]):
        """`paths`: see `RequestMetrics`."""
        from prometheus_client import Counter, Histogram

        super().__init__(paths)
        self._judgments = Counter(
            "tirjudge_judgments", "Judgments, by how they ended.", ("format", "stop"), registry=self.registry
        )
        self._programs, self._read, self._written = (
            Counter(name, text, registry=self.registry)
            for name, text in (
                ("tirjudge_judge_programs", "Programs that the judge asked for."),
                ("tirjudge_prompt_tokens", "Tokens that the model read, as it counts them."),
                ("tirjudge_completion_tokens", "Tokens that the model wrote, as it counts them."),
            )
        )
        self._seconds = Histogram(
            "tirjudge_judgment_seconds", "Time to a judgment.", buckets=SECONDS, registry=self.registry
        )

    def judged(self, judgment: Judgment, seconds: float) -> None:
        """Count a judgment, whether it came to a verdict or not."""
        self._judgments.labels(judgment.kind, judgment.stop.value).inc()
        self._programs.inc(sum(len(one.calls) for one in judgment.trajectories))
        self._read.inc(judgment.usage.prompt_tokens)
        self._written.inc(judgment.usage.completion_tokens)
        self._seconds.observe(seconds)
