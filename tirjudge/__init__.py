"""LLM judges that run programs before they give a verdict."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tirjudge.judge import Judge
    from tirjudge.judgment import Judgment

__version__ = version("tirjudge")

__all__ = ["Judge", "Judgment", "__version__"]

_HOMES = {"Judge": "tirjudge.judge", "Judgment": "tirjudge.judgment"}


def __getattr__(name: str) -> Any:
    """The names above on first use, so that `import tirjudge` stays light."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
