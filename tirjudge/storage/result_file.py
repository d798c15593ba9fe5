"""The results of a run: a file that a run can resume from, with settings and a lock, or a stream of rows."""

from __future__ import annotations

import hashlib
import json
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from sys import intern
from tempfile import NamedTemporaryFile
from typing import Any, Self

from pydantic import BaseModel

from tirjudge.storage.durable_files import write_atomically
from tirjudge.storage.json_lines import JsonLines, JsonObject, encode_line, read_lines
from tirjudge.storage.kept_files import KeptFiles
from tirjudge.storage.run_settings import refuse_foreign_file, refuse_other_settings
from tirjudge.storage.settings_text import json_file
from tirjudge_environments import JudgeTask
from tirjudge_environments.files.folder import Folder
from tirjudge_environments.messages import is_transcript, message_data, response_data, tool_data

LABELS = ("label", "strength", "checklist", "rating")
"""Fields of a row that people gave, and no judge saw."""
_LABEL_COLUMNS = ("label", "checklist", "gold_scores")
"""Columns with labels. A run resumes with other label columns."""
_KEPT = 100
"""Rows that a ResultStream keeps in memory."""


def settings_path(results: Path) -> Path:
    """Return the file next to a result file that records the settings of its rows."""
    return results.with_name(results.name + ".settings.json")


def record_settings(results: Path, settings: Mapping[str, Any]) -> None:
    """Write the settings of a result file's rows next to it."""
    record = {"tirjudge": version("tirjudge"), "settings": settings}
    write_atomically(settings_path(results), json.dumps(record, indent=2) + "\n")


def check_settings(results: Path, settings: Mapping[str, Any], declared_by: type[BaseModel]) -> None:
    """Raise OtherSettings unless a result file's rows have these settings; see `refuse_other_settings`.

    Raises ValueError if the recorded settings cannot be read.
    """
    recorded = recorded_settings(results)
    if recorded is None:
        raise ValueError(
            f"{settings_path(results)} cannot be read, so the settings of {results} are unknown: "
            "choose another --output, or --overwrite"
        )
    remedy = "give the same settings to resume, another --output, or --overwrite to judge every row again"
    before, now = _without_labels(recorded), _without_labels(settings)
    refuse_other_settings(results, before, now, declared_by, remedy=remedy)


def _without_labels(settings: Mapping[str, Any]) -> JsonObject:
    """Return the settings on which a verdict depends: the meaning of labels and their columns are none."""
    kept = {name: value for name, value in settings.items() if name != "labels"}
    if isinstance(kept.get("columns"), Mapping):
        columns = {part: place for part, place in kept["columns"].items() if part not in _LABEL_COLUMNS}
        kept["columns"] = columns
    return kept


def failures_path(results: Path) -> Path:
    """Return the file next to a result file that lists the rows that failed."""
    return results.with_name(results.name + ".failed.jsonl")


