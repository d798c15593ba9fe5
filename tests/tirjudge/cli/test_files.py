"""Responses with files: judged with programs that read them, recorded once, and run again elsewhere."""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
import shutil
import tarfile
import zipfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.rows import every
from tests.sandbox.serving import serving
from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.judge_command import FAST, invoke, judge, results, through, write_rows
from tirjudge_sandbox.base import MIB

PROGRAM = """
import csv
def total(folder):
    with open(f"{folder}/out/sums.csv") as file:
        return sum(int(row["n"]) for row in csv.DictReader(file))
with open(f"{prompt_files}/wanted.txt") as file:
    wanted = int(file.read())
for name, folder in zip("AB", files):
    print(name, int(total(folder) == wanted), "of 1")
"""
RIGHT, WRONG = "n\n3\n4\n", "n\n3\n5\n"


def reading(body: dict[str, Any]) -> dict[str, Any]:
    """Play a judge whose program adds up the numbers in the files of both responses."""
    last = body["messages"][-1]["content"]
    if len(body["messages"]) == 1:
        return chat(f"I add them up.\n```python{PROGRAM}```\n")
    return chat(f"<preference>{'A' if 'A 1 of 1' in last else 'B'}</preference>")


def archived(folder: Path, name: str, files: dict[str, str]) -> str:
    if name.endswith(".zip"):
        with zipfile.ZipFile(folder / name, "w") as archive:
            for path, text in files.items():
                archive.writestr(path, text)
    else:
        with tarfile.open(folder / name, "w:gz") as archive:
            for path, text in files.items():
                entry = tarfile.TarInfo(path)
                entry.size = len(text)
                archive.addfile(entry, io.BytesIO(text.encode()))
    return name


@pytest.fixture
def rows(tmp_path: Path, endpoint: EndpointServer) -> list[dict[str, Any]]:
    """Four rows with files in every form; in two of them the second response has the right sums."""
    endpoint.script = reading
    data = tmp_path / "data"
    (data / "left/out").mkdir(parents=True)
    (data / "left/out/sums.csv").write_text(RIGHT)
    given = [
        ["left", archived(data, "right.zip", {"out/sums.csv": WRONG})],
        [archived(data, "a.tar.gz", {"out/sums.csv": WRONG}), {"out/sums.csv": {"text": RIGHT}}],
        [{"out/sums.csv": {"base64": base64.b64encode(RIGHT.encode()).decode()}}, "right.zip"],
        [
            {"out/sums.csv": {"diff": "@@ -2,2 +2,2 @@\n 3\n-0\n+5\n"}},
            {"out/sums.csv": {"diff": "@@ -2,2 +2,2 @@\n 3\n-0\n+4\n"}},
        ],
    ]
    before = {"wanted.txt": {"text": "7"}, "out/sums.csv": {"text": "n\n3\n0\n"}}
    made = [
        {
            "id": f"r{number}",
            "prompt": "Add up.",
            "responses": ["done", "done"],
            "label": number % 2,
            "files": files,
            "prompt_files": before,
        }
        for number, files in enumerate(given)
    ]
    write_rows(data / "rows.jsonl", made)
    return made


def test_programs_find_the_files_and_decide(
    tmp_path: Path, rows: list[dict[str, Any]], endpoint: EndpointServer
) -> None:
    run = judge(tmp_path, "data/rows.jsonl", "--order", "both", *through(endpoint), code=0)
    assert "accuracy  100.0%" in run.stdout
    assert "decided by a program 4 of 4 rows" in run.stdout
    asked = endpoint.bodies[0]["messages"][0]["content"]
    assert "[files of response A: 1 file, 6 bytes]" in asked
    assert "out/sums.csv, 6 bytes, changed" in asked
    assert "wanted.txt, deleted" in asked


