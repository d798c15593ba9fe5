"""The check of a bundle: its rows, verdicts, programs and scores, each compared with what it follows from."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tirjudge.data.rows import BadRow, Row
from tirjudge.evaluation.bundles.bundle import MANIFEST, ROWS, VERDICTS, RowRecord, Unpacked, content_hash
from tirjudge.evaluation.runs import score_record, score_run
from tirjudge.evaluation.stored_outputs.reading import open_replay
from tirjudge.judging.reproduction import Outcome, recorded_programs, reproductions
from tirjudge.judging.rereading import Rereading
from tirjudge.judging.result_rows import RecordedRow, read_result_rows
from tirjudge.storage.result_file import digest
from tirjudge.storage.run_folder import complete_file, encode_line
from tirjudge_environments import JudgeTask, Message
from tirjudge_environments.tasks import DEFAULT_COLUMNS, Columns, RowError, read_task
from tirjudge_sandbox import Limits, Sandbox

_TOLERANCE = 1e-9
_COMPARED = ("value", "low", "high", "n")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a bundle claims and that does not hold."""

    what: str
    """`file`, `row`, `verdict`, `program` or `score`."""
    where: str
    """The member, the row with its view and program, or the protocol with its figure; untrusted."""
    reason: str
    """The difference in one line; untrusted."""


@dataclass(slots=True)
class Checked:
    """Counts of what was checked, and everything that does not hold."""

    findings: list[Finding] = field(default_factory=list)
    rows: int = 0
    given_rows: int | None = None
    """Rows of the benchmark that the bundle's rows were compared with; None without any."""
    verdicts: int = 0
    """Dialogues whose verdict was read again."""
    programs: int = 0
    """Programs that were run again."""
    figures: int = 0
    """Numbers that were computed again."""

    def add(self, what: str, where: str, reason: str) -> None:
        self.findings.append(Finding(what, where, reason))


@dataclass(frozen=True, slots=True)
class GivenRows:
    """Rows to compare with, by id."""

    name: str
    tasks: Mapping[str, JudgeTask]

    @classmethod
    def of(
        cls, name: str, rows: Iterable[Row | BadRow], columns: Columns, labels: Mapping[str, str] | None
    ) -> GivenRows:
        """Read rows as `tirjudge judge` does. Raises ValueError, with file and line, for one that is none."""
        tasks = {}
        for row in rows:
            if isinstance(row, BadRow):
                raise ValueError(f"{row.where}: {row.reason}")
            try:
                task = read_task(row.fields, default_id=row.default_id, columns=columns, labels=labels)
            except RowError as error:
                raise ValueError(f"{row.where}: {error}") from None
            tasks[task.id] = task
        return cls(name, tasks)


def recorded_columns(settings: Mapping[str, Any]) -> tuple[Columns, Mapping[str, str] | None]:
    """Return the columns and the meaning of labels of a run; the usual ones for settings of another shape."""
    columns, labels = settings.get("columns"), settings.get("labels")
    try:
        read = Columns.model_validate(columns) if columns else DEFAULT_COLUMNS
    except ValueError:
        read = DEFAULT_COLUMNS
    valid = isinstance(labels, dict) and all(isinstance(one, str) for one in labels.values())
    return read, labels if valid else None


async def checked(
    bundle: Unpacked, sandbox: Sandbox, limits: Limits, *, given: GivenRows | None, weak: bool
) -> Checked:
    """Check everything in a bundle; its programs run in an open sandbox.

    Raises WeakIsolation before any program runs if the sandbox lacks an isolation property and `weak` is
    false, and ValueError, in one line, for verdicts that are no result file.
    """
    found = Checked(rows=len(bundle.rows))
    for name in bundle.changed:
        found.add("file", name, "its hash is not the one in the manifest")
    if bundle.manifest.rows != len(bundle.rows):
        found.add(
            "file", ROWS, f"it has {len(bundle.rows)} rows, and the manifest says {bundle.manifest.rows}"
        )
    _check_rows(bundle, found)
    if given is not None:
        _check_given(bundle.rows, given, found)
        _add_texts(bundle.verdicts, given)
    _check_verdicts(bundle.verdicts, found)
    async with aclosing(_programs(bundle.verdicts, sandbox, limits, weak, found)) as findings:
        async for one in findings:
            found.findings.append(one)
    _check_scores(bundle, found)
    return found


def _check_rows(bundle: Unpacked, found: Checked) -> None:
    """Compare the rows with the verdicts on them: the same ids, labels and contents."""
    known = {row.id: row for row in bundle.rows}
    judged = set()
    for row, fields in read_result_rows(bundle.verdicts):
        if row.id in judged:
            found.add("row", row.id, f"{VERDICTS} has it twice")
        judged.add(row.id)
        if row.id not in known:
            found.add("row", row.id, f"it is in {VERDICTS} and not in {ROWS}")
            continue
        recorded = known[row.id]
        for name, said, now in (
            ("label", recorded.label, row.label),
            ("domain", recorded.domain, row.domain),
            ("tags", recorded.tags, row.tags),
            ("digest", recorded.digest, fields.get("digest", "")),
        ):
            if said != now:
                found.add("row", row.id, f"its {name} is {said!r} in {ROWS} and {now!r} in {VERDICTS}")
        content = content_hash(row)
        if content is not None and content != recorded.sha256:
            found.add("row", row.id, "its content does not have the recorded hash")
        if content is not None and not row.cut and _digest(row) != recorded.digest:
            found.add("row", row.id, "it was judged with another prompt, responses or label than recorded")
    for id in known.keys() - judged:
        found.add("row", id, f"it is in {ROWS} and not in {VERDICTS}")


