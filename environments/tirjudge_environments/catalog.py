"""Environments by name, third parties' included, through the entry-point group `tirjudge.environments`."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any, cast

from pydantic import ValidationError

from tirjudge_environments.base import Environment

GROUP = "tirjudge.environments"


def environment_names() -> tuple[str, ...]:
    """The names that `open_environment` knows, sorted."""
    return tuple(sorted(set(entry_points(group=GROUP).names)))


def open_environment(name: str, **options: Any) -> Environment:
    """The environment of this name; raises ValueError, in one line, for an unknown name or a bad option."""
    found = [entry for entry in entry_points(group=GROUP) if entry.name == name]
    if not found:
        raise ValueError(f"no environment {name!r}; there are {', '.join(environment_names())}")
    try:
        return cast(Environment, found[0].load()(**options))
    except ValidationError as error:
        problems = "; ".join(_problem(one) for one in error.errors())
        raise ValueError(f"environment {name!r}: {problems}") from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"environment {name!r}: {error}") from error


def _problem(error: Any) -> str:
    option = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"{option}: no such option"
    message = str(error["msg"]).removeprefix("Value error, ")
    return f"{option}: {message}" if option else message
