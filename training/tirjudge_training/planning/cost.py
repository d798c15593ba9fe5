"""The expected cost of a run by kind of stage, compared with the published one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import get_args

from tirjudge.console_text import span, table
from tirjudge_training.pipelines import open_method
from tirjudge_training.recipe import Rates, Recipe
from tirjudge_training.stages.base import Kind, Size, Stage

TIR = "tir-"
"""The prefix of the judges that TIR Table 8 is about."""


UNKNOWN = "unknown"


def stage_seconds(rates: Rates, stage: Stage, size: Size, parameters: int) -> tuple[float, float]:
    """Return the least and the most seconds of a stage; one process alone runs those not distributed."""
    return rates.seconds(size, parameters, alone=not stage.distributed)


def cost_lines(recipe: Recipe, stages: Sequence[tuple[Stage, Size]], parameters: int) -> Iterator[str]:
    """Yield hours and dollars of the whole run; nothing if the devices are free of charge."""
    # Generated tasks are for demonstrations, whose cost nobody has to plan.
    if not recipe.rates.dollars or recipe.generated:
        return
    rates = recipe.rates
    timed: dict[Kind, list[tuple[float, float]]] = {kind: [] for kind in get_args(Kind)}
    for stage, size in stages:
        if size.timed:
            timed[stage.kind].append(stage_seconds(rates, stage, size, parameters))
    spent = {kind: sums(seconds) for kind, seconds in timed.items()}
    least, most = sums([seconds for each in timed.values() for seconds in each])
    dialogues = sum(size.dialogues for _, size in stages)
    teacher = rates.teacher_cost(dialogues)
    asks = any(stage.asks_teacher for stage, _ in stages)
    without = [stage.name for stage, size in stages if not size.timed]
    rows = [
        *((kind, span(*seconds) if timed[kind] else UNKNOWN) for kind, seconds in spent.items()),
        ("total", span(least, most) if most else UNKNOWN),
        ("devices", _dollars(rates.cost(least), rates.cost(most)) if most else UNKNOWN),
        ("teacher", _dollars(teacher, teacher) if teacher or not asks else UNKNOWN),
    ]
    # A method without a stage of this kind takes no time for it.
    used = {stage.kind for stage, _ in stages}
    rows = [(kind, "none" if kind in timed and kind not in used else text) for kind, text in rows]
    yield ""
    yield f"cost, at ${rates.dollars:,.2f} an hour of a device ([rates] dollars):"
    yield from table(_compared(recipe, rows))
    if without:
        yield f"not in these numbers, because its time is unknown: {', '.join(without)}"


def sums(seconds: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Return the sums of the least and of the most seconds."""
    each = list(seconds)
    return sum(one[0] for one in each), sum(one[1] for one in each)


def is_tir(recipe: Recipe) -> bool:
    """Return True if all judges are TIR-Judge's, whose cost is published."""
    names = [judge.name for judge in recipe.environments.values()]
    return bool(names) and all(name.startswith(TIR) for name in names)


def _compared(recipe: Recipe, rows: list[tuple[str, str]]) -> list[tuple[str, ...]]:
    """Return the rows, with the published figures in a further column if the recipe is TIR-Judge's."""
    published = open_method(recipe).published
    if published is None or not is_tir(recipe):
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