def _digest(row: RecordedRow) -> str:
    """Return the digest of the task that a row with its texts was made from."""
    task = JudgeTask(
        id=row.id,
        prompt=tuple(Message(one.role, one.content) for one in row.prompt or ()),
        candidates=tuple(row.responses or ()),
        label=row.label,
        reference=row.reference,
        criteria=tuple(one.criterion for one in row.criteria),
    )
    return digest(task)


def _check_given(rows: Iterable[RowRecord], given: GivenRows, found: Checked) -> None:
    """Compare the rows with those of the benchmark."""
    found.given_rows = len(given.tasks)
    known = set()
    for row in rows:
        known.add(row.id)
        task = given.tasks.get(row.id)
        if task is None:
            found.add("row", row.id, f"{given.name} has no such row")
        elif digest(task) != row.digest:
            found.add("row", row.id, f"its prompt, responses or label are not those of {given.name}")
        elif (row.domain, row.tags) != (task.domain, list(task.tags)):
            found.add("row", row.id, f"its domain or tags are not those of {given.name}")
    lacking = [id for id in given.tasks if id not in known]
    if lacking:
        some = ", ".join(map(repr, lacking[:3])) + (", ..." if len(lacking) > 3 else "")
        found.add("row", given.name, f"{len(lacking)} of its {len(given.tasks)} rows are not judged: {some}")


def _add_texts(verdicts: Path, given: GivenRows) -> None:
    """Give the rows that were judged with --no-texts their texts, which their programs need."""
    with complete_file(verdicts) as file:
        for row, fields in read_result_rows(verdicts):
            task = given.tasks.get(row.id)
            lacks = row.responses is None and not row.cut and task is not None
            if lacks and task is not None and digest(task) == fields.get("digest"):
                texts = {"prompt": [asdict(one) for one in task.prompt], "responses": list(task.candidates)}
                fields = {**fields, **texts, "reference": task.reference}
            file.write(encode_line(fields))


def _check_verdicts(verdicts: Path, found: Checked) -> None:
    reread = Rereading.of(verdicts)
    found.verdicts = reread.read
    for one in reread.changed:
        place = "" if one.place == "row" else f", view {one.place}"
        found.add("verdict", f"{one.row.id}{place}", one.reason)


async def _programs(
    verdicts: Path, sandbox: Sandbox, limits: Limits, weak: bool, found: Checked
) -> AsyncGenerator[Finding]:
    if not any(True for _ in recorded_programs(verdicts)):
        return
    again = reproductions(recorded_programs(verdicts), sandbox, limits, allow_weak_isolation=weak)
    async with aclosing(again) as finished:
        async for one in finished:
            found.programs += 1
            if one.outcome is not Outcome.SAME:
                recorded = one.recorded
                sample = f" sample {recorded.sample}" if recorded.sample else ""
                where = f"{recorded.row.id}, view {recorded.view}{sample}, program {recorded.number}"
                yield Finding("program", where, f"{one.outcome.value}: {one.reason}")


def _check_scores(bundle: Unpacked, found: Checked) -> None:
    """Score the verdicts again under every protocol of the manifest, and compare all numbers."""
    said = {str(one.get("protocol")): one for one in bundle.manifest.scores}
    if not said:
        found.add("score", MANIFEST, "it has no scores")
        return
    try:
        replay = open_replay(bundle.verdicts, format="tirjudge")
        scored, unfit = score_run(replay, list(said), bundle.manifest.benchmark, seed=bundle.manifest.seed)
    except ValueError as error:
        found.add("score", VERDICTS, f"it cannot be scored: {error}")
        return
    for reason in unfit:
        found.add("score", reason.partition(":")[0], f"the verdicts do not have it{reason.partition(':')[2]}")
    for one in scored:
        now = score_record(one.score)
        before = said.get(one.score.card.name, {})
        for figure, name, was, is_now in _differing(before.get("figures"), now["figures"], found):
            shown = f"{name} is {_shown(was)} in the bundle and {_shown(is_now)} by its verdicts"
            found.add("score", f"{one.score.card.name}, {figure}", shown)
        for name in ("units", "counts"):
            was = before.get(name)
            if was != now[name]:
                shown = f"{name} is {_shown(was)} in the bundle and {_shown(now[name])} by its verdicts"
                found.add("score", one.score.card.name, shown)


def _differing(said: Any, now: Any, found: Checked) -> Iterator[tuple[str, str, Any, Any]]:
    """Yield the numbers that are not the same, with their figure and name."""
    said = said if isinstance(said, Mapping) else {}
    for figure in {**now, **said}:
        before, after = said.get(figure), now.get(figure)
        if not isinstance(before, Mapping) or not isinstance(after, Mapping):
            yield str(figure), "the figure", before, after
            continue
        for name in _COMPARED:
            found.figures += 1
            if not _same(before.get(name), after.get(name)):
                yield str(figure), name, before.get(name), after.get(name)
                break


def _same(one: Any, other: Any) -> bool:
    numbers = [isinstance(value, int | float) and not isinstance(value, bool) for value in (one, other)]
    if all(numbers):
        return math.isclose(one, other, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    return bool(one is None and other is None)


def _shown(value: Any) -> str:
    return "missing" if value is None else json.dumps(value)[:80]
