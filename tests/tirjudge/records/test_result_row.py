"""Rows of result files: what is read is written again, field by field and in the same order."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tirjudge.records.result_row import RecordedView, read_result_rows
from tirjudge.storage.json_lines import encode_line
from tirjudge_environments import (
    Completion,
    Finish,
    JudgeSession,
    JudgeTask,
    Message,
    Prompt,
    Trajectory,
    View,
)
from tirjudge_environments.formats.tir_comparison import TirPairwise
from tirjudge_environments.testing import fixed_sandbox
from tirjudge_sandbox import Execution, Status

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize("name", ["instructions.verdicts.jsonl", "miniature.verdicts.jsonl"])
def test_a_row_that_is_read_is_written_unchanged(name: str) -> None:
    lines = (EXAMPLES / name).read_bytes().splitlines(keepends=True)
    rows = [row for row, _ in read_result_rows(EXAMPLES / name)]
    assert [encode_line(row.to_json()) for row in rows] == [encode_line(json.loads(line)) for line in lines]
    assert len(rows) == 12


class Prefilled(TirPairwise):
    """A format whose prompt opens the program for the model."""

    def prompt(self, task: JudgeTask, view: View) -> Prompt:
        return replace(super().prompt(task, view), prefill="I check.\n```python\nprint('A 1 of 1')\n")


def test_a_program_that_the_prompt_opened_is_recorded_whole() -> None:
    task = JudgeTask(id="x", prompt=(Message("user", "?"),), candidates=("a", "b"), label=0)
    judge = Prefilled(order="given")
    written = "print('B 0 of 1')\n```\n"

    async def played() -> Trajectory:
        box = fixed_sandbox(Execution(status=Status.OK, exit_code=0, stdout="A 1 of 1\nB 0 of 1\n"))
        session = JudgeSession(judge, task, judge.views(task)[0], box)
        await session.step(Completion(text=written, finish=Finish.STOP))
        await session.step(Completion(text="<preference>A</preference>", finish=Finish.END))
        return session.trajectory

    trajectory = asyncio.run(played())
    view = RecordedView.of(trajectory, task)
    assert [(one.kind, one.text) for one in view.segments] == [
        ("program", "print('A 1 of 1')\nprint('B 0 of 1')\n"),
        ("output", "```output\nA 1 of 1\nB 0 of 1\n```\n"),
        ("reasoning", "<preference>A</preference>"),
    ]
    assert judge.well_formed(task, trajectory)
