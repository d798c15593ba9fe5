"""Reproductions: the programs of a result file run again.

A result file of somebody else is hostile: its programs run in the sandbox and under the limits of the caller,
and nothing in the file can change either.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from tirjudge.judging.empty_answers import left, with_content
from tirjudge.judging.questions import FAMILIES, environment_name
from tirjudge.judging.rereading import row_task
from tirjudge.records.result_row import RecordedPassage, ResultRow, read_result_rows
from tirjudge.records.verdicts import EMPTY
from tirjudge.rollout.concurrency import as_finished
from tirjudge.storage.kept_files import prepared_path
from tirjudge.storage.result_file import recorded_settings
from tirjudge_environments import View
from tirjudge_environments.boundary import marks_of
from tirjudge_environments.files.placing import program_of
from tirjudge_environments.formats.tir import TirFormat
from tirjudge_environments.programs.check_harness import completed
from tirjudge_environments.programs.outputs import UNFINISHED, output_text, quote_fences, replacement_note
from tirjudge_environments.quoting import cut_middle, with_look_alikes
from tirjudge_environments.registry import open_environment
from tirjudge_environments.tools.base import called
from tirjudge_environments.tools.code_tests import RUN_TESTS, RunTests
from tirjudge_sandbox import (
    Execution,
    Limits,
    Program,
    Sandbox,
    SandboxUnavailable,
    Status,
    run_with_isolated,
)
from tirjudge_sandbox.prepared import prepared_digest

_STOPPED = (Status.WALL_LIMIT, Status.CPU_LIMIT, Status.MEMORY_LIMIT, Status.OUTPUT_LIMIT)
_CUT = re.compile(r"\n\.\.\. ([0-9]{1,9}) characters left out \.\.\.\n")
_CUT_BYTES = re.compile(r" \([0-9]{1,18} bytes kept, [0-9]{1,18} bytes cut\)(?=\s|$)")
"""The note on how much output of a stopped program was cut, which differs between runs."""
_MOST_CUTS = 8
"""Marks of a cut that are tried in one shown output, since a program may print such marks as well."""
_WHOLE = 1 << 60
_LONGEST_SHOWN = 80


class RerunStatus(StrEnum):
    """The result of running a recorded program again."""

    SAME = "same"
    DIFFERENT = "different"
    NONDETERMINISTIC = "nondeterministic"
    """The outcome differs from the record and between two fresh runs."""
    NOT_REPEATED = "not_repeated"
    """The call of an MCP server's tool, which is not made again."""
    FAILED = "failed"
    """The sandbox failed, or the file lacks a part of the program."""


@dataclass(frozen=True, slots=True)
class RecordedProgram:
    """One program of a result file that the judge ran."""

    row: ResultRow
    view: str
    order: Sequence[int]
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
    outcome: RerunStatus
    reason: str = ""
    """The difference or the failure in one line; untrusted text."""


class WeakIsolation(SandboxUnavailable):
    """The sandbox lacks an isolation property, or does not say which ones it has."""


def has_programs(path: Path) -> bool:
    """Return True if a result file has a program that was run."""
    return any(True for _ in recorded_programs(path))


def require_prepared(results: Path, given: str) -> None:
    """Raise ValueError, in one line, unless the prepared program `given` is the recorded one, if any.

    The copy beside the results is never used unasked: prepared programs are trusted, and results may be a
    stranger's.
    """
    recorded = (recorded_settings(results) or {}).get("prepare")
    if not recorded or (given and prepared_digest(given) == recorded):
        return
    kept = prepared_path(results)
    where = f"--prepare {shlex.quote(str(kept))}" if kept.is_dir() else "its file as --prepare FILE"
    found = f"{given} is another one" if given else "none is given"
    raise ValueError(
        f"these programs ran after a prepared program, and {found}: it runs as trusted code: read it first, "
        f"then give {where}"
    )


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
    probe = await _run_foreign(Program(source=""), sandbox, limits, allow_weak_isolation)
    if probe.status is Status.SANDBOX_FAILED:
        raise SandboxUnavailable(f"the sandbox cannot run an empty program: {probe.detail}")
    works = (_reproduction(one, sandbox, limits, allow_weak_isolation) for one in programs)
    async with aclosing(as_finished(works, 2 * sandbox.capacity)) as finished:
        async for one in finished:
            yield one


def _programs(row: ResultRow) -> Iterator[RecordedProgram]:
    for view in row.all_views:
        outputs = [passage.text for passage in view.segments if passage.kind == "output"]
        programs = [passage for passage in view.segments if passage.kind == "program"]
        for number, program in enumerate(programs):
            # A failure of the sandbox says nothing about the program, and a refused one did not run.
            if program.status not in ("refused", Status.SANDBOX_FAILED):
                shown = outputs[number] if number < len(outputs) else None
                if program.tool == RUN_TESTS.name:
                    # A recorded call has no variables; run_tests finds responses in the order of the view.
                    files = {"files": [{"files": index} for index in view.order]} if row.files else {}
                    bindings = {"responses": view.order, **files}
                    program = program.model_copy(update={"bindings": bindings})
                yield RecordedProgram(row, view.view, view.order, view.sample, number + 1, program, shown)


