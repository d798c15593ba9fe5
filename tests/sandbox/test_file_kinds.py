"""The usual kinds of files, which programs read in every placement without a further process."""

from __future__ import annotations

import io
import sqlite3
import struct
import zipfile
from pathlib import Path

import pytest

from tests.sandbox.targets import PLACEMENTS, READ_ONLY
from tirjudge_sandbox import Limits, Program, Sandbox

pytestmark = pytest.mark.asyncio(loop_scope="module")

READ = """
import csv, io, json, sqlite3, struct, zipfile
read = open("files_a/t.csv")
print("csv", [row["n"] for row in csv.DictReader(read)])
print("json", json.load(open("files_a/t.json"))["n"])
print("ipynb", [cell["cell_type"] for cell in json.load(open("files_a/t.ipynb"))["cells"]])
base = sqlite3.connect("files_a/t.db")
print("sqlite", base.execute("SELECT sum(n) FROM t").fetchone())
try:
    base.execute("INSERT INTO t VALUES (5)")
    base.commit()
    print("changed", sqlite3.connect("files_a/t.db").execute("SELECT sum(n) FROM t").fetchone())
except sqlite3.OperationalError as error:
    print("changed", error)
print("png", struct.unpack(">II", open("files_a/t.png", "rb").read()[16:24]))
print("zip", zipfile.ZipFile("files_a/t.zip").read("x").decode())
print("patch", sum(line.startswith("+") for line in open("files_a/t.diff")))
try:
    import pandas
    print("parquet", int(pandas.read_parquet("files_a/t.parquet")["n"].sum()))
except ImportError:
    print("parquet missing")
"""


TEXTS = {
    "t.csv": "n\n3\n4\n",
    "t.json": '{"n": 7}',
    "t.ipynb": '{"cells": [{"cell_type": "code"}]}',
    "t.diff": "@@ -1 +1 @@\n-a\n+b\n",
}


@pytest.mark.parametrize(
    "placement",
    [
        "userns",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("plain", "root", "own-uid")
            if name in PLACEMENTS
        ),
        pytest.param("docker", marks=[pytest.mark.slow, pytest.mark.docker]),
    ],
    indirect=True,
)
async def test_programs_read_every_usual_kind(target: Sandbox, placement: str, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pandas.DataFrame({"n": [3, 4]}).to_parquet(tmp_path / "t.parquet")
    base = sqlite3.connect(tmp_path / "t.db")
    base.execute("CREATE TABLE t (n)")
    base.executemany("INSERT INTO t VALUES (?)", [(3,), (4,)])
    base.commit()
    base.close()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("x", "inside")
    files = {f"files_a/{name}": text.encode() for name, text in TEXTS.items()}
    files |= {f"files_a/{name}": (tmp_path / name).read_bytes() for name in ("t.parquet", "t.db")}
    files["files_a/t.zip"] = packed.getvalue()
    files["files_a/t.png"] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 640, 480)
    ran = await target.run(Program(READ, files=files), Limits(wall_seconds=100, cpu_seconds=60))
    changed = "attempt to write a readonly database" if placement in READ_ONLY else "(12,)"
    assert ran.stdout.splitlines() == [
        *("csv ['3', '4']", "json 7", "ipynb ['code']", "sqlite (7,)", f"changed {changed}"),
        *("png (640, 480)", "zip inside", "patch 1", "parquet 7"),
    ], ran.stderr
