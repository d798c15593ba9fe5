"""The expected cost of a run by kind of stage, compared with the published one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import get_args

from tirjudge.console_text import span, table
from tirjudge_training.pipelines import open_method
from tirjudge_training.recipe import Recipe
from tirjudge_training.stages.base import Kind, Size, Stage

TIR = "tir-"
"""The prefix of the judges that TIR Table 8 is about."""


def cost_lines(recipe: Recipe, stages: Sequence[tuple[Stage, Size]], parameters: int) -> Iterator[str]:
    """Yield hours and dollars of the whole run; nothing if the devices are free of charge."""
    # Generated tasks are for demonstrations, whose cost nobody has to plan.
    if not recipe.rates.dollars or recipe.generated:
        return
    rates = recipe.rates
    spent: dict[Kind, tuple[float, float]] = dict.fromkeys(get_args(Kind), (0.0, 0.0))
    for stage, size in stages:
        shortest, longest = rates.seconds(size, parameters)
        before = spent[stage.kind]
        spent[stage.kind] = (before[0] + shortest, before[1] + longest)
    least, most = (sum(seconds[i] for seconds in spent.values()) for i in (0, 1))
    dialogues = sum(size.dialogues for _, size in stages)
    teacher = rates.teacher_cost(dialogues)
    rows = [
        *((kind, span(*seconds)) for kind, seconds in spent.items()),
        ("total", span(least, most)),
        ("devices", _dollars(rates.cost(least), rates.cost(most))),
        ("teacher", _dollars(teacher, teacher)),
    ]
    yield ""
    yield f"cost, at ${rates.dollars:,.2f} an hour of a device ([rates] dollars):"
    yield from table(_compared(recipe, rows))


def _compared(recipe: Recipe, rows: list[tuple[str, str]]) -> list[tuple[str, ...]]:
    """Return the rows, with the published figures in a further column if the recipe is TIR-Judge's."""
    names = [judge.name for judge in recipe.environments.values()]
    published = open_method(recipe).published
    if published is None or not names or not all(name.startswith(TIR) for name in names):
        return [(f"  {kind}", expected) for kind, expected in rows]
    hours = [
        *(f"{value:.1f} h" for value in (published.sft, published.rejection, published.rl)),
        "",
        f"{published.hours:.1f} h",
    ]
    printed = [
        *hours,
        f"about ${published.compute:,.0f}",
        f"about ${published.teacher:,.0f}" if published.teacher else "$0",
    ]
    head = ("", "this run", "TIR Table 8, its 8B")
    cells = zip(rows, printed, strict=True)
    return [head, *((f"  {kind}", expected, figure) for (kind, expected), figure in cells)]


def _dollars(least: float, most: float) -> str:
    shown = f"${least:,.0f}", f"${most:,.0f}"
    return shown[0] if shown[0] == shown[1] else " to ".join(shown)
