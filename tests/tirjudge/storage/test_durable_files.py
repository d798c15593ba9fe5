"""Run folders: no acknowledged row is lost, no torn row is read, and there is one writer at a time."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tirjudge.storage import json_lines
from tirjudge.storage.durable_files import RunFolder, write_atomically
from tirjudge.storage.json_lines import JsonLines, Locked, encode_line, read_lines
from tirjudge.storage.result_file import ResultFile


def test_rows_come_back_in_the_order_written(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run") as folder:
        folder.append("metrics.jsonl", {"step": 1}, {"step": 2})
        folder.append("metrics.jsonl", {"step": 3})
        assert [row["step"] for row in folder.read("metrics.jsonl")] == [1, 2, 3]
    with RunFolder(tmp_path / "run") as folder:
        folder.append("metrics.jsonl", {"step": 4})
        assert [row["step"] for row in folder.read("metrics.jsonl")] == [1, 2, 3, 4]
        assert list(folder.read("none.jsonl")) == []


@pytest.mark.parametrize(
    "torn", [b'{"a": 3', b'{"a": 3}', b"\x00" * 9, b'{"a"\n', b"\x00\x00\n", b"x" * 200_000]
)
def test_only_the_torn_line_of_a_killed_writer_is_dropped(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "rows.jsonl"
    intact = b'{"a": 1}\n{"a": 2}\n'
    path.write_bytes(intact + torn)
    with JsonLines(path) as lines:
        assert path.read_bytes() == intact
        lines.append({"a": 4})
    assert [row["a"] for row in read_lines(path)] == [1, 2, 4]


def test_a_last_line_that_cannot_be_checked_is_kept(tmp_path: Path) -> None:
    """Python cannot parse such a line; a reader refuses it by its number."""
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n' + "[" * 100_000 + "]" * 100_000 + "\n")
    before = path.read_bytes()
    JsonLines(path).close()
    assert path.read_bytes() == before
    with pytest.raises(ValueError, match=r"rows\.jsonl:2: not JSON"):
        list(read_lines(path))


def test_rows_of_a_killed_rewrite_do_not_come_back(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    (tmp_path / "rows.jsonl.new").write_text('{"id": "old", "digest": "d"}\n')
    with ResultFile(path, {}) as results:
        results.append({"id": "one", "digest": "d"})
        results.rewrite(lambda row: None)
        assert list(results.rows()) == []
        results.append({"id": "two", "digest": "d"})
    assert [row["id"] for row in read_lines(path)] == ["two"]
    assert not (tmp_path / "rows.jsonl.new").exists()


def test_a_reader_leaves_out_the_line_being_written(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": 2}')
    assert list(read_lines(path)) == [{"a": 1}]


@pytest.mark.parametrize("line", [b"nonsense\n", b"[1]\n"])
def test_a_damaged_line_in_the_middle_is_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1}\n' + line + b'{"a": 3}\n')
    with pytest.raises(ValueError, match=r"rows\.jsonl:2: not "):
        list(read_lines(path))


def test_two_writers_cannot_open_one_file_or_folder(tmp_path: Path) -> None:
    with JsonLines(tmp_path / "rows.jsonl"), pytest.raises(Locked, match=r"rows\.jsonl"):
        JsonLines(tmp_path / "rows.jsonl")
    with RunFolder(tmp_path / "run"), pytest.raises(Locked, match="run is being written"):
        RunFolder(tmp_path / "run")
    JsonLines(tmp_path / "rows.jsonl").close()


@pytest.mark.parametrize("text", ["\ud800", "a\nb", "\u2028\x85\x00\x1b[2J", "é日本", '"\\'])
def test_any_text_is_stored_in_one_line_and_read_back_unchanged(text: str) -> None:
    line = encode_line({"text": text})
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert json.loads(line) == {"text": text}


def test_numbers_that_json_lacks_become_null() -> None:
    row = {"loss": float("nan"), "nested": [{"max": float("inf")}, 1.5], "step": 1}
    assert json.loads(encode_line(row)) == {"loss": None, "nested": [{"max": None}, 1.5], "step": 1}


def test_a_full_disk_leaves_no_half_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    script = """
import resource, signal, sys
from pathlib import Path
from tirjudge.storage.json_lines import JsonLines
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
lines = JsonLines(Path(sys.argv[1]))
lines.append({"a": 1})
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    lines.append({"a": "x" * 200})
except OSError as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=True)
    assert run.stdout == f"[Errno 27] File too large: '{path}'\n"
    assert path.read_bytes() == b'{"a": 1}\n'


def test_every_acknowledged_row_survives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    script = """
import sys
from pathlib import Path
from tirjudge.storage.json_lines import JsonLines, read_lines
path = Path(sys.argv[1])
lines = JsonLines(path)
start = sum(1 for _ in read_lines(path))
for number in range(start, 1_000_000):
    lines.append({"n": number, "pad": "x" * 5000})
    print(number, flush=True)
"""
    acknowledged = -1
    for rows in (3, 17, 40):
        with subprocess.Popen(
            [sys.executable, "-c", script, path], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            for _ in range(rows):
                acknowledged = int(writer.stdout.readline())
            os.kill(writer.pid, signal.SIGKILL)
            rest = writer.stdout.read().split("\n")[:-1]
            acknowledged = int(rest[-1]) if rest else acknowledged
    JsonLines(path).close()
    numbers = [row["n"] for row in read_lines(path)]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) > acknowledged


def test_a_writer_that_came_before_the_file_was_replaced_writes_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process opens the old file, and waits until it is replaced; its rows would be lost with it."""
    path, other = tmp_path / "rows.jsonl", tmp_path / "other.jsonl"
    path.write_bytes(b'{"n": 1}\n')
    lock = json_lines.lock

    def replaced(descriptor: int, place: Path) -> None:
        monkeypatch.setattr(json_lines, "lock", lock)
        with JsonLines(other) as rewriting:
            rewriting.append({"n": 2})
            rewriting.rename(path)
        lock(descriptor, place)

    monkeypatch.setattr(json_lines, "lock", replaced)
    with JsonLines(path) as lines:
        lines.append({"n": 3})
        monkeypatch.setattr(json_lines, "lock", lock)
        with pytest.raises(Locked):
            JsonLines(path)
    assert [row["n"] for row in read_lines(path)] == [2, 3]


def test_rows_may_be_appended_to_a_rewritten_file(tmp_path: Path) -> None:
    """The old version stays until the new one is complete, and an error leaves it."""
    with RunFolder(tmp_path) as folder:
        folder.append("rows.jsonl", {"n": 2}, {"n": 1})
        with pytest.raises(TypeError), folder.rewrite("rows.jsonl") as file:
            file.writelines(encode_line({"n": n}) for n in (1, object()))
        with folder.rewrite("rows.jsonl") as file:
            assert [row["n"] for row in folder.read("rows.jsonl")] == [2, 1]
            file.writelines(map(encode_line, ({"n": 1}, {"n": 2})))
        folder.append("rows.jsonl", {"n": 3})
        assert [row["n"] for row in folder.read("rows.jsonl")] == [1, 2, 3]


def test_an_atomic_write_replaces_the_whole_file(tmp_path: Path) -> None:
    write_atomically(tmp_path / "state.json", "a long first text")
    write_atomically(tmp_path / "state.json", "short")
    assert (tmp_path / "state.json").read_text() == "short"
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]
