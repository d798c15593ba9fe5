"""Reproductions: the programs of a result file run again, and its verdicts read again from the dialogues.

A result file of somebody else is hostile: its programs run in the sandbox and under the limits of the caller,
and nothing in the file can change either. It may also state another verdict than its dialogues end with. A
text is read with every option of the format that may have been used and does not appear in the file, and the
recorded verdict is taken as it is if one of the readings gives it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from tirjudge.judging.abstention import Abstention
from tirjudge.judging.combining import by_criteria, by_views, common_threshold, self_consistency
from tirjudge.judging.judgment import Judgment
from tirjudge.records.recorded_row import (
    RecordedMessage,
    RecordedPassage,
    RecordedRow,
    RecordedView,
    is_truncated,
    read_result_rows,
)
from tirjudge.records.verdicts import JudgedConfidence, RecordedVerdict
from tirjudge.rollout.concurrency import as_finished
from tirjudge_environments import (
    Completion,
    Environment,
    Episode,
    Finish,
    JudgeTask,
    Message,
    Prompt,
    Response,
    StopReason,
    Trajectory,
    Verdict,
    View,
)
from tirjudge_environments.orders import letter
from tirjudge_environments.programs.outputs import output_text, quote_fences
from tirjudge_environments.quoting import cut_middle
from tirjudge_environments.registry import environment_names, environment_options, open_environment
from tirjudge_environments.tools.base import called
from tirjudge_environments.tools.code_tests import RUN_TESTS, RunTests
from tirjudge_environments.types import THINK
from tirjudge_sandbox import (
    Execution,
    Limits,
    Program,
    Sandbox,
    SandboxUnavailable,
    Status,
    run_with_isolated,
)

_STOPPED = (Status.WALL_LIMIT, Status.CPU_LIMIT, Status.MEMORY_LIMIT, Status.OUTPUT_LIMIT)
_OUR_FORMATS = ("pointwise", "pairwise", "listwise", "tir-pointwise", "tir-pairwise", "tir-listwise")
"""Formats that show outputs in the way of TIR-Judge."""
_CUT = re.compile(r"\n\.\.\. ([0-9]{1,9}) characters left out \.\.\.\n")
_CUT_BYTES = re.compile(r" \([0-9]{1,18} bytes kept, [0-9]{1,18} bytes cut\)(?=\s|$)")
"""The note on how much output of a stopped program was cut, which differs between runs."""
_MOST_CUTS = 8
"""Marks of a cut that are tried in one shown output, since a program may print such marks as well."""
_WHOLE = 1 << 60
_LONGEST_SHOWN = 80


class Outcome(StrEnum):
    """The result of running a recorded program again."""

    SAME = "same"
    DIFFERENT = "different"
    NONDETERMINISTIC = "nondeterministic"
    """It differs from the record, and also between two fresh runs."""
    NOT_REPEATED = "not_repeated"
    """It is a call of a tool of an MCP server, which is not asked again."""
    FAILED = "failed"
    """It could not be run: the sandbox failed, or the file lacks a part of it."""


@dataclass(frozen=True, slots=True)
class RecordedProgram:
    """One program of a result file that the judge ran."""

    row: RecordedRow
    view: str
    sample: int
    number: int
    """Counted from 1 within the dialogue."""
    program: RecordedPassage
    shown: str | None
    """The text that the judge was shown afterwards; None if the dialogue ended before."""


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The comparison of one program."""

    recorded: RecordedProgram
    outcome: Outcome
    reason: str = ""
    """The difference or the failure in one line; untrusted text."""


class WeakIsolation(SandboxUnavailable):
    """The sandbox lacks an isolation property, or does not say which ones it has."""


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


def has_programs(path: Path) -> bool:
    """Return True if a result file has a program that was run."""
    return any(True for _ in recorded_programs(path))


def recorded_programs(path: Path) -> Iterator[RecordedProgram]:
    """Yield every program of a result file that was run, in the order of the file.

    Raises ValueError, in one line, for a file that is no result file.
    """
    for row, _ in read_result_rows(path):
        yield from _programs(row)


async def reproductions(
    programs: Iterator[RecordedProgram], sandbox: Sandbox, limits: Limits, *, allow_weak_isolation: bool
) -> AsyncGenerator[Reproduction]:
    """Run programs in an open sandbox, and yield each comparison as it finishes.

    A program whose outcome differs from the record runs once more, to see whether it is deterministic. Raises
    WeakIsolation before any program runs if the sandbox lacks an isolation property.
    """
    probe = await run_foreign(Program(source=""), sandbox, limits, allow_weak_isolation)
    if probe.status is Status.SANDBOX_FAILED:
        raise SandboxUnavailable(f"the sandbox cannot run an empty program: {probe.detail}")
    works = (_reproduction(one, sandbox, limits, allow_weak_isolation) for one in programs)
    async with aclosing(as_finished(works, 2 * sandbox.capacity)) as finished:
        async for one in finished:
            yield one