def test_contents_are_kept_once_and_programs_run_again_elsewhere(
    tmp_path: Path, rows: list[dict[str, Any]], endpoint: EndpointServer
) -> None:
    words = ("data/rows.jsonl", "--output", "data/rows.verdicts.jsonl", "--order", "both")
    judge(tmp_path, *words, *through(endpoint))
    kept = tmp_path / "data/rows.verdicts.jsonl.files"
    assert len(list(kept.iterdir())) == 4, "right, wrong, and the two that were given"
    row = results(tmp_path / "data/rows.verdicts.jsonl")[0]
    assert row["files"][0]["out/sums.csv"]["bytes"] == len(RIGHT)
    other = tmp_path / "elsewhere"
    other.mkdir()
    shutil.move(tmp_path / "data/rows.verdicts.jsonl", other)
    shutil.move(kept, other)
    shutil.rmtree(tmp_path / "data")
    again = invoke("reproduce", "rows.verdicts.jsonl", folder=other, code=0)
    assert re.search(r"same +8\n", again.stdout), again.stdout
    shown = invoke("show", "rows.verdicts.jsonl", "r0", folder=other).stdout
    for view in row["views"]:
        bindings = next(one["bindings"] for one in view["segments"] if one["kind"] == "program")
        assert bindings["responses"] == view["order"], "equal texts have the order shown"
        assert [bindings["response_a"], bindings["response_b"]] == view["order"]
        assert bindings["files"] == [{"files": index} for index in view["order"]]
    assert "out/sums.csv, 6 bytes" in shown
    shutil.rmtree(other / "rows.verdicts.jsonl.files")
    lost = invoke("reproduce", "rows.verdicts.jsonl", folder=other, code=1)
    assert "the contents of its files are not in" in lost.stdout + lost.stderr


@pytest.mark.slow
def test_attacked_responses_keep_their_files(
    tmp_path: Path, rows: list[dict[str, Any]], endpoint: EndpointServer
) -> None:
    words = ("attack", "data/rows.jsonl", "--attack", "forgeries", "--json", *through(endpoint))
    run = invoke(*words, folder=tmp_path, code=0)
    found = json.loads(run.stdout)["attacks"]
    assert {(one["n"], one["to_target"], one["lost"]) for one in found} == {(4, 0, 0)}
    assert len(found) > 5
    prompts = [body["messages"][0]["content"] for body in endpoint.bodies]
    assert all("[files of response B: 1 file, 6 bytes]" in one for one in prompts)


def test_a_changed_file_is_another_row(
    tmp_path: Path, rows: list[dict[str, Any]], endpoint: EndpointServer
) -> None:
    judge(tmp_path, "data/rows.jsonl", *through(endpoint))
    (tmp_path / "data/left/out/sums.csv").write_text(WRONG)
    run = judge(tmp_path, "data/rows.jsonl", *through(endpoint))
    assert "it was judged with another prompt or responses" in run.stderr


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        (["gone", "left"], "gone: No such file or directory"),
        (["../data/left", "left"], "no path below the folder"),
        (["link", "left"], "link: it is a link or a device"),
        (["link/out", "left"], "link is a link, which are not followed"),
        (["/etc", "left"], "no path below the folder"),
        ([{"../x": {"text": ""}}, "left"], "no path below the folder"),
        ([{"x": "text"}, "left"], 'write {"text": ...}'),
        (["left"], "files must be a list of 2 folders"),
        ([{"out/sums.csv": {"diff": "@@ -9,1 +9,1 @@\n-9\n+8\n"}}, "left"], "does not fit"),
        ([{"a": {"text": ""}, "A": {"text": ""}}, "left"], "differ in case alone"),
    ],
)
def test_bad_files_are_one_line(
    tmp_path: Path, rows: list[dict[str, Any]], endpoint: EndpointServer, files: Any, reason: str
) -> None:
    (tmp_path / "data/link").symlink_to(tmp_path / "data/left")
    write_rows(tmp_path / "data/rows.jsonl", [rows[0] | {"files": files}, rows[1]])
    run = judge(tmp_path, "data/rows.jsonl", *through(endpoint))
    assert reason in run.stderr, run.stderr
    assert "Traceback" not in run.stderr
    assert [row["id"] for row in results(tmp_path / "rows.verdicts.jsonl")] == ["r1"]


