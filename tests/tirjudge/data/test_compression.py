"""Compressed files of rows read like plain ones; what is not the file itself is named as that."""

from __future__ import annotations

import gzip
import io
import json
import os
import threading
from pathlib import Path

import pytest
import zstandard

from tirjudge.data.rows import Row, RowFile, is_file_name

ROWS = [{"a": number, "text": "é" * 40} for number in range(500)]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
ARRAY = json.dumps(ROWS).encode()
TABLE = b"a,text\n" + b"".join(f"{row['a']},{row['text']}\n".encode() for row in ROWS)


def compressed(kind: str, content: bytes) -> bytes:
    """Two frames, one after the other, as `cat a.gz b.gz` writes them."""
    half = len(content) // 2
    pack = gzip.compress if kind == "gz" else zstandard.ZstdCompressor().compress
    return pack(content[:half]) + pack(content[half:])


@pytest.mark.parametrize("kind", ["gz", "zst"])
@pytest.mark.parametrize(
    ("name", "content"), [("rows.jsonl", LINES), ("rows.json", ARRAY), ("rows.csv", TABLE)]
)
def test_a_compressed_file_holds_the_rows_of_the_plain_one(
    tmp_path: Path, name: str, content: bytes, kind: str
) -> None:
    path = tmp_path / f"{name}.{kind}"
    path.write_bytes(compressed(kind, content))
    assert is_file_name(str(path))
    file = RowFile(str(path))
    assert file.count() == len(ROWS)
    rows = list(file)
    assert all(isinstance(row, Row) for row in rows)
    assert [str(row.fields["a"]) for row in rows if isinstance(row, Row)] == [str(row["a"]) for row in ROWS]
    assert rows[0].where.startswith(str(path))


def test_the_content_decides_whatever_the_suffix(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(gzip.compress(LINES))
    assert [row.fields for row in RowFile(str(path)) if isinstance(row, Row)] == ROWS


def test_a_compressed_pipe(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(gzip.compress(LINES),))
    writer.start()
    assert [row.fields for row in RowFile(str(path)) if isinstance(row, Row)] == ROWS
    writer.join()


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_a_file_cut_off_in_the_middle_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"rows.jsonl.{kind}"
    path.write_bytes(compressed(kind, LINES)[:-10])
    with pytest.raises(ValueError, match=r"data is cut off or damaged") as raised:
        list(RowFile(str(path)))
    assert str(raised.value).startswith(str(path))


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_a_damaged_file_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"rows.jsonl.{kind}"
    content = bytearray(compressed(kind, LINES))
    content[20:40] = bytes(20)
    path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match=r"data is cut off or damaged"):
        list(RowFile(str(path)))


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "rows.csv", "rows.parquet"])
def test_a_git_lfs_pointer_is_recognised(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(POINTER)
    with pytest.raises(ValueError, match="is a Git LFS pointer, not the file itself: run `git lfs pull`"):
        list(RowFile(str(path)))


@pytest.mark.parametrize(
    ("start", "kind"), [(b"PK\x03\x04", "a ZIP archive"), (b"BZh9", "bzip2"), (b"\xfd7zXZ\x00", "xz")]
)
def test_other_compression_is_named(tmp_path: Path, start: bytes, kind: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(start + bytes(100))
    with pytest.raises(ValueError, match=f"is {kind}: decompress it first"):
        RowFile(str(path))


def test_decompression_streams(tmp_path: Path) -> None:
    """The first row of a 60 MB file costs as little memory as that of a small one."""
    import tracemalloc

    path = tmp_path / "rows.jsonl.zst"
    compressor = zstandard.ZstdCompressor()
    with path.open("wb") as file, compressor.stream_writer(file) as writer:
        for _ in range(1500):
            writer.write(LINES[:40_000])
    tracemalloc.start()
    assert isinstance(next(iter(RowFile(str(path)))), Row)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8_000_000
    assert peak > io.DEFAULT_BUFFER_SIZE
