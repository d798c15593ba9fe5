"""Recorded verdicts read again from the recorded dialogues, by the judge formats' own readers.

A result file of somebody else may state another verdict than its dialogues end with. A text is read with
every option of the format that may have been used and does not appear in the file, and the recorded verdict
is taken as it is if one of the readings gives it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from tirjudge.judging.abstention import confidence_of
from tirjudge.judging.combining import by_criteria, by_views, common_threshold, self_consistency
from tirjudge.judging.judgment import Judgment
from tirjudge.records.judged_row import (
    JudgedConfidence,
    RecordedRow,
    RecordedVerdict,
    RecordedView,
    read_result_rows,
)
from tirjudge_environments import (
    Completion,
    Environment,
    Episode,
    Finish,
    JudgeTask,
    Message,
    Prompt,
    StopReason,
    Trajectory,
    Verdict,
    View,
)
from tirjudge_environments.orders import letter
from tirjudge_environments.registry import environment_names, environment_options, open_environment
from tirjudge_environments.types import THINK

_STYLES: tuple[dict[str, Any], ...] = ({}, {"tools": False}, {"style": "answer-only"})
"""Options that decide how an answer is read; each applies to the formats that know it."""
_READ = (StopReason.VERDICT.value, StopReason.MALFORMED.value)
"""Ends of a dialogue that depend on its text alone; budgets and failures do not."""
_MOST_RESPONSES = 1000
CHANGED = "verdict changed"
"""The outcome of a dialogue, or a row, whose recorded verdict does not follow from it."""


@dataclass(frozen=True, slots=True)
class ChangedVerdict:
    """A recorded verdict that does not follow from what the file says led to it."""

    row: RecordedRow
    place: str
    """The view, or `row` for the verdict of all views together."""
    reason: str
    """The difference in one line; untrusted text."""


@dataclass(slots=True)
class Rereading:
    """The verdicts of a result file, read again."""

    changed: list[ChangedVerdict]
    read: int = 0
    """Dialogues whose verdict was read again."""
    dialogues: int = 0
    """All dialogues that are not empty."""
    unreadable: int = 0
    """Dialogues of a format that cannot be opened."""

    @classmethod
    def of(cls, results: Path) -> Rereading:
        """Read every row; raises ValueError for a file that is no result file, and OSError."""
        found = cls([])
        for row, _ in read_result_rows(results):
            found.add(row)
        return found

    def add(self, row: RecordedRow) -> None:
        """Read the verdicts of a row again, and compare them."""
        for view in row.views:
            self.dialogues += bool(view.segments)
            readings = _readings(row, view) if view.stop in _READ else []
            if not readings:
                self.unreadable += view.stop in _READ
                continue
            self.read += 1
            recorded = _described(view.verdict)
            if recorded not in readings:
                reason = f"the file says {recorded}, and the dialogue says {readings[0]}"
                self.changed.append(ChangedVerdict(row, _place(view), reason))
        if difference := _combined_difference(row):
            self.changed.append(ChangedVerdict(row, "row", difference))


def _readings(row: RecordedRow, view: RecordedView) -> list[str]:
    """Return the verdicts that the last turn of a dialogue can be read as; empty if it cannot be read."""
    text, hidden = view.last_turn
    if not 1 <= len(view.order) <= _MOST_RESPONSES or max(view.order) >= _MOST_RESPONSES:
        return []
    task, shown = _task(row), View(view.view, tuple(view.order))
    found = []
    for environment in _environments(row.format):
        prefill = environment.prompt(task, shown).prefill
        # The chat template of a thinking model may have opened the thinking.
        for start in (prefill, f"{THINK}\n{prefill}"):
            completion = Completion(text=start + text, finish=Finish.END, reasoning=hidden)
            reading = environment.read(task, shown, completion)
            verdict = _described(reading) if isinstance(reading, Verdict) else _described(None)
            found += [verdict] if verdict not in found else []
    return found


@cache
def _environments(format: str) -> tuple[Environment, ...]:
    """Return a format with every way to read an answer; empty for a format that cannot be opened."""
    name = f"tir-{format}" if format in ("pointwise", "pairwise", "listwise") else format
    if name not in environment_names():
        return ()
    opened = []
    for style in _STYLES:
        try:
            if style.keys() <= set(environment_options(name)):
                opened.append(open_environment(name, **style))
        except (TypeError, ValueError):  # a format of another package may need options
            continue
    return tuple(opened)


def _task(row: RecordedRow) -> JudgeTask:
    """Return the row as a task; its texts are not needed to read an answer."""
    count = min(max(row.candidates, len(row.responses or [])), _MOST_RESPONSES)
    label = row.label if row.label is not None and row.label < count else None
    return JudgeTask(
        id=row.id,
        prompt=(Message("user", "?"),),
        candidates=tuple("?" * count),
        label=label,
        domain=row.domain,
        criteria=tuple(one.criterion for one in row.criteria),
    )


def _combined_difference(row: RecordedRow) -> str:
    """Return how the row's verdict differs from that of its views together; empty if it does not."""
    try:
        combined = _combined(row)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        return f"the views cannot be combined ({error})"
    if combined is None:
        return ""
    recorded = {index: score for index, score in enumerate(row.scores or ()) if score is not None}
    given, is_open = row.confidence, row.stop == StopReason.ABSTAINED
    for name, before, now in (
        *(
            (f"criterion {number}", one.satisfied, list(again.satisfied))
            for number, (one, again) in enumerate(zip(row.criteria, combined.criteria, strict=True), 1)
        ),
        ("verdict", given.verdict if given and is_open else row.verdict, combined.verdict),
        ("scores", _rounded(recorded), _rounded(combined.scores)),
        ("correct", row.correct, None if is_open else combined.credit),
    ):
        if before != now:
            return f"the file says {name} {before}, and its views together say {now}"
    return _confidence_difference(row, given, combined) if given else ""


