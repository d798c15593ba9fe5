"""Labels that changed after rows were judged: what follows from them is computed again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from tirjudge.judging.combining import by_views, self_consistency
from tirjudge.judging.judgment import Judgment
from tirjudge.judging.rereading import combined_judgment, recorded_trajectory
from tirjudge.records.result_row import RecordedView, ResultRow
from tirjudge.records.verdicts import JurorVerdict, RecordedReward, reward_record, verdict_credit
from tirjudge.storage.result_file import LABELS, label_facts
from tirjudge_environments import By, Episode, JudgeTask, Score, Segment, StopReason, Trajectory, Unscored
from tirjudge_environments.orders import letters

Rewards = Callable[[Judgment], Sequence[Score]]
"""Returns the reward of each trajectory of a judgment; none if the format gives no reward."""
_UNKNOWN = Unscored("the label changed after the row was judged, and its dialogue is not recorded whole")


def relabelled(row: ResultRow, task: JudgeTask, rewards: Rewards) -> ResultRow:
    """Return a row as if it had been judged with the label of `task`, which is otherwise its own task.

    A view whose recorded reward does not follow from the record and the earlier label gets no reward.
    """
    facts = label_facts(task)
    given = {name: value for name, value in row.to_json().items() if name not in LABELS}
    fresh = ResultRow.model_validate({**given, **facts})
    update: dict[str, Any] = {"correct": _credit(fresh)}
    if row.jury:
        update["jury"] = [_juror(one, fresh) for one in row.jury]
    found = fresh.model_copy(update=update)
    if row.criteria or row.jury:
        return found
    scores = rewards(_judgment(row, task))
    if row.label is not None and not _follow(row, rewards(_judgment(row, replace(task, label=row.label)))):
        scores = [_UNKNOWN] * len(scores)
    views = [view.model_copy(update={"reward": None}) for view in row.views]
    if len(scores) == len(views):
        views = [
            view.model_copy(update={"reward": RecordedReward(**reward_record(score))})
            for view, score in zip(views, scores, strict=True)
        ]
    return found.model_copy(update={"views": [_without_nothing(view) for view in views]})


def _credit(row: ResultRow) -> float | None:
    judgment = None if row.stop == StopReason.ABSTAINED else combined_judgment(row)
    return None if judgment is None else judgment.credit


def _juror(verdict: JurorVerdict, row: ResultRow) -> JurorVerdict:
    if row.label is None or verdict.stop == StopReason.ABSTAINED or row.candidates < 2:
        return verdict.model_copy(update={"correct": None})
    named = letters(row.candidates)
    best: Sequence[int] = [named.index(verdict.verdict)] if verdict.verdict in named else ()
    if verdict.verdict == "tie":
        scores = dict(enumerate(verdict.scores or ()))
        known = [score for score in scores.values() if score is not None]
        top = [index for index, score in scores.items() if known and score == max(known)]
        best = top if len(top) > 1 else range(row.candidates)
    return verdict.model_copy(update={"correct": verdict_credit(best, row.label)})


def _follow(row: ResultRow, scores: Sequence[Score]) -> bool:
    """Return True if the recorded rewards are these."""
    recorded = [view.reward for view in row.views]
    if not any(recorded) and not scores:
        return True
    expected = [RecordedReward(**reward_record(score)) for score in scores]
    return recorded == expected


def _without_nothing(view: RecordedView) -> RecordedView:
    """Return the view, with an empty `reward` left unset."""
    return view if view.reward else RecordedView(**view.model_dump(exclude_unset=True, exclude={"reward"}))


def _judgment(row: ResultRow, task: JudgeTask) -> Judgment:
    samples = [
        by_views(row.format, Episode(task, sample, tuple(map(_trajectory, views))))
        for sample, views in groupby(row.views, key=lambda view: view.sample)
    ]
    return samples[0] if len(samples) == 1 else self_consistency(samples)


def _trajectory(view: RecordedView) -> Trajectory:
    """Return the dialogue of a view, with its programs and their outcomes."""
    segments: list[Segment] = []
    said = hidden = ""

    def end_turn() -> None:
        nonlocal said, hidden
        if said or hidden:
            segments.append(Segment(by=By.MODEL, text=said, reasoning=hidden))
        said = hidden = ""

    for passage in view.segments:
        if passage.kind == "program":
            fence = passage.tool or "python"
            said += f"{_line_end(said)}```{fence}\n{passage.text.rstrip(chr(10))}\n```\n"
        elif passage.kind in ("output", "question"):
            end_turn()
            segments.append(Segment(by=By.SANDBOX, text=passage.text))
        elif passage.hidden:
            hidden += passage.text
        else:
            said += passage.text
    end_turn()
    return replace(recorded_trajectory(view), segments=tuple(segments))


def _line_end(text: str) -> str:
    return "\n" if text and not text.endswith("\n") else ""
