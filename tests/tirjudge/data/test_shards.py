"""A pattern of files as the rows of a run."""

import gzip
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.tirjudge.endpoint_server import EndpointServer
from tests.tirjudge.judge_command import judge, pairs, results, through, write_rows
from tirjudge.data.rows import BadRow, Row
from tirjudge.data.sources import open_rows


def test_the_files_of_a_pattern_are_one_run_and_an_unreadable_one_is_one_failure(
    tmp_path: Path, endpoint: EndpointServer
) -> None:
    """Rows of several kinds of files are judged once, and again only those of the file that was mended."""
    folder = tmp_path / "shards"
    folder.mkdir()
    rows = pairs(8)
    nameless = [{name: value for name, value in row.items() if name != "id"} for row in rows[:2]]
    write_rows(folder / "a.jsonl", nameless)
    parquet.write_table(pa.Table.from_pylist(rows[2:4]), folder / "b.parquet")
    packed = gzip.compress(write_rows(tmp_path / "rows.jsonl", rows[4:6]).read_bytes())
    (folder / "c.jsonl.gz").write_bytes(packed[:-9])
    (folder / "c2.parquet").write_bytes(b"PAR1 and nothing more")
    write_rows(folder / "d.jsonl", rows[6:])
    command = ("shards/*", "--no-tools", "--output", "shards/out.jsonl", *through(endpoint))
    run = judge(tmp_path, *command, code=1)
    told = [line for line in run.stderr.splitlines() if line.startswith("shards/c")]
    assert len(told) == 2
    unread = "the rest of this file cannot be read: "
    assert told[0].startswith(f"shards/c.jsonl.gz: {unread}the compressed data is cut off or damaged")
    assert told[1].startswith(f"shards/c2.parquet: {unread}not Parquet: ")
    judged = {row["id"] for row in results(folder / "out.jsonl")}
    assert judged >= {"a.jsonl:line-1", "a.jsonl:line-2", "p2", "p3", "p6", "p7"}
    before = (folder / "out.jsonl").read_bytes()

    (folder / "c.jsonl.gz").write_bytes(packed)
    (folder / "c2.parquet").unlink()
    # The results now lie among the rows, and are none.
    again = judge(tmp_path, *command, code=0)
    assert again.stdout.startswith("judged    8 rows, 8 with a verdict\n")
    assert (folder / "out.jsonl").read_bytes().startswith(before)


def test_rows_without_an_id_are_named_by_their_file_below_the_pattern(tmp_path: Path) -> None:
    for part in ("x", "y"):
        (tmp_path / part).mkdir()
        write_rows(tmp_path / part / "rows.jsonl", [{"prompt": "?", "response": "!"}])
    rows = open_rows(str(tmp_path / "*" / "rows.jsonl"))
    assert [row.default_id for row in rows if isinstance(row, Row)] == [
        "x/rows.jsonl:line-1",
        "y/rows.jsonl:line-1",
    ]
    assert rows.count() == 2
    assert rows.is_at(tmp_path / "y" / "rows.jsonl")
    (tmp_path / "y" / "rows.jsonl").unlink()
    (read, lost) = rows
    assert isinstance(read, Row)
    reason = "the rest of this file cannot be read: No such file or directory"
    assert lost == BadRow(f"{tmp_path}/y/rows.jsonl", reason)


def test_a_pattern_without_a_folder_is_refused_and_a_name_like_one_is_a_file(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", pairs(1))
    run = judge(tmp_path, "r*.jsonl", code=2)
    assert "r*.jsonl has no folder from which to derive a name: give --output" in run.stderr
    with pytest.raises(ValueError, match="only datasets have configurations and splits; this is a file"):
        open_rows(str(tmp_path / "rows.jsonl"), split="train")
    write_rows(tmp_path / "rows[1].jsonl", pairs(3))
    assert open_rows(str(tmp_path / "rows[1].jsonl")).count() == 3
