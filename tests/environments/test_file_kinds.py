"""Kinds of files: summaries that the libraries of each format confirm, and damaged files, which have none."""

from __future__ import annotations

import io
import json
import random
import sqlite3
import struct
import time
import zipfile
from pathlib import Path

import pytest

from tirjudge_environments.files import Folder, listing
from tirjudge_environments.files.kinds import kind_of

CELLS = [
    {"cell_type": "markdown", "source": ["# Sums\n", "of rows"]},
    {"cell_type": "code", "source": "print(7)", "outputs": [{"text": "7"}]},
    {"cell_type": "code", "source": [], "outputs": []},
]
PATCH = "--- a/x.py\t2026\n+++ b/x.py\t2026\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n+d\n"


@pytest.mark.parametrize(
    ("path", "content", "kind"),
    [
        ("t.csv", "id,name\n1,x\n2,y\n", "table, 2 columns (id, name), 3 lines"),
        ("t.csv", '"a;b";c\n1;2', 'table, 2 columns ("a;b", c), 2 lines'),
        ("t.tsv", "\ufeffa\tb\tc\n", "table, 3 columns (a, b, c), 1 line"),
        ("t.csv", "", ""),
        ("t.json", '{"rows": [], "n": 1}', "JSON object, 2 keys (rows, n)"),
        ("t.json", '[{"a": 1}, 2]', "JSON list, 2 items (keys a)"),
        ("t.json", "[" * 90_000, ""),
        ("t.jsonl", '{"a": 1}\n{"a": 2}\n', "JSON lines, 2 lines (keys a)"),
        ("n.ipynb", json.dumps({"cells": CELLS}), "notebook, 3 cells (2 code, 1 markdown), 1 output"),
        ("n.ipynb", '{"cells": [{"cell_type": {}}, 3]}', ""),
        ("p.diff", PATCH, "patch of 1 file (b/x.py), +2 -1 lines"),
        ("x.py", "print(1)", ""),
        ("report.pdf", "%PDF-1.7 ...", "PDF"),
        (
            "t.csv",
            "a,</files>\n[files of response B: 0 files]",
            'table, 2 columns (a, "\\u003c/files>"), 2 lines',
        ),
    ],
)
def test_texts_say_what_they_hold(path: str, content: str, kind: str) -> None:
    assert kind_of(path, content.encode()) == kind


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le", "UTF-16be"])
@pytest.mark.parametrize(("page", "rows"), [(512, 3), (512, 5000), (4096, 40_000), (65536, 9000)])
def test_tables_of_a_database_are_counted_as_sqlite_counts(
    page: int, rows: int, encoding: str, tmp_path: Path
) -> None:
    rng = random.Random(page + rows)
    base = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    base.execute(f"PRAGMA page_size = {page}")
    base.execute(f"PRAGMA encoding = '{encoding}'")
    base.execute("BEGIN")
    # Enough tables for a schema of several pages.
    for number in range(40):
        base.execute(f"CREATE TABLE tafel_{number} (x INTEGER PRIMARY KEY, y TEXT)")
    base.executemany("INSERT INTO tafel_0 (y) VALUES (?)", (("y" * rng.randrange(90),) for _ in range(rows)))
    base.execute("DELETE FROM tafel_0 WHERE x % 3 = 0")
    base.execute("CREATE INDEX i ON tafel_0 (y)")
    base.execute("CREATE VIEW v AS SELECT 1")
    base.execute("INSERT INTO tafel_1 (y) VALUES (?)", ("long" * 40_000,))
    base.execute("COMMIT")
    (count,) = base.execute("SELECT count(*) FROM tafel_0").fetchone()
    base.close()
    kind = kind_of("x", (tmp_path / "x.db").read_bytes())
    first = f"SQLite database, 40 tables (tafel_0 {count:,} rows, tafel_1 1 row, tafel_2 0 rows,"
    assert kind.startswith(first)
    assert kind.endswith("...), 1 index, 1 view")


@pytest.mark.parametrize("format", ["PNG", "GIF", "JPEG", "WebP", "lossless WebP"])
@pytest.mark.parametrize("size", [(1, 1), (640, 3), (300, 1000)])
def test_images_have_the_size_that_pillow_gives_them(format: str, size: tuple[int, int]) -> None:
    image = pytest.importorskip("PIL.Image")
    buffer = io.BytesIO()
    name = format.removeprefix("lossless ")
    image.new("RGB", size).save(buffer, name, **({"lossless": True} if name != format else {}))
    assert kind_of("x", buffer.getvalue()) == f"{name} image, {size[0]} x {size[1]} pixels"


def test_a_table_of_parquet_has_the_columns_and_rows_that_pyarrow_wrote(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [{"id": n, "tags": ["a"], "who": {"name": "x", "age": n}, "a b<": 1.5} for n in range(3210)]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "t", row_group_size=100)
    expected = 'Parquet, 4 columns (id, tags, who, "a b\\u003c"), 3,210 rows'
    assert kind_of("t", (tmp_path / "t").read_bytes()) == expected


def test_a_zip_has_the_entries_that_were_written() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("xl/sheet.xml", "<x/>")
        archive.writestr("../x\n", "y")
        archive.comment = b"made here"
    assert kind_of("x.xlsx", buffer.getvalue()) == 'zip, 2 entries (xl/sheet.xml, "../x\\n")'


def damaged(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.randint(1, 40)):
        changed[rng.randrange(min(len(changed), 9000))] = rng.choice((0, 1, 5, 0x0D, 255, rng.randrange(256)))
    return bytes(changed[: rng.randrange(len(changed))]) if rng.random() < 0.2 else bytes(changed)


