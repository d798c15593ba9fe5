"""Rereadings: the verdicts of a result file, read again from its dialogues and combined again.

A result file may state another verdict than its dialogues end with. A text is read with the options that are
recorded beside the file, and with those that the note of a model may have set and no file records; the
recorded verdict is taken as it is if one of the readings gives it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby, product
from pathlib import Path
from typing import Any

from tirjudge.judging.abstention import Abstention
from tirjudge.judging.checked import checked_of, score_of
from tirjudge.judging.combining import by_criteria, by_views, common_threshold, self_consistency
from tirjudge.judging.empty_answers import rule_view, with_content
from tirjudge.judging.judgment import Judgment, verdict_name
from tirjudge.judging.questions import environment_name
from tirjudge.judging.votes import highest
from tirjudge.records.result_row import (
    RecordedPassage,
    RecordedView,
    ResultRow,
    is_truncated,
    read_result_rows,
)
from tirjudge.records.verdicts import EMPTY, JudgedConfidence, JurorVerdict, RecordedVerdict, verdict_credit
from tirjudge.storage.result_file import LABELS, label_facts, recorded_settings
from tirjudge_environments import (
    Call,
    Completion,
    Criterion,
    Environment,
    Episode,
    Finish,
    JudgeTask,
    Message,
    Prompt,
    Refused,
    RunCode,
    StopReason,
    Trajectory,
    Verdict,
    View,
)
from tirjudge_environments.base import LateText
from tirjudge_environments.boundary import shown_prompt
from tirjudge_environments.orders import letter, letters
from tirjudge_environments.registry import environment_names, environment_options, open_environment
from tirjudge_environments.types import THINK
from tirjudge_sandbox import Execution, Status

_STYLES: tuple[dict[str, Any], ...] = ({}, {"tools": False}, {"style": "answer-only"})
"""Options that decide how an answer is read, and that a model's note may set or a copied file has lost."""
_READ = (StopReason.VERDICT.value, StopReason.MALFORMED.value)
"""Ends of a dialogue that depend on its text alone; budgets and failures do not."""
_MOST_RESPONSES = 1000
CHANGED = "verdict changed"
"""The outcome for a dialogue, or a row, that does not lead to the recorded verdict."""


def verdicts(path: Path) -> Rereading:
    """Return the verdicts of a result file, read again.

    Raises ValueError, in one line, for a file that is truncated, is no result file, or has neither a program
    that was run nor a dialogue; OSError.
    """
    path.stat()
    if is_truncated(path):
        raise ValueError(
            f"{path} ends in the middle of a row: it is truncated, or still being written; "
            "the command that wrote it resumes it"
        )
    found = Rereading.of(path)
    if not found.dialogues:
        raise ValueError(f"{path} has no program that was run: there is nothing to reproduce")
    return found