def _confidence_difference(row: RecordedRow, given: JudgedConfidence, combined: Judgment) -> str:
    """Return how a confidence does not follow from the views, or the row's state not from the confidence."""
    value = given.value
    if given.name != "separated":
        now = confidence_of(combined, given.name) if combined.best else None
        if (value is None) != (now is None) or (value is not None and now and abs(value - now) > 1e-9):
            return f"the file says {given.name} {value}, and its views together say {now}"
    is_open = bool(combined.best) and (value is None or value < given.below)
    if is_open != (row.stop == StopReason.ABSTAINED):
        state = "open" if row.stop == StopReason.ABSTAINED else "decided"
        return f"the file says that the row is {state}, and {given.name} is {value} (below {given.below:g})"
    return ""


def _combined(row: RecordedRow) -> Judgment | None:
    """Return the judgment of the recorded views; None for a row without any."""
    task = _task(row)
    if not row.criteria:
        return _of_views(row, task, row.views)
    parts = [
        _of_views(row, task, [view for view in row.views if view.criterion == number])
        for number in range(len(row.criteria))
    ]
    found = [part for part in parts if part is not None]
    if len(found) < len(parts):
        raise ValueError("a criterion has no dialogue")
    return by_criteria(task, found, common_threshold(one.satisfied_from for one in row.criteria))


def _of_views(row: RecordedRow, task: JudgeTask, recorded: Sequence[RecordedView]) -> Judgment | None:
    samples = []
    for sample, views in groupby(recorded, key=lambda view: view.sample):
        trajectories = tuple(_trajectory(view) for view in views)
        samples.append(by_views(row.format, Episode(task, sample, trajectories)))
    if not samples:
        return None
    return samples[0] if len(samples) == 1 else self_consistency(samples)


def _trajectory(view: RecordedView) -> Trajectory:
    verdict = None
    if view.verdict is not None:
        scores = {int(index): score for index, score in view.verdict.scores.items()}
        verdict = Verdict(choice=view.verdict.choice, scores=scores, tie=view.verdict.tie)
    return Trajectory(
        view=View(view.view, tuple(view.order)),
        sample=view.sample,
        prompt=Prompt(messages=()),
        prompt_ids=None,
        segments=(),
        calls=(),
        stop=StopReason(view.stop),
        verdict=verdict,
        detail=view.detail,
    )


def _described(verdict: Verdict | RecordedVerdict | None) -> str:
    """Return a verdict in the letters of the row, for a comparison and for people."""
    if verdict is None:
        return "none"
    parts = ["a tie"] if verdict.tie else []
    parts += [] if verdict.choice is None else [letter(verdict.choice)]
    scores = {int(index): score for index, score in verdict.scores.items() if str(index).isdecimal()}
    parts += [f"{letter(index)} = {score:.6g}" for index, score in sorted(scores.items())]
    return ", ".join(parts) or "nothing"


def _rounded(scores: Any) -> dict[int, float]:
    return {index: round(score, 9) for index, score in scores.items()}


def _place(view: RecordedView) -> str:
    criterion = "" if view.criterion is None else f"criterion {view.criterion + 1} "
    sample = f" sample {view.sample}" if view.sample else ""
    return f"{criterion}{view.view}{sample}"
