"""The commands of examples/pull-request.yml, for a good pull request and for a bad one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.tirjudge.endpoint_server import EndpointServer, chat, serving

WORKFLOW = Path(__file__).parents[2] / "examples" / "pull-request.yml"
BAD = "It is a number."
ANSWER = """import json
for number in range(len(ANSWERS)):
    row = {"id": number, "prompt": f"Question {number}", "answer": ANSWERS[number], "bad": BAD, "label": "A"}
    print(json.dumps(row))
"""


def prefers(body: dict[str, Any]) -> dict[str, Any]:
    """Prefer a right answer to the bad one, and the bad one to a wrong answer, in any order."""
    asked = json.dumps(body["messages"])
    better = "Eleven." if "Eleven." in asked else BAD
    worse = BAD if better != BAD else "Twelve."
    first = asked.rindex(better) < asked.rindex(worse)
    return chat(f"<preference>{'A' if first else 'B'}</preference>")


def runs(folder: Path, endpoint: EndpointServer, answers: list[str]) -> list[int]:
    """Run the workflow's commands after the installation, and return their exit codes."""
    (folder / "answer.py").write_text(f"ANSWERS, BAD = {answers!r}, {BAD!r}\n{ANSWER}")
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "OPENAI_API_KEY": "a-key-for-tests",
    }
    (job,) = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"].values()
    commands = [step["run"] for step in job["steps"] if "run" in step]
    paths = {step["with"].get("path") for step in job["steps"] if "checkout" in step.get("uses", "")}
    assert commands[0] == "pip install './.tirjudge[eval,report]'"
    assert ".tirjudge" in paths, "the folder that is installed"
    codes = []
    for command in commands[1:]:
        here = command.replace("https://api.openai.com/v1", endpoint.url)
        codes.append(
            subprocess.run(["bash", "-ec", here], cwd=folder, env=environment, check=False).returncode
        )
    return codes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "codes"), [(0, [0, 0, 0, 0]), (2, [0, 1, 0, 0]), (8, [0, 1, 1, 0])], ids=["good", "few", "many"]
)
def test_a_pull_request_fails_below_the_threshold_or_if_it_is_worse_than_main(
    tmp_path: Path, wrong: int, codes: list[int]
) -> None:
    main, branch = tmp_path / "main", tmp_path / "branch"
    main.mkdir()
    branch.mkdir()
    with serving() as endpoint:
        endpoint.script = prefers
        runs(main, endpoint, ["Eleven."] * 12)
        shutil.copy(main / "answers.verdicts.jsonl", branch / "main.verdicts.jsonl")
        assert runs(branch, endpoint, ["Twelve."] * wrong + ["Eleven."] * (12 - wrong)) == codes
    verdicts = [json.loads(line) for line in (branch / "answers.verdicts.jsonl").read_text().splitlines()]
    assert sum(row["correct"] for row in verdicts) == 12 - wrong
    assert f'failures="{wrong}"' in (branch / "judge.xml").read_text()
    assert (branch / "report.html").stat().st_size > 0