@dataclass(frozen=True, slots=True)
class ChangedVerdict:
    """A recorded verdict that does not follow from the recorded dialogue or views."""

    row: ResultRow
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
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings recorded beside the file."""

    @classmethod
    def of(cls, results: Path) -> Rereading:
        """Read every row; raises ValueError for a file that is no result file, and OSError."""
        settings = recorded_settings(results) or {}
        found = cls([], settings=settings)
        for row, _ in read_result_rows(results):
            found.add(row)
        return found

    def add(self, row: ResultRow) -> None:
        """Read the verdicts of a row again, and compare them."""
        for view in row.all_views:
            self.dialogues += bool(view.segments)
            if said := self._read_again(row, view):
                reason = f"the file says {_described(view.verdict)}, and {said}"
                self.changed.append(ChangedVerdict(row, _place(view), reason))
        if difference := _combined_difference(row):
            self.changed.append(ChangedVerdict(row, "row", difference))

    def _read_again(self, row: ResultRow, view: RecordedView) -> str:
        """Return what a dialogue says in place of its recorded verdict; empty if that follows from it."""
        recorded = _described(view.verdict)
        if criterion := _checked_criterion(row, view):
            self.read += 1
            printed = "".join(one.stdout for one in view.segments if one.kind == "program")
            score, scores = score_of(printed, criterion), view.verdict.scores if view.verdict else {}
            same = scores == {str(index): score for index in view.order if score is not None}
            return "" if same else f"the checker printed {printed.strip()}"
        if view.view == EMPTY:
            task = row_task(row)
            ruled = rule_view(task, with_content(task))
            same = row.responses is None or recorded == _described(ruled.verdict)
            return "" if same else ruled.detail
        # The models of a jury judge by formats of both families, and the row names one of them.
        kind, is_check = row.format.removeprefix("checks-"), any(one.is_check for one in view.segments)
        environments = _environments(f"checks-{kind}" if is_check else kind, self.settings)
        readings = _readings(row, view, environments) if view.stop in _READ else []
        self.read += bool(readings)
        self.unreadable += view.stop in _READ and not readings
        return "" if not readings or recorded in readings else f"the dialogue says {readings[0]}"


def _checked_criterion(row: ResultRow, view: RecordedView) -> Criterion | None:
    """Return the criterion that a checker decided in a view; None for a dialogue of the model."""
    number = view.criterion
    if number is None or number >= len(row.criteria) or not row.criteria[number].checker:
        return None
    return row.criteria[number].criterion


def _readings(row: ResultRow, view: RecordedView, environments: Sequence[Environment]) -> list[str]:
    """Return the verdicts that the last turn of a dialogue can be read as; empty if it cannot be read."""
    text, hidden = view.last_turn
    if not 1 <= len(view.order) <= _MOST_RESPONSES or max(view.order) >= _MOST_RESPONSES:
        return []
    task, place = row_task(row), View(view.view, tuple(view.order))
    outputs = tuple(one.text for one in view.segments if one.kind in ("output", "question"))
    found = []
    for environment in environments:
        if view.segments and view.segments[-1].kind == "output" and isinstance(environment, LateText):
            settled = environment.settled(place, recorded_trajectory(view).calls)
            found += [verdict] if (verdict := _described(settled)) not in found else []
            continue
        prefill = shown_prompt(environment, task, place).prefill
        # The chat template of a thinking model may have opened the thinking, and a turn may have been cut.
        for start, finish in product((prefill, f"{THINK}\n{prefill}"), (Finish.END, Finish.LENGTH)):
            turns = *view.earlier_turns, text
            *earlier, last = start + turns[0], *turns[1:]
            completion = Completion(
                text=last, finish=finish, reasoning=hidden, earlier=tuple(earlier), outputs=outputs
            )
            reading = environment.read(task, place, completion)
            verdict = _described(reading) if isinstance(reading, Verdict) else _described(None)
            found += [verdict] if verdict not in found else []
    return found


def _environments(format: str, settings: Mapping[str, Any]) -> Sequence[Environment]:
    """Return a format as the settings say, then with other ways to read; empty for an unknown format."""
    name = environment_name(format)
    if name not in environment_names():
        return ()
    given = settings.get("options")
    recorded = {
        **({"tools": settings["tools"]} if "tools" in settings else {}),
        **({"protocol": "tool"} if settings.get("tier") == "tools" else {}),
        **(given if isinstance(given, dict) else {}),
    }
    return _opened(name, json.dumps(recorded, sort_keys=True))


@lru_cache(64)
def _opened(name: str, recorded: str) -> tuple[Environment, ...]:
    known, opened = environment_options(name), []
    # The record of a file of prompts is its hash, and prompts do not decide how an answer is read.
    given = {name: value for name, value in json.loads(recorded).items() if name in known - {"prompts"}}
    for style in _STYLES:
        try:
            if style.keys() <= known - given.keys():
                opened.append(open_environment(name, **given, **style))
        except (TypeError, ValueError):  # a format of another package may need options
            continue
    return tuple(opened)


def row_task(row: ResultRow) -> JudgeTask:
    """Return the row as a task, without the texts that the file leaves out."""
    shown = row.shown_responses
    count = min(max(row.candidates, len(shown)), _MOST_RESPONSES)
    label = row.label if row.label is not None and row.label < count else None
    return JudgeTask(
        id=row.id,
        prompt=row.conversation or (Message("user", "?"),),
        candidates=(*shown, *"?" * (count - len(shown)))[:count],
        reference=row.reference,
        label=label,
        domain=row.domain,
        gold={name: value for name in ("rating", "strength") if (value := getattr(row, name)) is not None},
        criteria=tuple(one.criterion for one in row.criteria),
        **_folders(row, count),
    )


def _folders(row: ResultRow, count: int) -> dict[str, Any]:
    """Return the files of the row as fields of a task; none if their contents are not there."""
    try:
        files = tuple(row.folder(index) for index in range(len(row.files)))
        return {"files": files, "prompt_files": row.folder(None)} if len(files) == count else {}
    except ValueError:
        return {}


def _combined_difference(row: ResultRow) -> str:
    """Return how the row's verdict differs from the combined verdict of all views; empty if equal."""
    try:
        return _combined(row)[1]
    except (IndexError, KeyError, TypeError, ValueError) as error:
        return f"the views cannot be combined ({error})"


