"""Environments by name, third parties' included, through the entry-point group `tirjudge.environments`."""

from __future__ import annotations

from typing import Any, cast

from pydantic import ValidationError

from tirjudge_environments.base import Environment
from tirjudge_environments.faults import fault_line
from tirjudge_environments.judge_card import JudgeCard
from tirjudge_sandbox.registry import Plugins

ENVIRONMENTS = Plugins("tirjudge.environments", "environment")
"""Each entry takes the options of `open_environment` and gives an `Environment`."""


def environment_names() -> tuple[str, ...]:
    """The names that `open_environment` knows, sorted."""
    return ENVIRONMENTS.names()


def open_environment(name: str, /, **options: Any) -> Environment:
    """The environment of this name; raises ValueError, in one line, for an unknown name or a bad option."""
    try:
        return cast(Environment, ENVIRONMENTS.open(name, **options))
    except ValueError as error:
        if not isinstance(error.__cause__, ValidationError):
            raise
        problems = "; ".join(_problem(one) for one in error.__cause__.errors())
        raise ValueError(f"environment {name!r}: {problems}") from None


def environment_options(name: str) -> frozenset[str]:
    """The options that an environment declares as pydantic fields; raises ValueError for an unknown name."""
    fields = getattr(ENVIRONMENTS.load(name), "model_fields", {})
    return frozenset(fields)


def judge_cards(package: str = "") -> dict[str, JudgeCard]:
    """By name, sorted, what the environments say of themselves; with `package` those of one package alone."""
    cards = {}
    for entry in ENVIRONMENTS.entries():
        if entry.value.startswith(package):
            card = getattr(ENVIRONMENTS.imported(entry), "card", None)
            if isinstance(card, JudgeCard):
                cards[entry.name] = card
    return cards


def judge_table(package: str = "") -> str:
    """The cards as the Markdown table that the documentation holds."""
    head = ["judge", "sees", "answers", "reward", "source"]
    rows = [
        [f"`{name}`", card.views, card.answer, card.reward, card.source]
        for name, card in judge_cards(package).items()
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def _problem(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return f"{'.'.join(map(str, error['loc']))}: no such option"
    return fault_line(error)
