"""A model that nobody trained to judge, behind vLLM's server: the whole way with `--format checks`.

`.ci/vllm` gets the server and Qwen2.5-Coder-0.5B-Instruct. A model of this size is often wrong, so the tests
are about the way and not about the verdicts.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.command import TIRJUDGE, kill_at, tirjudge
from tests.served_command import ServedCommand
from tests.vllm_server import serving
from tirjudge.generation.vllm import SETTINGS
from tirjudge.models import resolve_model

MODEL = os.environ.get("TIRJUDGE_CODER_GGUF", "")
ROWS = Path(__file__).parents[3] / "examples" / "instructions.jsonl"
CHECKS = ("--format", "checks", "--temperature", "0", "--max-tokens", "1024")
pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(
        find_spec("vllm") is None or not MODEL, reason="needs vLLM and Qwen2.5-Coder-0.5B-Instruct: .ci/vllm"
    ),
    pytest.mark.timeout(1500),
]


@pytest.fixture(scope="module")
def model() -> Iterator[tuple[str, ...]]:
    """Yield the options of the endpoint."""
    words = (
        "--max-model-len",
        "4096",
        "--max-num-batched-tokens",
        "4096",
        "--served-model-name",
        "coder",
        "again",
    )
    with serving(Path(resolve_model(MODEL)), *words, **SETTINGS) as (_, url):
        yield "--base-url", f"{url}/v1", "--model", "coder"


def found(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def written(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path.name


def checks(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for view in row["views"] for one in view["segments"] if one["kind"] == "program"]


def test_twelve_rows_resume_after_a_kill(model: tuple[str, ...], tmp_path: Path) -> None:
    command = ("judge", str(ROWS), *model, *CHECKS, "--concurrency", "4", "--output", "run.jsonl")
    started = subprocess.Popen([TIRJUDGE, *command], cwd=tmp_path, stderr=subprocess.PIPE)
    output = tmp_path / "run.jsonl"
    kill_at(started, output, 3, lambda: 0.2, within=900)
    before = output.read_text().splitlines()
    run = tirjudge(*command, folder=tmp_path)
    assert run.returncode == 0, run.stderr
    assert output.read_text().splitlines()[: len(before)] == before
    rows = found(output)
    assert len({row["id"] for row in rows}) == 12
    # Whatever the model wrote first, a check ran on both responses before the verdict.
    assert all(checks(row) and all(one["is_check"] for one in checks(row)) for row in rows)
    assert any(" of " in one.get("stdout", "") for row in rows for one in checks(row))
    again = tirjudge("reproduce", "run.jsonl", folder=tmp_path)
    assert again.returncode == 0, again.stdout
    assert "verdict changed       0" in again.stdout


def test_lists_and_criteria(model: tuple[str, ...], tmp_path: Path) -> None:
    responses = ["no commas here", "one, two", "a, b, c"]
    rules = ["is lower case", "has a comma"]
    rows = [
        {"id": "list", "prompt": "Write three words. Use no commas.", "responses": responses},
        {"id": "rules", "prompt": "Greet.", "response": "hello", "criteria": rules},
    ]
    name = written(tmp_path / "rows.jsonl", rows)
    run = tirjudge("judge", name, *model, *CHECKS, folder=tmp_path)
    assert run.returncode == 0, run.stderr
    kinds = {row["id"]: row for row in found(tmp_path / "rows.verdicts.jsonl")}
    assert kinds["list"]["format"] == "checks-listwise"
    assert len(kinds["rules"]["criteria"]) == 2
    assert all(checks(row) for row in kinds.values())
    proposed = tirjudge("criteria", name, *model, "--output", "with.jsonl", folder=tmp_path)
    assert proposed.returncode in (0, 1), proposed.stderr
    assert (tmp_path / "with.jsonl").exists()


def test_compile_ends_with_what_it_admitted(model: tuple[str, ...], tmp_path: Path) -> None:
    rows = [
        {"id": f"{n}", "prompt": "Say it.", "response": text, "criteria": ["has no comma"], "label": label}
        for n, (text, label) in enumerate([("yes", "pass"), ("yes, sir", "fail"), ("aye", "pass")] * 3)
    ]
    name = written(tmp_path / "rows.jsonl", rows)
    run = tirjudge("compile", name, *model, "--output", "checkers.toml", folder=tmp_path)
    assert run.returncode in (0, 1), run.stderr
    assert "has no comma" in run.stdout + run.stderr


def test_serve_in_front_of_it(model: tuple[str, ...]) -> None:
    with ServedCommand("serve", *model, *CHECKS) as served:
        body = {"prompt": "Use no commas.", "responses": ["yes, sir", "yes"]}
        answer = httpx.post(f"{served.url}/v1/judge", json=body, timeout=300).json()
    assert answer["verdict"] in ("A", "B", "tie", None)
    assert answer["programs"]


def test_the_next_model_is_asked_where_no_program_decided(model: tuple[str, ...], tmp_path: Path) -> None:
    escalates = ("--model", "again", "--escalate-below", "1", "--confidence", "evidence", "--limit", "3")
    command = ("judge", str(ROWS), *model, *escalates, *CHECKS, "--output", "run.jsonl")
    run = tirjudge(*command, folder=tmp_path)
    assert run.returncode == 0, run.stderr
    for row in found(tmp_path / "run.jsonl"):
        first = row["jury"][0]
        assert (len(row["jury"]) == 1) == (first["confidence"] == 1.0)
