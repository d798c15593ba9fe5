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
    if not recipe.rates.dollars or recipe.generated:
        return
    rates = recipe.rates
    spent: dict[Kind, tuple[float, float]] = dict.fromkeys(get_args(Kind), (0.0, 0.0))
    for stage, size in stages:
        least, most = rates.seconds(size, parameters)
        before = spent[stage.kind]
        spent[stage.kind] = (before[0] + least, before[1] + most)
    whole = [sum(one[i] for one in spent.values()) for i in (0, 1)]
    dialogues = sum(size.dialogues for _, size in stages)
    teacher = rates.teacher_cost(dialogues)
    rows = [
        *((kind, span(*seconds)) for kind, seconds in spent.items()),
        ("total", span(whole[0], whole[1])),
        ("devices", _dollars(rates.cost(whole[0]), rates.cost(whole[1]))),
        ("teacher", _dollars(teacher, teacher)),
    ]
    yield ""
    yield f"cost, at ${rates.dollars:,.2f} an hour of a device ([rates] dollars):"
    yield from table(_compared(recipe, rows))


def _compared(recipe: Recipe, rows: list[tuple[str, str]]) -> list[tuple[str, ...]]:
    """Return the rows, with the published figures in a further column if the recipe is TIR-Judge's."""
    names = [judge.name for judge in recipe.environments.values()]
    found = open_method(recipe).published
    if found is None or not names or not all(name.startswith(TIR) for name in names):
        return [(f"  {kind}", here) for kind, here in rows]
    hours = [
        *(f"{value:.1f} h" for value in (found.sft, found.rejection, found.rl)),
        "",
        f"{found.hours:.1f} h",
    ]
    printed = [
        *hours,
        f"about ${found.compute:,.0f}",
        f"about ${found.teacher:,.0f}" if found.teacher else "$0",
    ]
    head = ("", "here", "TIR Table 8, its 8B")
    return [head, *((f"  {kind}", here, there) for (kind, here), there in zip(rows, printed, strict=True))]


def _dollars(least: float, most: float) -> str:
    shown = f"${least:,.0f}", f"${most:,.0f}"
    return shown[0] if shown[0] == shown[1] else " to ".join(shown)
