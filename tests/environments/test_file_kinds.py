"""Kinds of files as libraries write them, and listings of folders with notebooks and changes."""

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


@pytest.mark.parametrize("format", ["PNG", "GIF", "JPEG", "WebP"])
def test_images_of_pillow_are_known(format: str) -> None:
    image = pytest.importorskip("PIL.Image")
    buffer = io.BytesIO()
    image.new("RGB", (3, 2)).save(buffer, format)
    assert kind_of(buffer.getvalue()) == f"{format} image"


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
    assert [kind_of(content) for content in written] == ["SQLite database", "Parquet", "zip"]


def test_a_listing_has_kinds_of_files_and_what_changed_in_them(tmp_path: Path) -> None:
    def base(rows: int) -> bytes:
        made = sqlite3.connect(":memory:")
        made.execute("CREATE TABLE sums (x)")
        made.executemany("INSERT INTO sums VALUES (?)", [(1,)] * rows)
        made.commit()
        return made.serialize()

    for damaged in (b"[" * 90_000, b'{"cells": [{"cell_type": {}}, 3]}', b'{"cells": 3}', b"\xff"):
        assert len(listing(Folder({"n.ipynb": damaged}), "response A")) < 1500
    before = Folder({"s.db": base(2), "n.ipynb": json.dumps({"cells": CELLS[:1]}).encode()})
    cells = json.dumps({"cells": CELLS}).encode()
    after = Folder({"s.db": base(3), "n.ipynb": cells, "x.bin": b"\0", "t.csv": b"a,b\n1,2\n"})
    lines = listing(after, "response A", before).splitlines()
    assert lines[1:8] == [
        f"n.ipynb, {len(cells)} bytes, changed",
        *("    @@ -2,2 +2,5 @@", "     # Sums", "     of rows", "    +[code cell]", "    +print(7)"),
        "    +[code cell]",
    ]
    assert lines[8:] == [
        "s.db, 8,192 bytes, changed, SQLite database",
        *("t.csv, 8 bytes", "    a,b", "    1,2"),
        "x.bin, 1 byte, no text",
    ]


@pytest.mark.timeout(60)
def test_a_difference_of_hostile_texts_takes_bounded_time() -> None:
    rng = random.Random(0)

    def text() -> bytes:
        return "\n".join(f"-- {rng.randrange(100)}" for _ in range(100_000)).encode()

    started = time.process_time()
    same = text()
    old = Folder({f"{n}": same + text() for n in range(8)})
    new = Folder({f"{n}": same + text() for n in range(8)})
    listing(new, "response A", old)
    listing(Folder({"a": text()[:1600]}), "A", Folder({"a": text()[:1600]}))
    assert time.process_time() - started < 10


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