def test_standard_input_may_name_nothing(
    tmp_path: Path, rows: list[dict[str, Any]], endpoint: EndpointServer
) -> None:
    stdin = "".join(json.dumps(row) + "\n" for row in rows[:1])
    run = judge(tmp_path / "data", "-", "--output", "out.jsonl", *through(endpoint), stdin=stdin)
    assert "only rows of a file may name one" in run.stderr


def test_the_report_lists_the_files(
    tmp_path: Path, rows: list[dict[str, Any]], endpoint: EndpointServer
) -> None:
    judge(tmp_path, "data/rows.jsonl", *through(endpoint))
    invoke("report", "rows.verdicts.jsonl", "-o", "page.html", folder=tmp_path, code=0)
    chunks = re.findall(r'id="texts-\d+-\d+">([^<]*)<', (tmp_path / "page.html").read_text())
    drawn = [row for one in chunks for row in json.loads(gzip.decompress(base64.b64decode(one)))]
    assert len(drawn) == 4
    for row in drawn:
        text, folder = row["responses"][0][1:]
        assert (text, folder["heading"]) == ("done", "files of response A: 1 file, 6 bytes")
        changed, deleted = folder["files"]
        assert changed[0].startswith("out/sums.csv, 6 bytes, changed")
        assert (changed[1].splitlines()[0], changed[2]) == ("@@ -1,3 +1,3 @@", True)
        assert deleted == ["wanted.txt, deleted", "", False]
        assert row["given"][0]["heading"] == "files of the prompt: 2 files, 7 bytes"


def test_files_that_only_the_prompt_has_are_kept_and_noticed(
    tmp_path: Path, rows: list[dict[str, Any]], endpoint: EndpointServer
) -> None:
    def counting(body: dict[str, Any]) -> dict[str, Any]:
        if len(body["messages"]) == 1:
            return chat("```python\nprint(open(f'{prompt_files}/wanted.txt').read())\n```\n")
        return chat("<preference>A</preference>")

    endpoint.script = counting
    row = {"id": "r", "prompt": "p", "responses": ["x", "y"], "prompt_files": {"wanted.txt": {"text": "7"}}}
    write_rows(tmp_path / "one.jsonl", [row])
    assert judge(tmp_path, "one.jsonl", *through(endpoint)).returncode == 0
    asked = endpoint.bodies[0]["messages"][0]["content"]
    assert re.search(r"<files-[0-9a-f]{8}>\n\[files of the prompt: 1 file, 1 byte\]\nwanted.txt", asked)
    assert "`prompt_files`" in asked
    assert invoke("reproduce", "one.verdicts.jsonl", folder=tmp_path).returncode == 0
    write_rows(tmp_path / "one.jsonl", [row | {"prompt_files": {"wanted.txt": {"text": "8"}}}])
    again = judge(tmp_path, "one.jsonl", *through(endpoint))
    assert "it was judged with another prompt or responses" in again.stderr


BEFORE = {"sums.py": {"text": "def add(a, b):\n    return 0\n"}, "notes.md": {"text": "n"}}
PATCH = """diff --git a/sums.py b/sums.py
--- a/sums.py
+++ b/sums.py
@@ -1,2 +1,2 @@
 def add(a, b):
-    return 0
+    return a {} b
diff --git a/notes.md b/notes.md
deleted file mode 100644
--- a/notes.md
+++ /dev/null
@@ -1 +0,0 @@
-n
\\ No newline at end of file
"""


