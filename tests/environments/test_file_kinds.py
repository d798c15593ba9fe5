"""Kinds of files: summaries of texts, binary files as libraries write them, and damaged files."""

from __future__ import annotations

import io
import json
import random
import sqlite3
import time
import zipfile
from pathlib import Path

import pytest

from tirjudge_environments.files.folder import Folder
from tirjudge_environments.files.kinds import kind_of
from tirjudge_environments.files.listing import listing

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


@pytest.mark.parametrize("format", ["PNG", "GIF", "JPEG", "WebP"])
def test_images_of_pillow_are_known(format: str) -> None:
    image = pytest.importorskip("PIL.Image")
    buffer = io.BytesIO()
    image.new("RGB", (3, 2)).save(buffer, format)
    assert kind_of("x", buffer.getvalue()) == f"{format} image"


def test_databases_tables_and_archives_are_known_as_libraries_write_them(tmp_path: Path) -> None:
    base = sqlite3.connect(":memory:")
    base.execute("CREATE TABLE t (x)")
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({"id": [1]}), tmp_path / "t")
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("a", "b")
    written = base.serialize(), (tmp_path / "t").read_bytes(), archive.getvalue()
    assert [kind_of("x", content) for content in written] == ["SQLite database", "Parquet", "zip"]


def damaged(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.randint(1, 40)):
        changed[rng.randrange(min(len(changed), 9000))] = rng.choice((0, 1, 5, 0x0D, 255, rng.randrange(256)))
    return bytes(changed[: rng.randrange(len(changed))]) if rng.random() < 0.2 else bytes(changed)


def test_damaged_files_end_in_one_bounded_line() -> None:
    starts = {
        "x.ipynb": json.dumps({"cells": CELLS}).encode(),
        "x.json": b'{"a": [1, {"b": "c"}]}' * 9,
        "x.jsonl": b'{"a": [1, {"b": "c"}]}\n' * 9,
        "x.csv": b'"a,b\n' * 99,
        "x.diff": PATCH.encode(),
        "x.png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1",
    }
    rng = random.Random(0)
    for path, content in starts.items():
        for _ in range(100):
            kind = kind_of(path, damaged(content, rng))
            assert len(kind) <= 600
            assert kind.isprintable()


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
    assert lines[8:] == [
        "s.db, 8,192 bytes, changed, SQLite database",
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
