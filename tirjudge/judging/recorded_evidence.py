"""Evidence of stored verdicts: the last programs of a result file, run again with exchanged responses."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, get_args

from tirjudge.judging.questions import Kind
from tirjudge.judging.reproduction import run_foreign
from tirjudge.judging.rereading import combined_judgment, recorded_trajectory
from tirjudge.records.recorded_row import (
    RecordedPassage,
    RecordedRow,
    RecordedView,
    exchanged_record,
    read_result_row,
)
from tirjudge.records.text import checker_of
from tirjudge.rollout.concurrency import as_finished
from tirjudge.storage.json_lines import JsonObject
from tirjudge.storage.kept_files import KeptFiles, keep_prepared
from tirjudge.storage.result_file import copy_sidecars, recorded_settings
from tirjudge_environments import Response
from tirjudge_environments.files import Folder, program_of
from tirjudge_environments.formats.tir_pointwise import other_folders, other_responses
from tirjudge_environments.messages import response_data
from tirjudge_environments.programs.evidence import evidence_of
from tirjudge_environments.registry import environment_names, environment_options
from tirjudge_sandbox import Execution, Limits, Sandbox, Status
from tirjudge_sandbox.prepared import prepared_files

_RESPONSE, _FILES = "response", "files"
"""Beginnings of the names of a program's variables that hold responses and their files."""
FoundRow = tuple[RecordedRow, Mapping[str, Any]]
"""A parsed row of a result file, and the raw fields of the row."""


async def rows_with_evidence(
    rows: Iterable[FoundRow],
    sandbox: Sandbox,
    limits: Limits,
    *,
    settings: Mapping[str, Any],
    allow_weak_isolation: bool,
) -> AsyncGenerator[JsonObject]:
    """Yield the fields of each row, with `decided` and `evidence` of the views, as rows finish.

    A row stays unchanged if `decided` is known, if its programs have no variables that could be exchanged, as
    by the `settings` of the run, and if the format records no evidence. Where the file lacks texts or seeds,
    `evidence` is `unchecked`. Verdicts are never changed. Raises WeakIsolation.
    """
    if settings.get("exact") or not (settings.get("bindings", True) and settings.get("tools", True)):
        for _, given in rows:
            yield dict(given)
        return
    size, weak = settings.get("criteria_per_call"), allow_weak_isolation
    works = (_with_evidence(row, fields, sandbox, limits, weak, size) for row, fields in rows)
    async with aclosing(as_finished(works, 2 * sandbox.capacity)) as finished:
        async for fields in finished:
            yield fields


def keeping_files(rows: Iterable[FoundRow], output: Path) -> Iterator[FoundRow]:
    """Yield the rows of a result file, each once the contents of its files are beside the file `output`.

    Contents that are missing beside the result file, or were changed, are left out. Raises OSError.
    """
    kept = KeptFiles(output)
    for row, fields in rows:
        for index in (None, *range(len(row.files))):
            with suppress(ValueError):
                kept.keep([row.folder(index)])
        yield row, fields


def keep_settings(results: Path, output: Path, prepare: str) -> None:
    """Write what else lies beside a result file next to `output`: settings, failed rows, prepared program.

    The program is the one at `prepare`, which `require_prepared` compared with the recorded one.
    """
    copy_sidecars(results, output)
    if (recorded_settings(results) or {}).get("prepare") and prepare:
        keep_prepared(output, prepared_files(prepare))


