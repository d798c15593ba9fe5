"""`--prepare FILE`: the judge's prompt, the recorded settings, and `reproduce` on another machine."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.judge_command import FAST, asking_as_tir, invoke, results, write_rows
from tirjudge import Judge

DOCSTRING = '"""`capitals`: country to capital.\n\n`right(text)`: whether a capital is in it.\n"""\n'
MAIN = DOCSTRING + (
    "import csv\ncapitals = dict(csv.reader(open('capitals.csv')))\n"
    "def right(text):\n    return int(any(one in text for one in capitals.values()))\n"
)
PROGRAM = (
    "for name, one in zip('AB', responses): print(name, right(one), 'of', len(capitals) - 1)\n"
    "capitals.clear()"
)
ROWS = [{"id": f"r{n}", "prompt": "Capital of France?", "responses": ["Lyon", "Paris"]} for n in range(3)]


def judging(body: dict[str, Any]) -> dict[str, Any]:
    last = body["messages"][-1]["content"]
    if len(body["messages"]) == 1:
        return chat(f"```python\n{PROGRAM}\n```\n")
    return chat(f"<preference>{'B' if 'B 1 of 1' in last else 'A'}</preference>")


@pytest.fixture
def folder(tmp_path: Path, endpoint: EndpointServer) -> Path:
    endpoint.script = judging
    write_rows(tmp_path / "rows.jsonl", ROWS)
    (tmp_path / "my own").mkdir()
    (tmp_path / "my own" / "__main__.py").write_text(MAIN)
    (tmp_path / "my own" / "capitals.csv").write_text("France,Paris\nItaly,Rome\n")
    return tmp_path


def judged(folder: Path, endpoint: EndpointServer, *arguments: str, code: int = 0) -> str:
    command = ("rows.jsonl", "--order", "given", *asking_as_tir(endpoint), *arguments)
    run = invoke("judge", *command, folder=folder)
    assert run.returncode == code, run.stderr
    return run.stdout + run.stderr


PREPARED = ("--prepare", "my own")


def test_the_judge_is_told_of_the_names_and_its_programs_find_them(folder, endpoint):
    printed = judged(folder, endpoint, *PREPARED)
    asked = endpoint.bodies[0]["messages"][0]["content"]
    assert asked.endswith(
        "need not define or load them again:\n`capitals`: country to capital.\n\n"
        "`right(text)`: whether a capital is in it."
    )
    rows = results(folder / "rows.verdicts.jsonl")
    assert [row["verdict"] for row in rows] == ["B"] * 3, "every program found all capitals, after `clear`"
    assert "decided by a program 3 of 3 rows" in printed


def test_the_run_resumes_with_the_same_content_alone(folder, endpoint):
    judged(folder, endpoint, *PREPARED, "--limit", "1")
    (folder / "my own").rename(folder / "moved")
    judged(folder, endpoint, "--prepare", "moved", "--limit", "2")
    (folder / "moved" / "capitals.csv").write_text("France,Lyon\n")
    assert "was begun with other settings (prepare was " in judged(
        folder, endpoint, "--prepare", "moved", code=2
    )
    assert "(prepare was " in judged(folder, endpoint, code=2)


def test_a_run_from_before_the_option_resumes(folder, endpoint):
    judged(folder, endpoint, "--limit", "1", code=0)
    settings = folder / "rows.verdicts.jsonl.settings.json"
    recorded = json.loads(settings.read_text())
    del recorded["settings"]["prepare"]
    settings.write_text(json.dumps(recorded))
    judged(folder, endpoint, "--limit", "2")
    assert len(results(folder / "rows.verdicts.jsonl")) == 2


def test_results_are_reproduced_from_a_copy_elsewhere(folder, endpoint, tmp_path_factory):
    judged(folder, endpoint, *PREPARED)
    elsewhere = tmp_path_factory.mktemp("else where")
    shutil.copy(folder / "rows.verdicts.jsonl", elsewhere)
    shutil.copy(folder / "rows.verdicts.jsonl.settings.json", elsewhere)
    shutil.copytree(folder / "rows.verdicts.jsonl.prepared", elsewhere / "rows.verdicts.jsonl.prepared")
    again = ("reproduce", "rows.verdicts.jsonl", "--json", *FAST)
    refused = invoke(*again, folder=elsewhere, code=2)
    line = refused.stderr.strip()
    assert "ran after a prepared program, and none is given: it runs as trusted code: read it first" in line
    advice = line.partition("then give ")[2]
    run = invoke(*again, *shlex.split(advice), folder=elsewhere)
    assert (run.returncode, json.loads(run.stdout)["same"]) == (0, 3), run.stderr
    (elsewhere / "other.py").write_text(DOCSTRING)
    run = invoke(*again, "--prepare", "other.py", folder=elsewhere)
    assert (run.returncode, "and other.py is another one" in run.stderr) == (2, True)


def test_a_judge_with_another_prepared_program_replaces_the_copy(folder, endpoint):
    (folder / "my own" / "data").mkdir()
    (folder / "my own" / "data" / "unused.csv").write_text("x\n")
    judged(folder, endpoint, *PREPARED)
    (folder / "other").mkdir()
    (folder / "other" / "__main__.py").write_text(MAIN.replace("'capitals.csv'", "'cities.csv'"))
    (folder / "other" / "cities.csv").write_text("France,Paris\nItaly,Rome\n")
    judged(folder, endpoint, "--prepare", "other", "--overwrite")
    kept = folder / "rows.verdicts.jsonl.prepared"
    assert sorted(path.name for path in kept.rglob("*")) == ["__main__.py", "cities.csv"]
    run = invoke("reproduce", "rows.verdicts.jsonl", "--json", *FAST, "--prepare", str(kept), folder=folder)
    assert (run.returncode, json.loads(run.stdout)["same"]) == (0, 3), run.stderr


def test_a_copy_is_kept_only_with_texts(folder, endpoint):
    judged(folder, endpoint, *PREPARED, "--no-texts")
    assert not (folder / "rows.verdicts.jsonl.prepared").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--prepare", "none.py"), "prepare: none.py: No such file or directory"),
        (("--prepare", "bad.py"), "bad.py: line 2: NameError: name 'no' is not defined"),
        (("--backend-option", "prepare=x.py"), "give --prepare FILE"),
        ((*PREPARED, "--no-tools"), "--prepare needs a judge with tools: leave out --no-tools"),
        ((*PREPARED, "--backend-option", "prepare_seconds=-1"), "prepare_seconds must be a number above 0"),
    ],
)
def test_a_bad_preparation_is_one_line_before_a_row_is_judged(folder, endpoint, arguments, reason):
    (folder / "bad.py").write_text("x = 1\nno\n")
    run = invoke("judge", "rows.jsonl", *asking_as_tir(endpoint), *arguments, folder=folder)
    lines = [line for line in run.stderr.splitlines() if reason in line]
    assert (len(lines), run.returncode in (2, 125)) == (1, True), run.stderr
    assert not endpoint.bodies


def test_in_python_and_for_the_sandbox_command(folder, endpoint):
    options = {"backend_options": {"preload": []}, "order": "given", "untrained": "tir"}
    options["prepare"] = str(folder / "my own")
    with Judge(model="m", base_url=endpoint.url, **options) as judge:
        assert judge.compare("Capital of France?", "Lyon", "Paris").verdict == "B"
    (folder / "program.py").write_text("print(right('Rome'))")
    run = invoke("sandbox", "run", "program.py", *PREPARED, folder=folder)
    assert (run.returncode, run.stdout) == (0, "1\n"), run.stderr
