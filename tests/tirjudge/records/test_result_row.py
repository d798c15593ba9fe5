"""Rows of result files: what is read is written again, field by field and in the same order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tirjudge.records.result_row import read_result_rows
from tirjudge.storage.json_lines import encode_line

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize("name", ["instructions.verdicts.jsonl", "miniature.verdicts.jsonl"])
def test_a_row_that_is_read_is_written_unchanged(name: str) -> None:
    lines = (EXAMPLES / name).read_bytes().splitlines(keepends=True)
    rows = [row for row, _ in read_result_rows(EXAMPLES / name)]
    assert [encode_line(row.to_json()) for row in rows] == [encode_line(json.loads(line)) for line in lines]
    assert len(rows) == 12
