"""`tirjudge export parquet` and `csv`: tables that other programs read, whatever the rows contain."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pyarrow.parquet
import pytest
from click.testing import Result
from typer.testing import CliRunner

from tests.tirjudge.judged_files import asking, judge_to
from tirjudge.cli import app

HOSTILE = '=1+1,"\r\n\x00\x1b[2J \ud800'


def export(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["export", *map(str, arguments)])


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [
        {"id": "right", "prompt": "p", "responses": ["a", "b"], "label": 0, "tags": ["x", "y"]},
        {"id": "hostile", "prompt": HOSTILE, "responses": [HOSTILE, "tiny"], "domain": HOSTILE},
    ]
    path = tmp_path_factory.mktemp("judged") / "out.jsonl"
    return judge_to(path, rows, asking("print(ascii(response_a))", lambda _: "A"), order="both")


def test_parquet_and_csv_hold_the_rows(judged: Path, tmp_path: Path) -> None:
    recorded = {row["id"]: row for row in map(json.loads, judged.read_text().splitlines())}
    table, sheet = tmp_path / "rows.parquet", tmp_path / "rows.csv"
    assert export("parquet", judged, "-o", table).stdout == f"{table}: 2 rows\n"
    assert export("csv", judged, "-o", sheet).stdout == f"{sheet}: 2 rows\n"
    from_table = {row["id"]: row for row in pyarrow.parquet.read_table(table).to_pylist()}
    with sheet.open(newline="") as stream:
        from_sheet = {row["id"]: row for row in csv.DictReader(stream)}
    for id, row in recorded.items():
        for name in ("prompt", "responses", "views", "tags", "scores"):
            given = from_table[id][name]
            assert (None if given is None else json.loads(given)) == row[name], name
            assert from_sheet[id][name] == (given or "")
        for name in ("verdict", "correct", "label", "programs", "completion_tokens", "seconds", "cut"):
            assert from_table[id][name] == row[name], name
            assert from_sheet[id][name] == ("" if row[name] is None else str(row[name]))
        assert from_table[id]["flipped"] is True  # A is chosen in both orders
    assert from_table["hostile"]["domain"] == HOSTILE.replace("\ud800", "\\ud800")


def test_csv_goes_to_standard_output(judged: Path) -> None:
    run = export("csv", judged, "-o", "-")
    assert run.stdout.startswith("id,format,verdict,")
    assert run.stderr == ""


@pytest.mark.parametrize("kind", ["inspect", "parquet", "csv"])
def test_a_file_that_is_no_result_file_is_one_line(
    kind: str, judged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows, empty, missing = tmp_path / "rows.jsonl", tmp_path / "empty.jsonl", tmp_path / "missing.jsonl"
    rows.write_text('{"prompt": "p"}\n')
    empty.touch()
    if kind == "inspect":
        pytest.importorskip("inspect_ai", reason="needs the extra inspect, see .ci/frameworks")
    for path, said in [
        (rows, "not a row of a result file"),
        (empty, "has no rows"),
        (missing, "No such file"),
    ]:
        run = export(kind, path)
        assert (run.exit_code, run.stdout) == (2, "")
        assert said in run.stderr
        assert len(run.stderr.splitlines()) == 1
    assert sorted(tmp_path.iterdir()) == sorted([rows, empty])


def test_a_missing_library_and_the_input_as_output_are_refused(
    judged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = judged.read_bytes()
    for kind, library, extra in [("inspect", "inspect_ai", "inspect"), ("parquet", "pyarrow", "data")]:
        for module in {library, *(name for name in sys.modules if name.startswith(f"{library}."))}:
            monkeypatch.setitem(sys.modules, module, None)
        run = export(kind, judged, "-o", tmp_path / "out")
        assert run.exit_code == 2
        assert f"pip install 'tirjudge[{extra}]'" in run.stderr
        assert len(run.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()
    run = export("csv", judged, "-o", judged)
    assert "is the input: choose another --output" in run.stderr
    assert judged.read_bytes() == before


def test_a_row_that_was_cut_is_left_out_and_named(judged: Path, tmp_path: Path) -> None:
    torn = tmp_path / "torn.jsonl"
    torn.write_bytes(judged.read_bytes()[:-9])
    run = export("csv", torn, "-o", tmp_path / "rows.csv")
    assert run.stdout.endswith("rows.csv: 1 rows\n")
    assert "ends in the middle of a row" in run.stderr
