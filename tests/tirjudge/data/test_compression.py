"""Files of rows in gzip and xz read like plain ones, and damaged ones are refused."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from tests.rows import every
from tirjudge.data.rows import Row, RowFile, is_file_name

ROWS = [{"a": number, "text": "é" * 40} for number in range(500)]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
ARRAY = json.dumps(ROWS).encode()
TABLE = b"a,text\n" + b"".join(f"{row['a']},{row['text']}\n".encode() for row in ROWS)


COMPRESSIONS = pytest.mark.parametrize(("suffix", "compress"), [("gz", gzip.compress), ("xz", lzma.compress)])

Compress = Callable[[bytes], bytes]


def compressed(content: bytes, compress: Compress) -> bytes:
    """Two members, one after the other, as `cat a.gz b.gz` writes them."""
    half = len(content) // 2
    return compress(content[:half]) + compress(content[half:])


@COMPRESSIONS
@pytest.mark.parametrize(
    ("name", "content"), [("rows.jsonl", LINES), ("rows.json", ARRAY), ("rows.csv", TABLE)]
)
def test_a_compressed_file_holds_the_rows_of_the_plain_one(
    tmp_path: Path, name: str, content: bytes, suffix: str, compress: Compress
) -> None:
    path = tmp_path / f"{name}.{suffix}"
    path.write_bytes(compressed(content, compress))
    assert is_file_name(str(path))
    file = RowFile(str(path))
    assert file.count() == len(ROWS)
    rows = list(file)
    assert all(isinstance(row, Row) for row in rows)
    assert [str(row.fields["a"]) for row in rows if isinstance(row, Row)] == [str(row["a"]) for row in ROWS]
    assert rows[0].where.startswith(str(path))


@COMPRESSIONS
def test_the_content_decides_whatever_the_suffix(tmp_path: Path, suffix: str, compress: Compress) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(compress(LINES))
    assert [row.fields for row in RowFile(str(path)) if isinstance(row, Row)] == ROWS


@COMPRESSIONS
def test_a_damaged_file_is_refused(tmp_path: Path, suffix: str, compress: Compress) -> None:
    path = tmp_path / f"rows.jsonl.{suffix}"
    whole = compressed(LINES, compress)
    for content in (whole[:-10], whole[:20] + bytes(20) + whole[40:]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"data is cut off or damaged") as raised:
            list(RowFile(str(path)))
        assert str(raised.value).startswith(str(path))


@pytest.mark.parametrize("zeros", [4, 64 << 10])
def test_streams_of_xz_are_read_behind_zeros(zeros: int, tmp_path: Path) -> None:
    """The xz format allows zeros between streams, which aligns streams to the blocks of a tape."""
    path = tmp_path / "rows.jsonl.xz"
    path.write_bytes(lzma.compress(LINES) + bytes(zeros) + lzma.compress(LINES) + bytes(zeros))
    assert [row.fields for row in RowFile(str(path)) if isinstance(row, Row)] == ROWS * 2


@COMPRESSIONS
@pytest.mark.parametrize(
    "damage",
    [
        lambda stream: b"what is no stream",
        lambda stream: stream[:30],
        lambda stream: stream[:1] + b"?" + stream[2:],
        lambda stream: bytes(4) + stream[:-1],
    ],
    ids=["other", "cut", "start", "end"],
)
def test_no_row_is_lost_in_silence_behind_a_whole_stream(
    suffix: str, compress: Compress, damage: Compress, tmp_path: Path
) -> None:
    path = tmp_path / f"rows.jsonl.{suffix}"
    path.write_bytes(compress(LINES) + damage(compress(LINES)))
    with pytest.raises(ValueError, match=r"data is cut off or damaged"):
        list(RowFile(str(path)))


def tar(content: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        entry = tarfile.TarInfo("../../rows.jsonl")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (bz2.compress(LINES), "compressed with bzip2: decompress it first"),
        (bz2.compress(LINES, 1), "compressed with bzip2: decompress it first"),
        (lzma.compress(LINES, lzma.FORMAT_ALONE), "compressed with lzma: decompress it first"),
        (pa.compress(LINES, "zstd", asbytes=True), "compressed with zstd: decompress it first"),
        (pa.compress(LINES, "lz4", asbytes=True), "compressed with lz4: decompress it first"),
        (tar(LINES), "a tar archive: unpack it first"),
        (gzip.compress(tar(LINES)), "a tar archive: unpack it first"),
    ],
    ids=["bzip2", "bzip2 -1", "lzma", "zstd", "lz4", "tar", "tar.gz"],
)
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv", "rows"])
def test_other_archives_are_named(content: bytes, said: str, name: str, tmp_path: Path) -> None:
    """Read as lines, they were a file without rows."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=said) as error:
        RowFile(str(tmp_path / name))
    assert "\n" not in str(error.value)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("start", every(3, ['{"prompt": "', '["', 'prompt,response\n"']))
def test_a_small_file_with_a_huge_content_is_refused_before_it_is_read(start: str, tmp_path: Path) -> None:
    """300 MiB of one letter in 300 KiB: one line for each reader, and no row of it in memory."""
    file = tmp_path / {"{": "rows.jsonl.gz", "[": "rows.json.gz", "p": "rows.csv.gz"}[start[0]]
    with gzip.open(file, "wb", compresslevel=1) as stream:
        stream.write(start.encode())
        for _ in range(300):
            stream.write(b"a" * (1 << 20))
    said = "the content is more than 200 times as long as the compressed file"
    with pytest.raises(ValueError, match=said) as error:
        list(RowFile(str(file)))
    assert "\n" not in str(error.value)


def test_many_columns_are_refused_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(",".join(f"c{number}" for number in range(40_000)) + "\n" + ",".join("x" * 40_000) + "\n")
    with pytest.raises(ValueError, match=r"rows.csv:1: the header has 40000 columns: at most 10000"):
        list(RowFile(str(file)))
