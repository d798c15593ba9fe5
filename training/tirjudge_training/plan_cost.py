"""What a run would cost, by kind of stage, beside what its paper says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tirjudge_training.published_costs import TIR_TABLE_8
from tirjudge_training.recipe import Recipe
from tirjudge_training.span import span
from tirjudge_training.stages.base import Size, Stage
from tirjudge_training.stages.fine_tuning import FineTuning
from tirjudge_training.stages.reinforcement import Reinforcement
from tirjudge_training.stages.rejection import Rejection
from tirjudge_training.stages.teaching import Teaching
from tirjudge_training.table import table

KINDS: dict[str, type[Stage]] = {
    "SFT": FineTuning,
    "rejection sampling": Rejection,
    "RL": Reinforcement,
}
OTHERS = "selection, measuring"
OURS = "tir-"
"""How the judges' names begin that TIR Table 8 is about."""


def cost_lines(recipe: Recipe, stages: Sequence[tuple[Stage, Size]], parameters: int) -> Iterator[str]:
    """Hours and dollars of the whole run; nothing where an hour costs nothing."""
    if not recipe.rates.dollars or recipe.generated:
        return
    rates = recipe.rates
    spent = dict.fromkeys((*KINDS, OTHERS), (0.0, 0.0))
    for stage, size in stages:
        least, most = rates.seconds(size, parameters)
        kind = next((name for name, one in KINDS.items() if isinstance(stage, one)), OTHERS)
        spent[kind] = (spent[kind][0] + least, spent[kind][1] + most)
    whole = [sum(one[i] for one in spent.values()) for i in (0, 1)]
    dialogues = sum(size.dialogues for stage, size in stages if isinstance(stage, Teaching))
    teacher = rates.teacher_cost(dialogues)
    rows = [
        *((kind, span(*seconds)) for kind, seconds in spent.items()),
        ("together", span(whole[0], whole[1])),
        ("devices", _dollars(rates.cost(whole[0]), rates.cost(whole[1]))),
        ("teacher", _dollars(teacher, teacher)),
    ]
    yield ""
    yield f"cost, at ${rates.dollars:,.2f} an hour of a device ([rates] dollars):"
    yield from table(_beside(recipe, rows))


def _beside(recipe: Recipe, rows: list[tuple[str, str]]) -> list[tuple[str, ...]]:
    """With the published figures, where the recipe is theirs."""
    names = [judge.name for judge in recipe.environments.values()]
    found = TIR_TABLE_8.get(recipe.method)
    if found is None or not names or not all(name.startswith(OURS) for name in names):
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
