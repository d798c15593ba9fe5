"""Files of spreadsheets, databases, table libraries and annotation tools hold the plain file's rows.

A new kind of file is one entry of `KINDS`.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tirjudge.data.inspection import InspectedRows
from tirjudge.data.rows import BadRow, Row, RowFile
from tirjudge_environments import JudgeTask
from tirjudge_environments.tasks import Columns, read_task

HEADER = ("id", "prompt", "response_a", "response_b", "label")
ROWS = [
    ("r1", 'Write; a "slogan", for\na bakery.', "Fresh, daily; really", "„Brot“ – täglich", "A"),
    ("r2", "Name 3 | colours", "red\tgreen, blue", "it's red", "B"),
    ("r3", "Say it.", "yes", "no; maybe", "tie"),
]
FRAME = pd.DataFrame(ROWS, columns=HEADER)
RECORDS: list[dict[str, Any]] = FRAME.to_dict("records")


def table(rows: list[Any] = [HEADER, *ROWS], **dialect: Any) -> str:  # noqa: B006 (never changed)
    text = io.StringIO()
    csv.writer(text, **dialect).writerows(rows)
    return text.getvalue()


def semicolons(rows: list[Any] = [HEADER, *ROWS]) -> str:  # noqa: B006
    return table(rows, delimiter=";")


def written(write: Callable[[io.StringIO], Any]) -> str:
    text = io.StringIO()
    write(text)
    return text.getvalue()


def parquet(frame: pd.DataFrame) -> bytes:
    file = io.BytesIO()
    frame.to_parquet(file)
    return file.getvalue()


def spaced(rows: list[Any] = [HEADER, *ROWS]) -> str:  # noqa: B006
    """Write a table by hand: every text in quotes, and a space behind each comma."""
    quoted = [['"' + cell.replace('"', '""') + '"' for cell in row] for row in rows]
    return "".join(", ".join(row) + "\n" for row in quoted)


RAW = [("r1", '"Write" a line', '"Fresh', 'it is "red"', "A"), ("r2", 'Say "it".', "yes", 'no"', "B")]
WIDE = [[*row, "", "", ""] for row in (HEADER, *ROWS)]
BLANK = ["", "", "", "", ""]
KINDS: dict[str, tuple[str, str | bytes]] = {
    "plain CSV": ("rows.csv", table()),
    "semicolons": ("rows.csv", semicolons()),
    "semicolons, every cell quoted": ("rows.csv", table(delimiter=";", quoting=csv.QUOTE_ALL)),
    "tabs": ("rows.csv", table(delimiter="\t")),
    "tsv": ("rows.tsv", table(delimiter="\t")),
    "tab": ("rows.tab", table(delimiter="\t")),
    "vertical bars": ("rows.csv", table(delimiter="|")),
    "Unix line ends": ("rows.csv", table(lineterminator="\n")),
    "byte order mark": ("rows.csv", b"\xef\xbb\xbf" + semicolons().encode()),
    "sep=;": ("rows.csv", "sep=;\r\n" + semicolons()),
    "sep=; behind a byte order mark": ("rows.csv", "\ufeffsep=;\r\n" + semicolons()),
    "sep= another character": ("rows.csv", "sep=~\n" + table(delimiter="~")),
    "blank rows": ("rows.csv", semicolons([BLANK, HEADER, ROWS[0], BLANK, *ROWS[1:], BLANK, BLANK])),
    "blank lines": ("rows.csv", "\r\n" + table([HEADER]) + "\r\n\r\n" + table(ROWS) + "\r\n"),
    "empty trailing columns": ("rows.csv", semicolons(WIDE)),
    "empty trailing cells": ("rows.csv", table([HEADER, *WIDE[1:]])),
    "an unnamed column of remarks": ("rows.csv", table([[*HEADER, ""], *([*row, "check!"] for row in ROWS)])),
    "pandas with its index": ("rows.csv", written(lambda file: FRAME.to_csv(file))),
    "pandas with tabs": ("rows.tsv", written(lambda file: FRAME.to_csv(file, sep="\t", index=False))),
    "R, every text quoted": ("rows.csv", table(quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")),
    "quotes behind a backslash": ("rows.csv", table(doublequote=False, escapechar="\\")),
    "headers with spaces and capitals": (
        "rows.csv",
        semicolons([[" ID", "Prompt ", "Response A", "RESPONSE-B", "Label\u00a0"], *ROWS]),
    ),
    "UTF-16 as Excel's Unicode text": ("rows.txt", table(delimiter="\t").encode("utf-16")),
    "UTF-16, the other byte order": ("rows.csv", b"\xfe\xff" + semicolons().encode("utf-16-be")),
    "UTF-16 without a mark": ("rows.csv", semicolons().encode("utf-16-le")),
    "UTF-32": ("rows.csv", semicolons().encode("utf-32")),
    "cp1252 as Excel's CSV": ("rows.csv", semicolons().encode("cp1252")),
    "a table with another suffix": ("rows.txt", semicolons()),
    "a table without a suffix": ("rows", table()),
    "spaces behind commas": ("rows.csv", spaced()),
    "JSON lines": ("rows.jsonl", FRAME.to_json(orient="records", lines=True)),
    "JSON lines with another suffix": ("rows.json", FRAME.to_json(orient="records", lines=True)),
    "JSON lines in UTF-16": ("rows.jsonl", FRAME.to_json(orient="records", lines=True).encode("utf-16")),
    "JSON lines in cp1252": (
        "rows.jsonl",
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in RECORDS).encode("cp1252"),
    ),
    "a JSON array in UTF-16": ("rows.json", json.dumps(RECORDS).encode("utf-16")),
    "pandas, records": ("rows.json", FRAME.to_json(orient="records")),
    "pandas, columns": ("rows.json", FRAME.to_json()),
    "pandas, columns, indented": ("rows.json", FRAME.to_json(indent=2)),
    "pandas, split": ("rows.json", FRAME.to_json(orient="split")),
    "pandas, table": ("rows.json", FRAME.to_json(orient="table")),
    "pandas, index": ("rows.json", FRAME.to_json(orient="index")),
    "lists by column": ("rows.json", json.dumps(FRAME.to_dict("list"))),
    "the hub's viewer": (
        "rows.json",
        json.dumps({"features": [], "rows": [{"row_idx": n, "row": row} for n, row in enumerate(RECORDS)]}),
    ),
    "a list inside of two objects": ("rows.json", json.dumps({"id": "e", "results": {"results": RECORDS}})),
    "Parquet": ("rows.parquet", parquet(FRAME)),
    "Parquet with another suffix": ("rows.csv", parquet(FRAME)),
    "Parquet of categories": ("rows.parquet", parquet(FRAME.astype({"label": "category", "id": "string"}))),
}  # fmt: skip


def tasks(path: Path, *columns: str) -> list[JudgeTask]:
    """Return the rows as tasks, without their folder in messages; all of them must be readable."""
    rows = InspectedRows(RowFile(str(path), name=path.name), Columns.parse(columns), None)
    notes = list(rows.inspect())
    assert all("\n" not in note for note in notes)
    found = []
    for row in rows:
        assert isinstance(row, Row), row
        found.append(
            read_task(row.fields, default_id="x", columns=Columns.parse(columns), labels=rows.meaning)
        )
    assert rows.count() == len(found)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_file_has_the_rows_of_the_plain_one(tmp_path: Path, kind: str) -> None:
    name, content = KINDS[kind]
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    plain = [read_task(row, default_id="x") for row in RECORDS]
    found = tasks(tmp_path / name)
    # The tables of R and Python end lines inside of a cell as they end rows.
    assert [(one.id, one.prompt, one.candidates, one.label, one.gold) for one in found] == [
        (one.id, one.prompt, one.candidates, one.label, one.gold) for one in plain
    ]


@pytest.mark.parametrize(
    ("line", "end"),
    [
        ("| --- | :-- | --: | :-: | - |", ""),
        ("+".join(["-" * 16] * 5), "(2 rows)\n"),
        (" , ".join(["--"] * 5), "(2 rows affected)\n"),
    ],
    ids=["Markdown", "psql", "sqlcmd"],
)
def test_a_table_drawn_with_lines_is_refused(tmp_path: Path, line: str, end: str) -> None:
    mark = " , " if "," in line else " | "
    rows = [mark.join(f"{cell:14}" for cell in row) for row in (HEADER, *RAW)]
    (tmp_path / "rows.txt").write_text("\n".join([rows[0], line, *rows[1:], end]))
    with pytest.raises(ValueError, match=r"^rows.txt:2: a table drawn with lines: export it as CSV"):
        list(RowFile(str(tmp_path / "rows.txt"), name="rows.txt"))


def test_tabs_without_quotes(tmp_path: Path) -> None:
    (tmp_path / "rows.tsv").write_text("".join("\t".join(row) + "\n" for row in (HEADER, *RAW)))
    found = [(one.id, one.prompt[0].content, *one.candidates) for one in tasks(tmp_path / "rows.tsv")]
    assert found == [row[:4] for row in RAW]


def test_a_damaged_table_of_quoted_cells_is_no_table_without_quotes(tmp_path: Path) -> None:
    text = table(delimiter="\t", quoting=csv.QUOTE_ALL).replace('"r3"', '"r3"x')
    (tmp_path / "rows.tsv").write_text(text)
    first, *_, last = RowFile(str(tmp_path / "rows.tsv"), name="rows.tsv")
    assert isinstance(first, Row)
    assert first.fields["prompt"] == ROWS[0][1].replace("\n", "\r\n") or first.fields["prompt"] == ROWS[0][1]
    assert isinstance(last, BadRow)


def test_types_of_databases_are_texts_and_numbers(tmp_path: Path) -> None:
    """Snowflake writes whole numbers as decimals, and Spark may write texts as bytes."""
    columns = {
        "id": pa.array([Decimal(7), Decimal(8)], pa.decimal128(38, 0)),
        "prompt": pa.array([b"p", "„q“".encode()], pa.binary()),
        "response_a": ["x", "x"],
        "response_b": ["y", "y"],
        "label": pa.array([Decimal(0), Decimal(1)], pa.decimal128(38, 0)),
        "day": pa.array([datetime(2024, 1, 1), None]),
    }
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    found = tasks(tmp_path / "rows.parquet")
    assert [(one.id, one.prompt[0].content, one.label) for one in found] == [("7", "p", 0), ("8", "„q“", 1)]
    assert [one.id for one in tasks(tmp_path / "rows.parquet", "id=day")] == ["2024-01-01T00:00:00", "x"]


def test_parquet_that_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    names = ["prompt", "response", "prompt"]
    pq.write_table(pa.table([pa.array(["p"])] * 3, names=names), tmp_path / "twice.parquet")
    with pytest.raises(ValueError, match=r"^twice.parquet: two columns have the name 'prompt'"):
        list(RowFile(str(tmp_path / "twice.parquet"), name="twice.parquet"))
    content = bytearray(parquet(FRAME))
    content[4:60] = b"\xff" * 56
    (tmp_path / "rows.parquet").write_bytes(content)
    with pytest.raises(ValueError, match=r"^rows.parquet: the Parquet data is damaged or unknown: .+$"):
        list(RowFile(str(tmp_path / "rows.parquet"), name="rows.parquet"))


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (b"\xff\xff\xff\xff\x00\x01", "an Arrow stream"),
        (b"Obj\x01\x04\x14avro.codec", "an Avro file"),
        (b"ORC\x08\x03", "an ORC file"),
        (b"<html><table><tr><td>prompt</td></tr></table></html>", "a web page"),
        (b"\x80\x05\x95\x10", "a Python pickle"),
    ],
)
def test_further_files_that_are_no_rows(tmp_path: Path, start: bytes, words: str) -> None:
    (tmp_path / "rows.bin").write_bytes(start)
    with pytest.raises(ValueError, match=f"^rows.bin: {words}"):
        RowFile(str(tmp_path / "rows.bin"), name="rows.bin")


def test_rows_of_published_preference_sets(tmp_path: Path) -> None:
    """Dialogues as one text (HH-RLHF), a list of one chosen answer (RewardBench 2), a message as prompt."""
    asked = "\n\nHuman: Hi?\n\nAssistant: Hello.\n\nHuman: 2+2?"
    dialogues = {"chosen": f"{asked}\n\nAssistant: 4", "rejected": f"{asked}\n\nAssistant: Human: 5"}
    lists = {"prompt": {"role": "user", "content": "2+2?"}, "chosen": ["4"], "rejected": ["5", "6"]}
    (tmp_path / "rows.jsonl").write_text(f"{json.dumps(dialogues)}\n{json.dumps(lists)}\n")
    spoken, listed = tasks(tmp_path / "rows.jsonl")
    assert [(one.role, one.content) for one in spoken.prompt] == [
        ("user", "Hi?"), ("assistant", "Hello."), ("user", "2+2?"),
    ]  # fmt: skip
    assert (spoken.candidates, spoken.label) == (("4", "Human: 5"), 0)
    assert (listed.prompt[0].content, listed.candidates) == ("2+2?", ("4", "5", "6"))


def test_a_text_that_is_not_in_the_named_encoding_loses_one_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    texts = [("id", "prompt", "response"), ("1", "Привет, мир", "да")]
    path.write_bytes(table(texts).encode("shift_jis") + b"2,\xff\xff,x\r\n3,p,y\r\n")
    kinds = [type(one) for one in RowFile(str(path), encoding="shift_jis")]
    assert kinds == [Row, BadRow, Row]


def test_parquet_with_one_bad_text_loses_one_row(tmp_path: Path) -> None:
    texts = pa.array([b"p1", b"\xff\xfe", b"p3"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"prompt": texts, "response": ["a", "b", "c"]}), tmp_path / "rows.parquet")
    rows = list(RowFile(str(tmp_path / "rows.parquet"), name="rows.parquet"))
    assert [row.fields["prompt"] for row in rows if isinstance(row, Row)] == ["p1", "p3"]
    assert [row for row in rows if isinstance(row, BadRow)] == [
        BadRow("rows.parquet, item 2", "a text that is not UTF-8")
    ]


def test_rows_that_end_early_are_read_and_broken_ones_are_not(tmp_path: Path) -> None:
    """A row without its last, empty cells, as Excel writes them, is no row with a line break in a text."""
    path = tmp_path / "rows.csv"
    path.write_text(
        "id,prompt,response_a,response_b,label\n1,p,x,y\n2,p,x,y\n3,p,x,y,A\n4,first line\n"
        "second line,x,y,B\n5,p,x,y,B,stray\n6,p,x,y,\n7,p,x\n"
    )
    rows = list(RowFile(str(path), name="rows.csv"))
    assert [row.fields["id"] for row in rows if isinstance(row, Row)] == ["1", "2", "3", "6", "7"]
    assert [row.fields["label"] for row in rows if isinstance(row, Row)][:2] == [None, None]
    assert [(row.where, row.reason) for row in rows if isinstance(row, BadRow)] == [
        ("rows.csv:5", "2 cells under 5 columns: quote texts with line breaks"),
        ("rows.csv:6", "4 cells under 5 columns: quote texts with line breaks"),
        ("rows.csv:7", "6 cells under 5 columns"),
    ]


def test_kaggles_file_of_lmsys_is_judged_turn_by_turn(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    header = ["id", "model_a", "model_b", "prompt", "response_a", "response_b", "winner_model_a",
              "winner_model_b", "winner_tie"]  # fmt: skip
    cells = [
        [
            "30192",
            "gpt-4",
            "llama",
            '["Is it morally right?"]',
            '["No \\"one\\" knows."]',
            '["Yes\\n."]',
            1,
            0,
            0,
        ],
        ["53567", "koala", "vicuna", '["a?","b?"]', '["A","B"]', '["C",null]', 0, 0, 1],
    ]
    path.write_text(table([header, *cells], lineterminator="\n"))
    first, second = tasks(path, "sources=model_a,model_b")
    assert (first.candidates, first.label, first.sources) == (
        ('No "one" knows.', "Yes\n."), 0, ("gpt-4", "llama"),
    )  # fmt: skip
    assert (second.label, second.gold) == (None, {"strength": 0})
    assert [one.content for one in second.candidates[1]] == ["C", "b?", ""]  # type: ignore[union-attr]


def test_exports_of_annotation_tools(tmp_path: Path) -> None:
    """Label Studio's CSV, Argilla's records, and a test run of promptfoo."""
    (tmp_path / "studio.csv").write_text("annotator,prompt,answer1,answer2,comparison\n1,p,x,y,left\n")
    columns = ("response_a=answer1", "response_b=answer2", "label=comparison")
    assert tasks(tmp_path / "studio.csv", *columns)[0].label == 0
    argilla = {
        "instruction": "p",
        "response": "x",
        "quality": [{"value": 4, "user_id": "u", "status": "submitted"}],
    }
    (tmp_path / "argilla.jsonl").write_text(json.dumps(argilla) + "\n")
    assert tasks(tmp_path / "argilla.jsonl", "prompt=instruction", "label=quality")[0].gold == {"rating": 4.0}
    result = {"prompt": {"raw": "p", "label": "l"}, "vars": {}, "response": {"output": "x"}, "success": False}
    (tmp_path / "promptfoo.json").write_text(
        json.dumps({"evalId": "e", "results": {"version": 3, "results": [result, result]}, "config": {}})
    )
    columns = ("prompt=prompt.raw", "response=response.output", "label=success")
    assert [one.gold for one in tasks(tmp_path / "promptfoo.json", *columns)] == [{"rating": False}] * 2
