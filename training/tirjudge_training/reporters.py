"""Reporters of an RL run's metrics in addition to `metrics.jsonl`, through transformers' callbacks."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import Literal

Reporter = Literal["tensorboard", "wandb", "trackio"]
"""The name of the package, which is also the name of the extra that installs it."""


class ReporterMissing(RuntimeError):
    """A reporter's package is not installed; the message says how to install it."""


def require(reporters: Iterable[Reporter]) -> None:
    """Raise ReporterMissing for a missing package, before the first stage instead of hours later."""
    for name in reporters:
        if find_spec(name) is None:
            raise ReporterMissing(f"rl.report_to names {name!r}: pip install 'tirjudge[{name}]'")