async def _reproduction(
    recorded: RecordedProgram, sandbox: Sandbox, limits: Limits, weak: bool
) -> Reproduction:
    program, seed = recorded.program, recorded.program.seed
    if program.tool not in ("", RUN_TESTS.name):
        return Reproduction(recorded, RerunStatus.NOT_REPEATED, f"it is a call of the tool {program.tool}")
    if seed is None:
        return Reproduction(recorded, RerunStatus.FAILED, "its seed is not in the file")
    try:
        first = await _again(recorded, seed, sandbox, limits, weak)
        difference = _difference(program, first[0]) or _shown_difference(recorded, first[0])
        difference = difference or _exchanged_difference(program, first)
        if not difference:
            return Reproduction(recorded, RerunStatus.SAME)
        second = await _again(recorded, seed, sandbox, limits, weak)
    except (IndexError, RecursionError, TypeError, ValueError) as error:
        return Reproduction(recorded, RerunStatus.FAILED, str(error))
    stable = list(map(_observed, first)) == list(map(_observed, second))
    return Reproduction(
        recorded, RerunStatus.DIFFERENT if stable else RerunStatus.NONDETERMINISTIC, difference
    )


async def _again(
    recorded: RecordedProgram, seed: int, sandbox: Sandbox, limits: Limits, weak: bool
) -> list[Execution]:
    """Run a program again, and last with other responses if the record has that, or the tests of a call.

    Raises ValueError if the sandbox fails, and if the file lacks a part of the program.
    """
    text, bindings = recorded.program.text, recorded.row.variables(recorded.program)
    if recorded.program.tool:
        found = [await called(RunTests(sandbox, limits), text, bindings=bindings, seed=seed)]
        if found[0].status is Status.OK:
            _require_isolation(found[0], weak)
    else:
        text = completed(text) if recorded.program.is_check else text
        program, room = program_of(text, bindings, limits, seed=seed)
        found = [await _run_foreign(program, sandbox, room, weak)]
        for other in _exchanged(recorded) if found[0].status is Status.OK else ():
            program, room = program_of(text, {**bindings, **other}, limits, seed=seed)
            again = await _run_foreign(program, sandbox, room, weak)
            found = [found[0], again]
            # The record keeps one of these runs: the one after which the judge's session tried no further.
            if not _exchanged_difference(recorded.program, found):
                break
    if failed := [one.detail for one in found if one.status is Status.SANDBOX_FAILED]:
        raise ValueError(failed[0])
    return found


def _exchanged(recorded: RecordedProgram) -> Sequence[Mapping[str, Any]]:
    """Return the variables of the runs with other responses; empty if the record has no such run."""
    again, format = recorded.program.exchanged, environment_name(recorded.row.format)
    if again is None or again.get("status") == Status.SANDBOX_FAILED or not format.startswith(FAMILIES):
        return ()
    task, environment = row_task(recorded.row), open_environment(format, evidence="recorded")
    # The dialogues of a row with an empty answer are about the others alone.
    is_ruled = any(view.view == EMPTY for view in recorded.row.views)
    kept = with_content(task) if is_ruled else tuple(range(len(task.candidates)))
    view = View(recorded.view, tuple(map(kept.index, recorded.order)))
    return environment.exchanged(left(task, kept), view) if isinstance(environment, TirFormat) else ()


async def _run_foreign(program: Program, sandbox: Sandbox, limits: Limits, weak: bool) -> Execution:
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

    The output of a program that was stopped at a limit depends on the machine's speed.
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


def _exchanged_difference(recorded: RecordedPassage, now: Sequence[Execution]) -> str:
    """Return the first difference of the run with other responses; empty without one, or without such a run.

    Its exit code and signal are not recorded.
    """
    if recorded.exchanged is None or len(now) < 2:
        return ""
    again = recorded.model_copy(
        update={"exit_code": now[1].exit_code, "signal": now[1].signal, **recorded.exchanged}
    )
    difference = _difference(again, now[1])
    return difference and f"with other responses, {difference}"


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
    if shown is not None and not recorded.program.is_check:
        note = replacement_note(recorded.program.text, recorded.program.bindings or ())
        shown = "".join(shown.rsplit(note, 1)) if note else shown
    if shown is not None and now.status in _STOPPED:
        # A slower machine stops the same program after less output.
        line, mark, _ = shown.partition(UNFINISHED)
        shown, now = f"{line}\n```\n" if mark else shown, replace(now, stdout="")
    if shown is not None and now.status is Status.OUTPUT_LIMIT:
        shown, now = _CUT_BYTES.sub("", shown), replace(now, cut_bytes=0)
    format = environment_name(recorded.row.format)
    if shown is None or not format.startswith(FAMILIES):
        return ""
    marks = ((), *_marks(format))
    forms = (with_look_alikes(form, one) for form in _showings(shown, now) for one in marks)
    # The output of a check stands between the responses and the question.
    if any(form in shown if recorded.program.is_check else form == shown for form in forms):
        return ""
    whole = output_text(now, _WHOLE)
    return f"the judge was shown {_excerpt(shown, whole)}, and the output is {_excerpt(whole, shown)}"


@cache
def _marks(format: str) -> tuple[tuple[str, ...], ...]:
    return tuple(marks_of(open_environment(format, protocol=one)) for one in ("fence", "tool"))


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
