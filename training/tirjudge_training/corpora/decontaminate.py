"""Rows without those whose prompt shares words with a benchmark's: any file of rows, in one pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tirjudge.data.rows import BadRow
from tirjudge.data.sources import RowSource
from tirjudge.storage.run_folder import encode_line
from tirjudge_training.corpora.benchmarks import messages
from tirjudge_training.corpora.overlap import OverlapIndex
from tirjudge_training.corpora.pace import Pace
from tirjudge_training.corpora.whole_file import whole_file


class BadRows(ValueError):
    """Rows that cannot be decontaminated; one line: file, row and column."""


@dataclass
class Tally:
    """What became of the rows."""

    rows: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    """By benchmark."""


def decontaminate(
    rows: RowSource, index: OverlapIndex, output: Path, *, column: str, say: Callable[[str], None]
) -> Tally:
    """Write the clean rows to `output` as JSON lines, and beside it `NAME.dropped.jsonl`, which says why.

    Both appear at the end, whole. Raises BadRows for a row that is not one, or has no such prompt; OSError.
    """
    tally, pace = Tally(), Pace("decontaminating", "rows", rows.count(), say)
    with ExitStack() as stack:
        kept, dropped = (stack.enter_context(whole_file(path)) for path in (output, dropped_beside(output)))
        for row in rows:
            if isinstance(row, BadRow):
                raise BadRows(f"{row.where}: {row.reason}")
            try:
                found = index.find(messages(row.fields.get(column)))
            except ValueError as error:
                raise BadRows(f"{row.where}: {column} {error}") from None
            tally.rows += 1
            if found is None:
                kept.write(encode_line(row.fields))
            else:
                tally.dropped[found.benchmark] += 1
                dropped.write(encode_line({"row": row.where, **asdict(found), "fields": row.fields}))
            pace.passed(row)
    return tally


def dropped_beside(output: Path) -> Path:
    return output.with_name(f"{output.name}.dropped.jsonl")