def _combined(row: ResultRow) -> tuple[Judgment | None, str]:
    """Return the judgment of the recorded views, and how the row differs from it."""
    found = []
    # A row that is no tie in place of a guess does not say whether the run counted guesses as ties.
    for tie_guesses in (True,) if row.guess else (False, True):
        judged = _of_dialogues(row, tie_guesses=tie_guesses)
        found.append((judged, "" if judged is None else _difference(row, judged)))
        if not found[-1][1]:
            return found[-1]
    return found[0]


def _difference(row: ResultRow, judged: Judgment) -> str:
    """Return how the row's verdict differs from that of its views; empty if equal."""
    # The row may be a tie in place of what its dialogues say.
    combined = judged.tied_without_evidence() if row.guess else judged
    recorded = {index: score for index, score in enumerate(row.scores or ()) if score is not None}
    given, is_open = row.confidence, row.stop == StopReason.ABSTAINED
    for name, before, now in (
        *(
            (f"criterion {number}", one.satisfied, list(again.satisfied))
            for number, (one, again) in enumerate(zip(row.criteria, combined.criteria, strict=True), 1)
        ),
        ("decided", row.decided, judged.decided),
        ("guess", row.guess, verdict_name(combined.guess) or ""),
        ("verdict", given.verdict if given and is_open else row.verdict, combined.verdict),
        ("scores", _rounded(recorded), _rounded(combined.scores)),
        ("correct", row.correct, None if is_open else combined.credit),
    ):
        if before != now:
            return f"the file says {name} {before}, and its views together say {now}"
    return _confidence_difference(row, given, judged) if given else ""


def _confidence_difference(row: ResultRow, given: JudgedConfidence, combined: Judgment) -> str:
    """Return how a confidence does not follow from the views, or the row's state not from the confidence."""
    value, rule = given.value, Abstention(given.below, given.name)
    now = rule.value(combined)
    if (value is None) != (now is None) or (
        value is not None and now is not None and abs(value - now) > 1e-9
    ):
        return f"the file says {given.name} {value}, and its views together say {now}"
    is_open = bool(combined.best) and not rule.is_reached(value)
    if is_open != (row.stop == StopReason.ABSTAINED):
        state = "open" if row.stop == StopReason.ABSTAINED else "decided"
        return f"the file says that the row is {state}, and {given.name} is {value} (below {given.below:g})"
    return ""


def relabelled(row: ResultRow, task: JudgeTask) -> ResultRow:
    """Return a row with the label of `task`, which is otherwise its own task, and what follows from it.

    Rewards are left out: they depend on the label, and on the whole dialogue. Raises IndexError, KeyError,
    TypeError or ValueError for views that cannot be combined.
    """
    given = {name: value for name, value in row.to_json().items() if name not in LABELS}
    fresh = ResultRow.model_validate({**given, **label_facts(task)})
    # By its old label the row tells whether guesses count as ties.
    judgment, _ = (None, "") if row.stop == StopReason.ABSTAINED else _combined(row)
    if judgment is not None:
        judgment = judgment.tied_without_evidence() if row.guess else judgment
        judgment = replace(judgment, episode=replace(judgment.episode, task=row_task(fresh)))
    views = [RecordedView(**one.model_dump(exclude_unset=True, exclude={"reward"})) for one in row.views]
    update: dict[str, Any] = {"correct": None if judgment is None else judgment.credit, "views": views}
    if row.jury:
        update["jury"] = [_relabelled_juror(one, fresh) for one in row.jury]
    return fresh.model_copy(update=update)


