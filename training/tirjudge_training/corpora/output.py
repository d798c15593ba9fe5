"""Files of a corpus: Parquet shards and other files that appear only when complete, and progress lines."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from tirjudge.console_text import Interval
from tirjudge.storage.run_folder import complete_file
from tirjudge_training.corpora.composition import Row

T = TypeVar("T")


class ShardWriter:
    """Write rows to `STEM-00000.parquet`, `STEM-00001.parquet`, ...; leaving the context writes the rest.

    A file appears under its name when it is complete and synced. Raises OSError.
    """

    def __init__(self, folder: Path, stem: str, rows_per_shard: int) -> None:
        self._folder, self._stem, self._size = folder, stem, rows_per_shard
        self._rows: list[Row] = []
        self._written = 0
        # Shards of an interrupted build are written again from the cached answers.
        for path in folder.glob(f"{stem}-[0-9][0-9][0-9][0-9][0-9].parquet"):
            path.unlink()

    def append(self, row: Row) -> None:
        self._rows.append(row)
        if len(self._rows) >= self._size:
            self._write()

    def _write(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        with complete_file(self._folder / f"{self._stem}-{self._written:05}.parquet") as file:
            pq.write_table(pa.Table.from_pylist(self._rows, schema=schema()), file, compression="zstd")
        self._written += 1
        self._rows = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Not after an error: the rows are written again when the build is resumed.
        if kind is None and self._rows:
            self._write()


def schema() -> Any:
    """Return the Arrow schema of every corpus, with the columns `tirjudge judge` and `train` read.

    It is fixed, because a schema inferred per shard would differ where a column holds only nulls.
    """
    import pyarrow as pa

    text = pa.string()
    return pa.schema(
        {
            "id": text,
            "source": text,
            "format": text,
            "environment": text,
            "domain": text,
            "prompt": pa.list_(pa.struct({"role": text, "content": text})),
            "responses": pa.list_(text),
            "label": text,
            "gold_scores": pa.list_(pa.float64()),
            "checklist": pa.list_(text),
            "tags": pa.list_(text),
        }
    )


class Progress:
    """Report count, rate and remaining minutes from time to time; `total` is None if it is not known."""

    def __init__(self, what: str, unit: str, total: int | None, say: Callable[[str], None]) -> None:
        self._what, self._unit, self._total, self._say = what, unit, total, say
        self._count = 0
        self._begun, self._interval = time.monotonic(), Interval()

    def count(self, item: T) -> T:
        """Count one item and return it, so that a stream can be counted while it passes."""
        self._count += 1
        if self._interval.over():
            self._say(self._line(self._count / (time.monotonic() - self._begun)))
        return item

    def _line(self, rate: float) -> str:
        if self._total is None:
            return f"{self._what}: {self._count:,} {self._unit}, {rate:,.1f} per second"
        left = max(0, self._total - self._count) / rate
        done = f"{self._count:,} of {self._total:,} {self._unit}"
        return f"{self._what}: {done}, {rate:,.1f} per second, {left / 60:,.0f} min left"