def _programs(row: RecordedRow) -> Iterator[RecordedProgram]:
    for view in row.views:
        outputs = [passage.text for passage in view.segments if passage.kind == "output"]
        programs = [passage for passage in view.segments if passage.kind == "program"]
        for number, program in enumerate(programs):
            # A failure of the sandbox says nothing about the program, and a refused one did not run.
            if program.status not in ("refused", Status.SANDBOX_FAILED):
                shown = outputs[number] if number < len(outputs) else None
                if program.tool == RUN_TESTS.name:
                    # A recorded call has no variables; run_tests finds responses in the order of the view.
                    program = program.model_copy(update={"bindings": {"responses": view.order}})
                yield RecordedProgram(row, view.view, view.sample, number + 1, program, shown)


async def _reproduction(
    recorded: RecordedProgram, sandbox: Sandbox, limits: Limits, weak: bool
) -> Reproduction:
    program, seed = recorded.program, recorded.program.seed
    if program.tool not in ("", RUN_TESTS.name):
        return Reproduction(recorded, Outcome.NOT_REPEATED, f"it is a call of the tool {program.tool}")
    if seed is None:
        return Reproduction(recorded, Outcome.FAILED, "its seed is not in the file")
    try:
        first = await _again(recorded, seed, sandbox, limits, weak)
        if first.status is Status.SANDBOX_FAILED:
            return Reproduction(recorded, Outcome.FAILED, first.detail)
        difference = _difference(program, first) or _shown_difference(recorded, first)
        if not difference:
            return Reproduction(recorded, Outcome.SAME)
        second = await _again(recorded, seed, sandbox, limits, weak)
    except (RecursionError, TypeError, ValueError) as error:
        return Reproduction(recorded, Outcome.FAILED, str(error))
    if second.status is Status.SANDBOX_FAILED:
        return Reproduction(recorded, Outcome.FAILED, second.detail)
    stable = _observed(first) == _observed(second)
    return Reproduction(recorded, Outcome.DIFFERENT if stable else Outcome.NONDETERMINISTIC, difference)


async def _again(
    recorded: RecordedProgram, seed: int, sandbox: Sandbox, limits: Limits, weak: bool
) -> Execution:
    """Run a program again, or the tests of a call; raises ValueError if the file lacks a part of it."""
    text, bindings = recorded.program.text, recorded.row.variables(recorded.program)
    if not recorded.program.tool:
        return await run_foreign(Program(source=text, bindings=bindings, seed=seed), sandbox, limits, weak)
    execution = await called(RunTests(sandbox, limits), text, bindings=bindings, seed=seed)
    if execution.status is Status.OK:
        _require_isolation(execution, weak)
    return execution


async def run_foreign(program: Program, sandbox: Sandbox, limits: Limits, weak: bool) -> Execution:
    """Run a program of somebody else; raises WeakIsolation if the sandbox lacks a property, unless `weak`."""
    execution = await run_with_isolated(sandbox, program, limits)
    _require_isolation(execution, weak)
    return execution


def _require_isolation(execution: Execution, weak: bool) -> None:
    if weak or execution.status is Status.SANDBOX_FAILED:
        return
    isolation = execution.isolation
    if isolation is None or isolation.missing:
        lacking = "does not say how it isolates programs"
        if isolation is not None:
            lacking = f"lacks {', '.join(isolation.missing)}"
        raise WeakIsolation(
            f"the sandbox {lacking}, and the programs of a result file may be hostile: "
            "use another --backend, or insist with --allow-weak-isolation"
        )


def _observed(execution: Execution) -> tuple[object, ...]:
    """Return the parts of an execution that are compared.

    The output of a program that was stopped at a limit depends on the machine's speed, and the judge never
    saw it.
    """
    if execution.status in _STOPPED:
        return (execution.status,)
    return execution.status, execution.exit_code, execution.signal, execution.stdout, execution.stderr


def _difference(recorded: RecordedPassage, now: Execution) -> str:
    """Return the first difference between the record and a fresh run; empty if there is none."""
    if recorded.status != now.status:
        return f"status was {recorded.status} and is now {now.status.value}"
    if now.status in _STOPPED:
        return ""
    for name in ("exit_code", "signal", "stdout", "stderr"):
        before, after = getattr(recorded, name), getattr(now, name)
        if before != after:
            return f"{name} was {_excerpt(before, after)} and is now {_excerpt(after, before)}"
    return ""


