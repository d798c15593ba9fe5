"""Where the numbers of an RL run can be watched beside `metrics.jsonl`, through transformers' callbacks."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import Literal

Reporter = Literal["tensorboard", "wandb", "trackio"]
"""Each is its package's name, and the name of the extra that installs it."""


class ReporterMissing(RuntimeError):
    """A reporter's package is not installed; the text says how to install it."""


def require(reporters: Iterable[Reporter]) -> None:
    """Raises ReporterMissing: better before a run's first stage than hours later."""
    for name in reporters:
        if find_spec(name) is None:
            raise ReporterMissing(f"rl.report_to names {name!r}: pip install 'tirjudge[{name}]'")