async def _with_evidence(
    row: RecordedRow, given: Mapping[str, Any], sandbox: Sandbox, limits: Limits, weak: bool, size: Any
) -> JsonObject:
    if row.decided is not None or _shares_dialogues(row, size) or not _knows_evidence(row.format):
        return dict(given)
    fields: JsonObject = json.loads(json.dumps(given))
    for view, record in zip(row.views, fields["views"], strict=True):
        places = [
            place
            for place, one in enumerate(view.segments)
            if one.kind == "program" and not one.tool and one.status == Status.OK
        ]
        if not places or checker_of(view, row.criteria):
            continue
        program = view.segments[places[-1]]
        if program.bindings is not None and not any(map(_is_exchanged, program.bindings)):
            return dict(given)
        if program.exchanged is None:
            again = await _exchanged(row, view, program, sandbox, limits, weak)
            if again is not None:
                record["segments"][places[-1]]["exchanged"] = exchanged_record(again)
    judged = read_result_row(fields, row.id)
    try:
        for view, record in zip(judged.views, fields["views"], strict=True):
            if checker_of(view, row.criteria):
                continue
            record["evidence"] = evidence_of(recorded_trajectory(view)).value
        combined = combined_judgment(judged, evidence=True)
    except (IndexError, KeyError, TypeError, ValueError):  # an edited file, which `Rereading` reports
        return dict(given)
    if combined is None or combined.decided is None:
        return fields
    return fields | {"decided": combined.decided}


def _knows_evidence(format: str) -> bool:
    """Return True if a kind or format runs programs again with exchanged responses."""
    name = f"tir-{format}" if format in get_args(Kind) else format
    return name in environment_names() and "evidence" in environment_options(name)


def _shares_dialogues(row: RecordedRow, size: Any) -> bool:
    """Return True if a dialogue is about several criteria, of which the run asked `size` at once.

    Where the settings of the run are lost, the later parts of a dialogue have no time and no tokens of their
    own. An endpoint may report no tokens, but every dialogue takes time.
    """
    asked = [view for view in row.views if not checker_of(view, row.criteria)]
    if len({view.criterion for view in asked}) < 2:
        return False
    if isinstance(size, int):
        return size > 1
    return any(not (view.seconds or view.prompt_tokens or view.completion_tokens) for view in asked)


def _is_exchanged(name: str) -> bool:
    """Return True for a variable with responses or their files, unlike the prompt or the reference.

    The name decides: a reference answer may have the text of a response.
    """
    return name.startswith((_RESPONSE, _FILES))


async def _exchanged(
    row: RecordedRow,
    view: RecordedView,
    program: RecordedPassage,
    sandbox: Sandbox,
    limits: Limits,
    weak: bool,
) -> Execution | None:
    """Run a program again as the format does for evidence; None if the file lacks a part of it."""
    again = None
    try:
        for bindings in _bindings(row, view, program) if program.seed is not None else ():
            source, room = program_of(program.text, bindings, limits, seed=program.seed or 0)
            again = await run_foreign(source, sandbox, room, weak)
            if again.status is Status.OK and again.stdout != program.stdout:
                break
    except (RecursionError, TypeError, ValueError):
        return None
    return again


def _bindings(row: RecordedRow, view: RecordedView, program: RecordedPassage) -> list[dict[str, Any]]:
    """Return the variables of further runs; raises ValueError if the row lacks one."""
    variables, order = row.variables(program), view.order
    references = program.bindings or {}
    if len(order) > 1:
        following = dict(zip(order, (*order[1:], order[0]), strict=True))
        moved = {
            name: _moved(reference, following) if _is_exchanged(name) else reference
            for name, reference in references.items()
        }
        return [row.variables(program.model_copy(update={"bindings": moved}))]
    others = other_responses(row.shown_responses, order[0])
    folders = other_folders([row.folder(index) for index in range(len(row.files))], order[0])

    def exchanged(name: str, other: Response, files: Sequence[Folder]) -> Any:
        if not _is_exchanged(name):
            return variables[name]
        return files[0] if _names_files(references[name]) else response_data(other)

    return [
        {name: exchanged(name, other, files) for name in variables}
        for other, files in zip(others, folders, strict=True)
    ]


def _names_files(reference: Any) -> bool:
    return isinstance(reference, Mapping) and "files" in reference


def _moved(reference: Any, following: Mapping[int, int]) -> Any:
    """Return the reference with each index of a response replaced as `following` says."""
    if isinstance(reference, list):
        return [_moved(one, following) for one in reference]
    if _names_files(reference):
        return {"files": _moved(reference["files"], following)}
    return following.get(reference, reference) if isinstance(reference, int) else reference
