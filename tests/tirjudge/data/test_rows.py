"""Row files in every format; a bad row is reported by file and line while the others are read."""

import json
from pathlib import Path
from typing import Any

import pytest

from tirjudge.data.rows import BadRow, Row, RowFile, RowFormat


def read(path: Path, format: RowFormat | None = None) -> list[Row | BadRow]:
    return list(RowFile(str(path), format))


def fields(rows: list[Row | BadRow]) -> list[Any]:
    return [dict(row.fields) if isinstance(row, Row) else row for row in rows]


def test_json_lines_are_read_one_by_one_despite_bad_ones(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(
        b'\xef\xbb\xbf{"a": 1}\r\n\n{"a": \n[1]\n{"a": "\xff\x81"}\n'
        + b"[" * 100_000
        + b'\n{"a": "\xc3\xa9"}'
    )
    rows = read(path)
    assert [row.fields["a"] for row in rows if isinstance(row, Row)] == [1, "é"]
    assert [(row.where, row.reason) for row in rows if isinstance(row, BadRow)][:3] == [
        (f"{path}:3", "not JSON: Expecting value at column 7"),
        (f"{path}:4", "not a JSON object"),
        (f"{path}:5", "neither UTF-8 nor cp1252: name its encoding with --encoding"),
    ]
    assert isinstance(rows[4], BadRow)
    assert rows[4].reason.startswith("not JSON")
    assert rows[-1] == Row(f"{path}:7", "line-7", {"a": "é"}, path.parent)
    assert RowFile(str(path)).count() == 6


def test_an_array_is_recognised_by_its_bracket_whatever_the_suffix(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('\n [{"a": 1}, 2, {"a": 3}]')
    assert fields(read(path)) == [{"a": 1}, BadRow(f"{path}, item 2", "not a JSON object"), {"a": 3}]
    file = RowFile(str(path))
    assert file.count() == 3
    assert [row.default_id for row in file if isinstance(row, Row)] == ["item-1", "item-3"]


def test_csv_rows_may_span_lines_and_report_their_first_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(
        b'\xef\xbb\xbfid,prompt\r\n1,"two\nlines, ""quoted"""\n\n2,x,y\n3,\xff\x81\n4,' + b"z" * 200_000
    )
    rows = read(path)
    assert fields(rows) == [
        {"id": "1", "prompt": 'two\nlines, "quoted"'},
        BadRow(f"{path}:5", "3 cells under 2 columns"),
        BadRow(f"{path}:6", "neither UTF-8 nor cp1252: name its encoding with --encoding"),
        {"id": "4", "prompt": "z" * 200_000},
    ]
    assert rows[0].where == f"{path}:2"
    assert RowFile(str(path)).count() == 4


def test_an_unclosed_quote_ends_the_table(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('id,prompt\n1,a\n2,"b\n3,c\n')
    rows = read(path)
    assert isinstance(rows[1], BadRow)
    assert rows[1].where == f"{path}:3"
    assert rows[1].reason.startswith("not CSV, and nothing after it can be read")
    assert RowFile(str(path)).count() == 2


@pytest.mark.parametrize(
    ("name", "text", "format", "reason"),
    [
        ("a.json", '[{"a": 1}', None, "a.json: not JSON: "),
        ("a.json", '{"a": 1}', "json", "a.json: not a JSON array of rows"),
        ("a.csv", "id,id\n1,2\n", None, "a.csv:1: the header names 'id' twice"),
    ],
)
def test_a_file_without_rows_is_refused(
    tmp_path: Path, name: str, text: str, format: RowFormat | None, reason: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match="a\\.") as raised:
        read(tmp_path / name, format)
    assert reason in str(raised.value)


def test_rows_are_streamed(tmp_path: Path) -> None:
    """The first row is available before the last one is written."""
    import os

    path = tmp_path / "pipe"
    os.mkfifo(path)
    end = os.open(path, os.O_RDWR)
    try:
        os.write(end, json.dumps({"a": 1}).encode() + b"\n")
        rows = iter(RowFile(str(path)))
        assert next(rows) == Row(f"{path}:1", "line-1", {"a": 1}, path.parent)
    finally:
        os.close(end)
