"""LLM judges that run programs before they give a verdict."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tirjudge.compilation.options import compile_checkers
    from tirjudge.generation.base import GeneratorFailed, Sampling
    from tirjudge.generation.spending import CostReached
    from tirjudge.judge import Judge
    from tirjudge.judging.batch_result import BatchResult, NoRowJudged
    from tirjudge.judging.judgment import Judgment
    from tirjudge.judging.options import JudgeOptions
    from tirjudge.rollout import Rollout

__version__ = version("tirjudge")

__all__ = [
    "BatchResult",
    "CostReached",
    "GeneratorFailed",
    "Judge",
    "JudgeOptions",
    "Judgment",
    "NoRowJudged",
    "Rollout",
    "Sampling",
    "__version__",
    "compile_checkers",
]

_MODULES = {
    "BatchResult": "tirjudge.judging.batch_result",
    "CostReached": "tirjudge.generation.spending",
    "GeneratorFailed": "tirjudge.generation.base",
    "Judge": "tirjudge.judge",
    "JudgeOptions": "tirjudge.judging.options",
    "Judgment": "tirjudge.judging.judgment",
    "NoRowJudged": "tirjudge.judging.batch_result",
    "Rollout": "tirjudge.rollout",
    "Sampling": "tirjudge.generation.base",
    "compile_checkers": "tirjudge.compilation.options",
}


def __getattr__(name: str) -> Any:
    """Import the names above on first use, so that `import tirjudge` stays light."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)