@pytest.mark.parametrize("patched", [False, True])
def test_a_module_of_the_files_is_tested_and_tested_again(
    patched: bool, tmp_path: Path, endpoint: EndpointServer
) -> None:
    call = {"file": "sums.py", "cases": [{"call": "add(2, 3)", "expected": 5}]}

    def testing(body: dict[str, Any]) -> dict[str, Any]:
        if len(body["messages"]) == 1:
            return chat(f"```run_tests\n{json.dumps(call)}\n```\n")
        passed = "response A: 1 of 1" in body["messages"][-1]["content"]
        return chat(f"<preference>{'A' if passed else 'B'}</preference>")

    endpoint.script = testing
    right, wrong = ({"sums.py": {"text": f"def add(a, b):\n    return a {sign} b\n"}} for sign in "+-")
    row = {"id": "r", "prompt": "Add.", "responses": ["done", "done"], "files": [right, wrong], "label": 0}
    if patched:
        (tmp_path / "wrong.patch").write_text(PATCH.format("-"))
        row.update(files=[{"diff": PATCH.format("+")}, "wrong.patch"], prompt_files=BEFORE)
    run = judge(tmp_path, [row], "--tool", "tests", "--order", "both", *through(endpoint))
    assert "accuracy  100.0%" in run.stdout, run.stderr + run.stdout
    asked = endpoint.bodies[0]["messages"][0]["content"]
    assert ("sums.py, 32 bytes, changed" in asked, "notes.md, deleted" in asked) == (patched, patched)
    again = invoke("reproduce", "rows.verdicts.jsonl", folder=tmp_path, code=0)
    assert re.search(r"same +2\n", again.stdout), again.stdout


SUM = """
def total(folder):
    with open(f"{folder}/t.csv", "rb") as rows:
        return sum(row == b"1,2\\n" for row in rows)
print("A", int(total(files_a) == total(prompt_files)), "of 1")
print("B", int(total(files_b) == total(prompt_files)), "of 1")
"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", every(2, ["local", "remote"]))
@pytest.mark.timeout(900)
@pytest.mark.parametrize("size", every(2, [MIB, 40 * MIB]))
def test_a_table_of_many_megabytes_reaches_the_programs(
    size: int, backend: str, tmp_path: Path, endpoint: EndpointServer
) -> None:
    def summing(body: dict[str, Any]) -> dict[str, Any]:
        if len(body["messages"]) == 1:
            return chat(f"```python{SUM}```\n")
        found = "A 1 of 1" in body["messages"][-1]["content"]
        return chat(f"<preference>{'A' if found else 'B'}</preference>")

    endpoint.script = summing
    table = "1,2\n" * (size // 4)
    archived(tmp_path, "given.tar.gz", {"t.csv": table})
    archived(tmp_path, "same.zip", {"t.csv": table})
    archived(tmp_path, "short.zip", {"t.csv": table[4:]})
    row = {"id": "r", "prompt": "Keep all.", "responses": ["done", "done"], "label": 0}
    write_rows(
        tmp_path / "rows.jsonl", [row | {"files": ["same.zip", "short.zip"], "prompt_files": "given.tar.gz"}]
    )
    model = ("--base-url", endpoint.url, "--model", "m")
    limits = ("--program-limit", "wall_seconds=100", "--program-limit", "cpu_seconds=60")
    with serving() if backend == "remote" else nullcontext() as server:
        options = (*FAST, *limits)
        if server is not None:
            # A busy machine takes minutes for what takes seconds alone.
            remote = ("--backend-option", f"url={server.url}", "--backend-option", "patience_seconds=300")
            options = ("--backend", "remote", *remote, *limits)
        run = judge(tmp_path, "rows.jsonl", "--order", "both", *options, *model)
        assert "accuracy  100.0%" in run.stdout, run.stderr + run.stdout
        assert "decided by a program 1 of 1 rows" in run.stdout
        again = invoke("reproduce", "rows.verdicts.jsonl", *options, folder=tmp_path)
    assert again.returncode == 0, again.stderr + again.stdout
    kept = tmp_path / "rows.verdicts.jsonl.files"
    assert sorted(one.stat().st_size for one in kept.iterdir()) == [size - 4, size]