def recorded_settings(results: Path) -> JsonObject | None:
    """Return the settings that a result file's rows were judged with; None if they cannot be read."""
    try:
        recorded = json_file(settings_path(results))["settings"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return recorded if isinstance(recorded, dict) else None


class RunFile:
    """A file with one JSON line per row that a run has finished, in order of completion.

    `{path}.settings.json` records the settings of its rows. Opened with the same settings, a run resumes.
    With `overwrite`, the first appended row replaces all earlier rows and settings. Raises ValueError, in one
    line, for other settings and for a file that the command did not write; Locked while another process
    writes it; OSError.
    """

    def __init__(
        self,
        path: Path,
        settings: Mapping[str, Any],
        *,
        declared_by: type[BaseModel] = BaseModel,
        overwrite: bool = False,
        command: str = "judge",
        companion: Path | None = None,
    ) -> None:
        """`declared_by` is the model that declares the settings, see `refuse_other_settings`.

        A setting without a field is null where the setting changes nothing. A file with a `companion` was
        written by the command, and is taken even if its settings were never recorded.
        """
        self.path = path
        # Looked up before the file is opened, which creates it.
        self._fresh = not (path.exists() and path.stat().st_size)
        self._settings = settings
        self._replaces = overwrite and not self._fresh
        """True until this run replaces the earlier run's rows in the file."""
        self._sidecar = settings_path(path)
        if not overwrite:
            refuse_foreign_file(path, companion or self._sidecar, command)
        # Locks the file until closed: no other process changes the rows or settings.
        self._lines = JsonLines(path, replace=self._replaces)
        try:
            if not self._replaces:
                unrecorded = companion is not None and not self._sidecar.exists()
                if unrecorded or not path.stat().st_size:
                    record_settings(path, settings)
                else:
                    check_settings(path, settings, declared_by)
        except BaseException:
            self.close()
            raise

    def rows(self) -> Iterator[JsonObject]:
        """Read all rows finished so far, earlier runs included."""
        return iter(()) if self._replaces else read_lines(self.path)

    def append(self, row: Mapping[str, Any]) -> None:
        """Append a row; returns once the row is on the disk."""
        if self._replaces:
            # In this order: a kill in between leaves no rows, and never the old rows under the new settings.
            self._lines.append()
            record_settings(self.path, self._settings)
            self._replaces = False
        self._fresh = False
        self._lines.append(row)

    def close(self) -> None:
        self._lines.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # A refused run leaves nothing behind, in particular no settings that a corrected command lacks.
        if error is not None and self._fresh:
            self.path.unlink(missing_ok=True)
            self._sidecar.unlink(missing_ok=True)
        self.close()


class ResultFile(RunFile):
    """The judged rows of a run; `{path}.failed.jsonl` has any failed rows."""

    def __init__(self, path: Path, settings: Mapping[str, Any], **options: Any) -> None:
        """`options`: see `RunFile`."""
        self.failures_path = failures_path(path)
        self._failure_lines: JsonLines | None = None
        super().__init__(path, settings, **options)
        self.digests: dict[str, str] = {}
        """Id of a judged row to the digest of its task."""
        self.labels: dict[str, str] = {}
        """Id of a judged row to its `label_key`."""
        try:
            if not self._replaces:
                # The failed rows are tried again by this run.
                self.failures_path.unlink(missing_ok=True)
            for row in self.rows():
                self._remember(row)
        except BaseException:
            self.close()
            raise

    def keep(self, folders: Iterable[Folder]) -> None:
        """Write the contents of files beside the result file. Raises OSError."""
        KeptFiles(self.path).keep(folders)

    def append(self, row: Mapping[str, Any]) -> None:
        """Append a judged row (with `id` and `digest`); returns once the row is on the disk."""
        # The first failure of this run has already replaced the failures of the earlier one.
        if self._replaces and self._failure_lines is None:
            self.failures_path.unlink(missing_ok=True)
        super().append(row)
        self._remember(row)

    def _remember(self, row: Mapping[str, Any]) -> None:
        if not (isinstance(row.get("id"), str) and isinstance(row.get("digest"), str)):
            raise ValueError(
                f"{self.path}: a row has no id or no digest: repair it, or choose another --output"
            )
        self.digests[row["id"]] = row["digest"]
        # Many rows have the same label.
        self.labels[row["id"]] = intern(label_key(row))

    def rewrite(self, change: Callable[[JsonObject], JsonObject | None]) -> None:
        """Replace every row by what `change` returns, and drop it for None.

        A kill leaves all old rows or all new ones.
        """
        fresh = JsonLines(self.path.with_name(f"{self.path.name}.new"), replace=True)
        try:
            # A killed rewrite may have left rows, which no row would replace if all are dropped.
            fresh.append()
            rows = (row for row in map(change, self.rows()) if row is not None)
            while some := list(islice(rows, _KEPT)):
                fresh.append(*some)
            fresh.rename(self.path)
        except BaseException:
            fresh.close()
            fresh.path.unlink(missing_ok=True)
            raise
        # The new file is locked as well, and has been since before it had this name.
        self._lines.close()
        self._lines = fresh
        self.digests.clear()
        self.labels.clear()
        for row in self.rows():
            self._remember(row)

    def append_failure(self, failure: Mapping[str, Any]) -> None:
        if self._failure_lines is None:
            self._failure_lines, self._fresh = JsonLines(self.failures_path, replace=True), False
        self._failure_lines.append(failure)

    def failures(self) -> Iterator[JsonObject]:
        """Read the rows that failed in this run."""
        return iter(()) if self._failure_lines is None else read_lines(self.failures_path)

    def close(self) -> None:
        super().close()
        if self._failure_lines is not None:
            self._failure_lines.close()


class ResultStream:
    """Results that are written to standard output, one JSON line per row, and cannot be resumed.

    `rows` and `failures` return only the last entries, to explain a run without any verdict. Rows with
    sources of responses, ratings or a jury are also in the file `path`, for the summary at the end of the
    run; the file is removed with the stream.
    """

    failures_path = None

    def __init__(self) -> None:
        self.digests: dict[str, str] = {}
        self.labels: dict[str, str] = {}
        self._rows: deque[JsonObject] = deque(maxlen=_KEPT)
        self._failures: deque[JsonObject] = deque(maxlen=_KEPT)
        self._copy = NamedTemporaryFile(prefix="tirjudge-")  # noqa: SIM115 (closed with the stream)
        self.path = Path(self._copy.name)

    def rows(self) -> Iterator[JsonObject]:
        return iter(tuple(self._rows))

    def failures(self) -> Iterator[JsonObject]:
        return iter(tuple(self._failures))

    def keep(self, folders: Iterable[Folder]) -> None:
        """Do nothing: no folder lies beside standard output."""

    def append(self, row: Mapping[str, Any]) -> None:
        """Write a judged row; returns once the row has left this process."""
        line = encode_line(row)
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
        if row.get("sources") or row.get("jury") or row.get("rating") is not None:
            self._copy.write(line)
            self._copy.flush()
        self._rows.append(dict(row))

    def append_failure(self, failure: Mapping[str, Any]) -> None:
        self._failures.append(dict(failure))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Remove the copy; standard output stays open."""
        self._copy.close()


def label_facts(task: JudgeTask) -> JsonObject:
    """Return the fields of a row that people gave, as a result file records them."""
    facts: JsonObject = {"label": task.label, "strength": task.gold.get("strength")}
    facts |= {"checklist": list(task.gold["checklist"])} if task.gold.get("checklist") else {}
    return facts | ({} if task.gold.get("rating") is None else {"rating": task.gold["rating"]})


def label_key(facts: Mapping[str, Any]) -> str:
    """Return a text that is equal for rows with the same label."""
    given = {name: facts.get(name) for name in LABELS}
    return json.dumps({name: value for name, value in given.items() if value is not None and value != []})


def digest(task: JudgeTask) -> str:
    """Return 16 hexadecimal digits that identify a task: all that judges see, and its label.

    A row that was edited since it was judged has another digest.
    """
    plain = [(message.role, message.content) for message in task.prompt]
    turns = list(map(message_data, task.prompt)) if is_transcript(task.prompt) else plain
    criteria = [asdict(one) for one in task.criteria]
    further: list[Any] = [task.reference, criteria] if task.reference or criteria else []
    if task.tools:
        further.append(list(map(tool_data, task.tools)))
    if task.files or task.prompt_files.files:
        further.append([folder.digest for folder in (*task.files, task.prompt_files)])
    text = json.dumps([turns, list(map(response_data, task.candidates)), task.label, *further])
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
