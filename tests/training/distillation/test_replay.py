"""A teacher's dialogue in any protocol is converted to one of the student's own session."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.records.episodes import read_trajectory, trajectory_record
from tirjudge.rollout import Rollout
from tirjudge_environments import (
    Budget,
    Completion,
    Environment,
    Finish,
    JudgeTask,
    Message,
    Reward,
    StopReason,
    TirPairwise,
    ToolCall,
    Trajectory,
    open_environment,
)
from tirjudge_environments.types import Episode
from tirjudge_sandbox import Sandbox, open_sandbox
from tirjudge_training.distillation.teacher_dialogues import convert_dialogue

TASK = JudgeTask(
    id="t", prompt=(Message("user", "Say two words."),), candidates=("one", "two words"), label=1
)
STUDENT = open_environment("tir-pairwise", prompts="mini", order="given")
COUNT = "print(len(response_a.split()))"
VERDICT = "B keeps it.\n<preference>B</preference>"
FORM = f"I count.\n```python\n{COUNT}\n```\n```output\n1\n```\n{VERDICT}"


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with open_sandbox("local", capacity=1, preload=()) as opened:
        yield opened


def calling(text: str, *sources: str, reasoning: str = "") -> Completion:
    """A turn of native calls; many servers name the first call of every turn alike."""
    calls = [
        ToolCall(f"call_{i}", "run_python", json.dumps({"code": source})) for i, source in enumerate(sources)
    ]
    return Completion(text=text, finish=Finish.TOOL_CALL, tool_calls=tuple(calls), reasoning=reasoning)


async def led(sandbox: Sandbox, *turns: str | Completion, **options: Any) -> Trajectory:
    """Return the teacher's dialogue, written to a run folder and read back."""
    teacher = TirPairwise(order="given", **options)
    episode = await Rollout(teacher, ScriptedGenerator(turns), sandbox, budget=Budget()).episode(TASK)
    return read_trajectory(json.loads(json.dumps(trajectory_record(episode.trajectories[0]))))


def text(trajectory: Trajectory) -> str:
    return "".join(segment.text for segment in trajectory.segments)


def reward(trajectory: Trajectory, environment: Environment = STUDENT) -> float | None:
    (score,) = environment.score([Episode(TASK, 0, (trajectory,))], {})[0]
    return score.total if isinstance(score, Reward) else None


async def test_native_calls_become_fenced_programs_under_the_students_prompt(sandbox: Sandbox) -> None:
    led_natively = await led(sandbox, calling("I count.", COUNT), VERDICT, protocol="tool")
    form = await convert_dialogue(led_natively, STUDENT, TASK)
    assert text(form) == FORM
    assert [segment.by for segment in form.segments] == ["model", "sandbox", "model"]
    assert form.prompt.messages[0].content == (
        "A: one\n\nB: two words\n\nInstruction: Say two words.\n\nWhich is better? You may run Python."
    )
    assert reward(form) == 1.0


async def test_fenced_programs_only_gain_a_missing_line_end(sandbox: Sandbox) -> None:
    fenced = await led(sandbox, f"I count.\n```python\n{COUNT}\n```", VERDICT)
    form = await convert_dialogue(fenced, STUDENT, TASK)
    assert text(form) == FORM
    assert form.segments[0].text.endswith("```\n"), "the student has to write the line end itself"
    opened = await led(sandbox, f"```python\n{COUNT}\n```\n```output", VERDICT)
    assert text(await convert_dialogue(opened, STUDENT, TASK)) == text(opened)


async def test_every_call_of_one_turn_gets_a_turn_of_its_own(sandbox: Sandbox) -> None:
    both = await led(
        sandbox, calling("Both.", "print(1)", "print(2)\n"), calling("", "1/0"), VERDICT, protocol="tool"
    )
    form = await convert_dialogue(both, STUDENT, TASK)
    assert text(form) == (
        "Both.\n```python\nprint(1)\n```\n```output\n1\n```\n```python\nprint(2)\n```\n```output\n2\n```\n"
        "```python\n1/0\n```\n```output\nZeroDivisionError: division by zero\n```\n" + VERDICT
    )
    assert reward(form) == 0.1, "a failed program leaves a tenth of the reward"


@pytest.mark.parametrize(
    "turn",
    [calling("First a draft:\n```python\nprint(3)\n```\n", COUNT), calling("", 'print("""\n```\n""")')],
    ids=["a draft in the text", "a fence in the program"],
)
async def test_a_dialogue_whose_program_would_change_is_dropped(sandbox: Sandbox, turn: Completion) -> None:
    form = await convert_dialogue(await led(sandbox, turn, VERDICT, protocol="tool"), STUDENT, TASK)
    assert form.stop is StopReason.SANDBOX_DOWN
    assert reward(form) is None


async def test_a_dialogue_without_a_verdict_stays_without_one(sandbox: Sandbox) -> None:
    broken = await led(sandbox, calling("I count.", COUNT), "I cannot say.", protocol="tool")
    form = await convert_dialogue(broken, STUDENT, TASK)
    assert (form.stop, reward(form)) == (StopReason.MALFORMED, 0.0)
    spent = await led(sandbox, *[calling("", COUNT)] * 4, VERDICT, protocol="tool")
    form = await convert_dialogue(spent, STUDENT, TASK)
    assert "The budget of 3 programs is spent: this one was not run." in text(form)
    assert reward(form) == 0.1