def _relabelled_juror(verdict: JurorVerdict, row: ResultRow) -> JurorVerdict:
    if row.label is None or verdict.stop == StopReason.ABSTAINED or row.candidates < 2:
        return verdict.model_copy(update={"correct": None})
    named = letters(row.candidates)
    best: Sequence[int] = [named.index(verdict.verdict)] if verdict.verdict in named else ()
    if verdict.verdict == "tie":
        given = {index: score for index, score in enumerate(verdict.scores or ()) if score is not None}
        top = highest(given, 2)
        best = top if len(top) > 1 else range(row.candidates)
    return verdict.model_copy(update={"correct": verdict_credit(best, row.label)})


def _of_dialogues(row: ResultRow, *, tie_guesses: bool) -> Judgment | None:
    task = row_task(row)
    if not row.criteria:
        found = _of_views(row, task, row.views, row.decided is not None, tie_guesses)
        return None if found is None else replace(found, satisfied_from=row.satisfied_from)
    views = [[view for view in row.views if view.criterion == number] for number in range(len(row.criteria))]
    if not all(views):
        raise ValueError("a criterion has no dialogue")
    asked = [number for number, one in enumerate(row.criteria) if not one.checker]
    # The program of a dialogue about several criteria is evidence for none.
    parts = [
        _of_views(row, task, views[number], row.criteria[number].decided is not None, tie_guesses)
        for number in asked
    ]
    checked = checked_of(
        row.criteria, [recorded_trajectory(one) for one in row.views if _checked_criterion(row, one)]
    )
    whole = by_criteria(
        task,
        [part for part in parts if part is not None],
        common_threshold(row.criteria[number].satisfied_from for number in asked),
        checked=checked,
        kind=row.format,
        tie_guesses=tie_guesses,
    )
    return replace(whole, satisfied_from=row.satisfied_from)


def _of_views(
    row: ResultRow, task: JudgeTask, recorded: Sequence[RecordedView], evidence: bool, tie_guesses: bool
) -> Judgment | None:
    samples = {}
    for sample, views in groupby(recorded, key=lambda view: view.sample):
        trajectories = tuple(recorded_trajectory(view, programs=evidence) for view in views)
        episode = Episode(task, sample, trajectories)
        samples[sample] = by_views(row.format, episode, evidence=evidence, tie_guesses=tie_guesses)
    if not samples:
        return None
    voters = [one for one in row.jury if one.samples]
    if len(voters) < 2:
        return self_consistency(list(samples.values()), tie_guesses=tie_guesses)
    if not samples.keys() >= {number for one in voters for number in one.samples}:
        raise ValueError("a model of the jury has no dialogue")
    votes = [
        self_consistency([samples[number] for number in one.samples], tie_guesses=tie_guesses)
        for one in voters
    ]
    return self_consistency(votes, [one.weight for one in voters], tie_guesses=tie_guesses)


def recorded_trajectory(view: RecordedView, *, programs: bool = True) -> Trajectory:
    """Return the end of a dialogue without its text, with or without its `programs`."""
    verdict = None
    if view.verdict is not None:
        scores = {int(index): score for index, score in view.verdict.scores.items()}
        verdict = Verdict(choice=view.verdict.choice, scores=scores, tie=view.verdict.tie)
    return Trajectory(
        view=View(view.view, tuple(view.order), view.criterion),
        sample=view.sample,
        prompt=Prompt(messages=()),
        prompt_ids=None,
        segments=(),
        calls=tuple(recorded_call(one) for one in view.segments if one.kind == "program") if programs else (),
        stop=StopReason(view.stop),
        verdict=verdict,
        detail=view.detail,
    )


def recorded_call(passage: RecordedPassage) -> Call:
    """Return a recorded program or call; raises KeyError or ValueError for a record that is wrong."""
    request = RunCode(source=passage.text, tool=passage.tool, is_check=passage.is_check)
    if passage.status == "refused":
        return Call(request, Refused(passage.reason))
    exchanged = None
    if passage.exchanged is not None:
        again = passage.exchanged
        exchanged = Execution(
            status=Status(again["status"]),
            stdout=str(again.get("stdout", "")),
            stderr=str(again.get("stderr", "")),
        )
    return Call(
        request,
        Execution(
            status=Status(passage.status),
            exit_code=passage.exit_code,
            signal=passage.signal,
            stdout=passage.stdout,
            stderr=passage.stderr,
            truncated=passage.truncated,
        ),
        seed=passage.seed,
        exchanged=exchanged,
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