def _excerpt(value: object, other: object) -> str:
    """Return a value, shortened to the part where it begins to differ from another one."""
    if not isinstance(value, str) or not isinstance(other, str):
        return str(value)
    pairs = enumerate(zip(value, other, strict=False))
    place = next((n for n, (one, two) in pairs if one != two), min(len(value), len(other)))
    start = max(0, place - _LONGEST_SHOWN // 4)
    part = value[start : start + _LONGEST_SHOWN]
    return f"{'...' * (start > 0)}{part!r}{'...' * (start + len(part) < len(value))}"


def _shown_difference(recorded: RecordedProgram, now: Execution) -> str:
    """Return a line if the judge was shown something else than the program's output; empty if not.

    Only TIR-Judge's formats are checked, since others may show outputs in any form.
    """
    shown = recorded.shown
    if shown is not None and now.status is Status.OUTPUT_LIMIT:
        shown, now = _CUT_BYTES.sub("", shown), replace(now, cut_bytes=0)
    if shown is None or recorded.row.format not in _OUR_FORMATS or shown in _showings(shown, now):
        return ""
    whole = output_text(now, _WHOLE)
    return f"the judge was shown {_excerpt(shown, whole)}, and the output is {_excerpt(whole, shown)}"


def _showings(shown: str, now: Execution) -> Iterator[str]:
    """Yield all forms in which a format may show an output (`TirFormat.show`), cut where `shown` is."""
    whole = output_text(now, _WHOLE)
    bodies = [whole]
    for mark in islice(_CUT.finditer(shown), _MOST_CUTS):
        limit = len(whole) - int(mark[1])
        if limit > 0:
            bodies.append(cut_middle(whole, limit))
    for text in bodies:
        for body in (quote_fences(text), text):
            for form in (body, f"{body}\n```\n", f"```output\n{body}\n```\n"):
                yield form
                yield "\n" + form


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
            turns = *view.earlier_turns, text
            *earlier, last = start + turns[0], *turns[1:]
            completion = Completion(text=last, finish=Finish.END, reasoning=hidden, earlier=tuple(earlier))
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
    """Return the row as a task, without the texts that the file leaves out."""
    count = min(max(row.candidates, len(row.responses or [])), _MOST_RESPONSES)
    label = row.label if row.label is not None and row.label < count else None
    return JudgeTask(
        id=row.id,
        prompt=tuple(message.message for message in row.prompt or ()) or (Message("user", "?"),),
        candidates=(*map(_response, row.responses or ()), *"?" * (count - len(row.responses or ())))[:count],
        reference=row.reference,
        label=label,
        domain=row.domain,
        gold={} if row.rating is None else {"rating": row.rating},
        criteria=tuple(one.criterion for one in row.criteria),
    )


def _response(recorded: str | list[RecordedMessage]) -> Response:
    return recorded if isinstance(recorded, str) else tuple(message.message for message in recorded)


def _combined_difference(row: RecordedRow) -> str:
    """Return how the row's verdict differs from that of its views together; empty if it does not."""
    try:
        combined = combined_judgment(row)
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


def combined_judgment(row: RecordedRow) -> Judgment | None:
    """Return the judgment of the recorded views; None for a row without any."""
    task = _task(row)
    if not row.criteria:
        found = _of_views(row, task, row.views)
        return None if found is None else replace(found, satisfied_from=row.satisfied_from)
    parts = [
        _of_views(row, task, [view for view in row.views if view.criterion == number])
        for number in range(len(row.criteria))
    ]
    judged = [part for part in parts if part is not None]
    if len(judged) < len(parts):
        raise ValueError("a criterion has no dialogue")
    whole = by_criteria(task, judged, common_threshold(one.satisfied_from for one in row.criteria))
    return replace(whole, satisfied_from=row.satisfied_from)


def _of_views(row: RecordedRow, task: JudgeTask, recorded: Sequence[RecordedView]) -> Judgment | None:
    samples = {}
    for sample, views in groupby(recorded, key=lambda view: view.sample):
        trajectories = tuple(recorded_trajectory(view) for view in views)
        samples[sample] = by_views(row.format, Episode(task, sample, trajectories))
    if not samples:
        return None
    voters = [one for one in row.jury if one.samples]
    if len(voters) < 2:
        return _of_samples(list(samples.values()))
    if not samples.keys() >= {number for one in voters for number in one.samples}:
        raise ValueError("a model of the jury has no dialogue")
    votes = [_of_samples([samples[number] for number in one.samples]) for one in voters]
    return self_consistency(votes, [one.weight for one in voters])


def _of_samples(samples: Sequence[Judgment]) -> Judgment:
    return samples[0] if len(samples) == 1 else self_consistency(samples)


def recorded_trajectory(view: RecordedView) -> Trajectory:
    """Return the end of a dialogue, without its text and its programs."""
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
