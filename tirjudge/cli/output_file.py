"""The file that a command writes over rows: never the one that it reads."""

from __future__ import annotations

from pathlib import Path

from tirjudge.data.rows import STANDARD_INPUT
from tirjudge.data.sources import RowSource


def output_file(given: Path | None, file: str, kind: str) -> Path:
    """`given`, or NAME.KIND.jsonl in the current folder. Raises ValueError where `file` gives no name."""
    if given is not None:
        return given
    if file == STANDARD_INPUT:
        raise ValueError("standard input has no name to derive one from: give --output")
    return Path(f"{Path(file).stem}.{kind}.jsonl")


def refuse_input(output: Path, rows: RowSource) -> None:
    """Raises ValueError where the rows come from `output`."""
    if output.exists() and rows.is_at(output):
        raise ValueError(f"{output} is the input: choose another --output")
