"""The commands of examples/pull-request.yml, for a good pull request and for a bad one."""

from __future__ import annotations

import json
import os
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
for number in range(4):
    row = {"prompt": f"Question {number}", "answer": ANSWERS[number], "bad": BAD, "label": "A"}
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
    assert commands[0] == "pip install 'tirjudge[report]'"
    codes = []
    for command in commands[1:]:
        here = command.replace("https://api.openai.com/v1", endpoint.url)
        codes.append(
            subprocess.run(["bash", "-ec", here], cwd=folder, env=environment, check=False).returncode
        )
    return codes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answers", "code"), [(["Eleven."] * 4, 0), (["Eleven.", "Twelve.", "Eleven.", "Eleven."], 1)]
)
def test_a_pull_request_fails_below_the_threshold(tmp_path: Path, answers: list[str], code: int) -> None:
    with serving() as endpoint:
        endpoint.script = prefers
        assert runs(tmp_path, endpoint, answers) == [0, code, 0]
    verdicts = [json.loads(line) for line in (tmp_path / "answers.verdicts.jsonl").read_text().splitlines()]
    assert sum(row["correct"] for row in verdicts) == answers.count("Eleven.")
    assert (tmp_path / "report.html").stat().st_size > 0
