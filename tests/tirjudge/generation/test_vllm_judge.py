"""`tirjudge judge --generator vllm` on a CPU."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from examples.miniature import TRAINED
from tests.tirjudge.judge_command import results, write_rows
from tirjudge.cli.judge import judge

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed"),
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(600),
]
ROWS = [
    {"id": "words", "prompt": "Use at least 5 words.", "responses": ["one two", "one two three four five"]},
    {"id": "commas", "prompt": "Do not use commas.", "responses": ["a, b, c", "a b c"]},
]
ON_A_CPU = ("--generator-option", "dtype=float32", "--generator-option", "enforce_eager=true")


def dialogues(folder: Path, generator: str, *options: str) -> dict[str, Any]:
    """Return the miniature's dialogues in the views of every row."""
    command, output = typer.Typer(), folder / f"{generator}.jsonl"
    command.command()(judge)
    rows = write_rows(folder / "rows.jsonl", ROWS)
    words = [str(rows), "--output", str(output), "--model", str(TRAINED), "--generator", generator, *options]
    ran = CliRunner().invoke(command, words)
    assert ran.exit_code == 0, ran.stderr
    return {
        row["id"]: [segment["text"] for view in row["views"] for segment in view["segments"]]
        for row in results(output)
    }


def test_programs_and_verdicts_are_those_of_our_own_generator(tmp_path: Path) -> None:
    by_vllm = dialogues(tmp_path, "vllm", *ON_A_CPU)
    assert by_vllm == dialogues(tmp_path, "transformers")
    assert all("```output" in "".join(texts) for texts in by_vllm.values()), (
        "the dialogues should contain programs that ran"
    )
