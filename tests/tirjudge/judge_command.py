"""Run `tirjudge judge` in a shell, with its input rows and its result file."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from tests.command import tirjudge
from tests.tirjudge.endpoint_server import EndpointServer, chat


def judge(folder: Path, *arguments: str, stdin: str = "", key: str = "") -> subprocess.CompletedProcess[str]:
    environment = {"TIRJUDGE_API_KEY": key, "NO_COLOR": "1"}
    return tirjudge("judge", *arguments, folder=folder, stdin=stdin, **environment)


def through(endpoint: EndpointServer) -> tuple[str, ...]:
    return ("--base-url", endpoint.url, "--model", "m")


def pairs(count: int) -> list[dict[str, Any]]:
    return [
        {"id": f"p{n}", "prompt": f"Question {n}", "responses": ["x", "y"], "label": 0} for n in range(count)
    ]


def write_rows(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def results(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def counting(body: dict[str, Any]) -> dict[str, Any]:
    """Play a judge that lets a program compare the lengths and believes its output."""
    output = body["messages"][-1]["content"] if len(body["messages"]) > 1 else ""
    if not output:
        program = "print('longer:', 'A' if len(response_a) > len(response_b) else 'B')"
        return chat(f"I will measure.\n```python\n{program}\n```\n")
    return chat(f"So <preference>{re.findall('longer: (.)', output)[0]}</preference>")