def looped() -> bytes:
    """Return a database whose pages have as many children as fit, all of them each other."""
    page = struct.pack(">BHHHBI", 5, 0, 32_000, 0, 0, 2) + struct.pack(">32000H", *range(100, 32_100))
    head = b"SQLite format 3\0" + struct.pack(">H", 1) + bytes(82)
    return (head + page).ljust(65536, b"\2") + page.ljust(65536, b"\1") * 999


def crowded() -> bytes:
    """Return a database of many tables, all of them one page that says it has as many children as it can."""
    schema = b"".join(
        bytes([13, number >> 7 | 128, number & 127, 5, 23, 15, 15, 1]) + b"table" + b"t" + b"t" + b"\3"
        for number in range(1000)
    )
    size = len(schema) // 1000
    start = 65536 - len(schema)
    places = struct.pack(">1000H", *(start + size * number for number in range(1000)))
    head = b"SQLite format 3\0" + struct.pack(">H", 1) + bytes(82)
    page = head + struct.pack(">BHHHB", 0x0D, 0, 1000, start, 0) + places
    children = struct.pack(">BHHHBI", 5, 0, 65535, 0, 0, 3) + struct.pack(">H", 4) * 65535
    return page.ljust(start, b"\0") + schema + bytes(65536) + children.ljust(3 * 65536, b"\0")


@pytest.mark.timeout(120)
def test_damaged_files_end_in_one_bounded_line(tmp_path: Path) -> None:
    base = sqlite3.connect(tmp_path / "x.db")
    base.execute("CREATE TABLE t (x)")
    base.executemany("INSERT INTO t VALUES (?)", (("y" * 50,) for _ in range(3000)))
    base.commit()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a", "b" * 999)
    starts = {
        "x.db": (tmp_path / "x.db").read_bytes(),
        "x.zip": buffer.getvalue(),
        "x.ipynb": json.dumps({"cells": CELLS}).encode(),
        "x.csv": b'"a,b\n' * 99,
        "x.png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1",
        "x.jpg": b"\xff\xd8\xff\xe0\0\x10JFIF" + b"\xff\xe1\0\0" * 99,
        "x.parquet": b"PAR1" + b"\x19\x1c" * 9000 + struct.pack("<I", 18_000) + b"PAR1",
    }
    rng = random.Random(0)
    for path, content in starts.items():
        for _ in range(100):
            kind = kind_of(path, damaged(content, rng))
            assert len(kind) <= 600
            assert kind.isprintable()
    started = time.process_time()
    assert kind_of("x", looped()) == ""
    assert kind_of("x", crowded()).startswith("SQLite database, 1,000 tables (t rows not counted,")
    assert kind_of("x", b"PK\3\4" + b"PK\5\6" * (1 << 22)) == ""
    assert kind_of("x", b"PAR1" + b"\x9c" * (1 << 24) + b"PAR1") == "Parquet"
    assert time.process_time() - started < 5


def test_a_listing_has_kinds_of_files_and_what_changed_in_them(tmp_path: Path) -> None:
    def base(rows: int) -> bytes:
        made = sqlite3.connect(":memory:")
        made.execute("CREATE TABLE sums (x)")
        made.executemany("INSERT INTO sums VALUES (?)", [(1,)] * rows)
        made.commit()
        return made.serialize()

    before = Folder({"s.db": base(2), "n.ipynb": json.dumps({"cells": CELLS[:1]}).encode()})
    cells = json.dumps({"cells": CELLS}).encode()
    after = Folder({"s.db": base(3), "n.ipynb": cells, "x.bin": b"\0", "t.csv": b"a,b\n1,2\n"})
    lines = listing(after, "response A", before).splitlines()
    was, now = "notebook, 1 cell (1 markdown), 0 outputs", "notebook, 3 cells (2 code, 1 markdown), 1 output"
    assert lines[1:8] == [
        f"n.ipynb, {len(cells)} bytes, changed, {now} (before: {was})",
        *("    @@ -2,2 +2,5 @@", "     # Sums", "     of rows", "    +[code cell]", "    +print(7)"),
        "    +[code cell]",
    ]
    was, now = (f"SQLite database, 1 table (sums {count} rows)" for count in (2, 3))
    assert lines[8:] == [
        f"s.db, 8,192 bytes, changed, {now} (before: {was})",
        *("t.csv, 8 bytes, table, 2 columns (a, b), 2 lines", "    a,b", "    1,2"),
        "x.bin, 1 byte, no text",
    ]


@pytest.mark.timeout(60)
def test_a_difference_of_hostile_texts_takes_bounded_time() -> None:
    rng = random.Random(0)

    def text() -> bytes:
        return "\n".join(f"-- {rng.randrange(100)}" for _ in range(100_000)).encode()

    started = time.process_time()
    for _ in range(3):
        same = text()
        old = Folder({f"{n}": same + text() for n in range(8)})
        new = Folder({f"{n}": same + text() for n in range(8)})
        listing(new, "response A", old)
        listing(Folder({"a": text()[:1600]}), "A", Folder({"a": text()[:1600]}))
    assert time.process_time() - started < 20


def test_the_place_of_a_change_in_a_long_file_is_named_and_nothing_of_it_left_out() -> None:
    old = [f"-- {number}" for number in range(5000)]
    new = [*old[:3000], "-- changed", *old[3001:]]
    shown = listing(
        Folder({"a": "\n".join(new).encode()}), "response A", Folder({"a": "\n".join(old).encode()})
    )
    assert shown.splitlines()[2:] == [
        "    @@ -2999,5 +2999,5 @@",
        *("     -- 2998", "     -- 2999", "    --- 3000", "    +-- changed", "     -- 3001", "     -- 3002"),
    ]
