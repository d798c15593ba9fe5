"""Records and passages of real dialogues."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from tests.trajectories import bare_trajectory
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.records.episodes import episode_record, read_trajectory, trajectory_record
from tirjudge.records.result_row import passages
from tirjudge.rollout import Rollout
from tirjudge.storage.json_lines import encode_line
from tirjudge_environments import (
    By,
    Call,
    Completion,
    Episode,
    Finish,
    JudgeTask,
    Message,
    Refused,
    RunCode,
    Segment,
    StopReason,
    ToolCall,
    Trajectory,
)
from tirjudge_environments.formats.tir_comparison import TirPairwise
from tirjudge_sandbox import Sandbox, open_sandbox

TASK = JudgeTask(
    id="t", prompt=(Message("user", "p"),), candidates=("x", "y\x1b\ud800"), label=1, domain="math"
)


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with open_sandbox("local", capacity=1, preload=()) as opened:
        yield opened


async def played(sandbox: Sandbox, *turns: str | Completion, **options: Any) -> Episode:
    environment = TirPairwise(order="given", **options)
    return await Rollout(environment, ScriptedGenerator(turns), sandbox).episode(TASK)


async def test_a_trajectory_is_split_into_reasoning_programs_and_outputs(sandbox: Sandbox) -> None:
    episode = await played(
        sandbox,
        "Let me see.\n```python\nprint(1 + 1)\n```\n",
        "Now break it.\n```python\n1 / 0\n```\nand more",
        "```json\n{}\n```\nSo <preference>B</preference>",
    )
    told = passages(episode.trajectories[0])
    assert [passage["kind"] for passage in told] == [
        "reasoning", "program", "output", "reasoning", "program", "output", "reasoning",
    ]  # fmt: skip
    assert [passage["text"] for passage in told if passage["kind"] == "program"] == [
        "print(1 + 1)\n",
        "1 / 0\n",
    ]
    assert (told[1]["status"], told[1]["stdout"]) == ("ok", "2\n")
    assert (told[4]["status"], told[4]["exit_code"]) == ("error", 1)
    assert "ZeroDivisionError" in told[4]["stderr"]
    assert told[2]["text"] == "```output\n2\n```\n"
    assert told[-1]["text"].endswith("<preference>B</preference>")


async def test_a_refused_program_has_a_reason(sandbox: Sandbox) -> None:
    again = "```python\nprint(1)\n```\n"
    episode = await played(sandbox, again, again, again, again, "<preference>A</preference>")
    programs = [one for one in passages(episode.trajectories[0]) if one["kind"] == "program"]
    assert [program["status"] for program in programs] == ["ok", "ok", "ok", "refused"]
    assert "budget of 3" in programs[3]["reason"]


async def test_native_calls_are_programs_too(sandbox: Sandbox) -> None:
    call = ToolCall("c1", "run_python", json.dumps({"code": "print(5)"}))
    fence = "Not this:\n```python\nprint(1)\n```\n"
    asking = Completion(text=fence, finish=Finish.TOOL_CALL, tool_calls=(call,), reasoning="Hm.")
    episode = await played(sandbox, asking, "<preference>A</preference>", protocol="tool")
    told = passages(episode.trajectories[0])
    assert [one["kind"] for one in told] == ["reasoning", "reasoning", "program", "output", "reasoning"]
    assert told[0] == {"kind": "reasoning", "text": "Hm.", "hidden": True}
    assert [one["text"] for one in told[1:3]] == [fence, "print(5)"]


def test_without_tools_a_fence_is_no_program() -> None:
    text = "```python\nprint(1)\n```\n<preference>A</preference>"
    trajectory = bare(text)
    assert passages(trajectory) == [{"kind": "reasoning", "text": text}]
    refused = replace(trajectory, calls=(Call(RunCode("print(1)\n"), Refused("spent")),))
    assert [one["kind"] for one in passages(refused)] == ["program", "reasoning"]


def bare(text: str) -> Trajectory:
    segments = (Segment(by=By.MODEL, text=text),)
    return bare_trajectory(segments=segments, stop=StopReason.MALFORMED, verdict=None)


async def test_an_episode_is_one_json_line(sandbox: Sandbox) -> None:
    episode = await played(sandbox, "```python\nprint(response_b)\n```\n", "<preference>B</preference>")
    scores = TirPairwise(order="given").score([episode], {})[0]
    record = json.loads(encode_line(episode_record(episode, scores)))
    assert (record["id"], record["label"], record["domain"]) == ("t", 1, "math")
    (trajectory,) = record["trajectories"]
    assert trajectory["verdict"] == {"choice": 1, "tie": False, "scores": {}}
    assert [segment["by"] for segment in trajectory["segments"]] == ["model", "sandbox", "model"]
    assert trajectory["reward"]["total"] == scores[0].total  # type: ignore[union-attr]
    assert trajectory["programs"][0]["isolation_missing"] == []
    assert trajectory["prompt"][0]["role"] == "user"


@pytest.mark.parametrize("protocol", ["fence", "tool"])
async def test_a_record_is_read_back_as_its_trajectory(sandbox: Sandbox, protocol: str) -> None:
    """Its score is the same too; the record leaves out bindings, stop strings and the program's placement."""
    turns: list[str | Completion] = ["```python\nprint(2)\n```\n"] * 4
    if protocol == "tool":
        call = ToolCall("c", "run_python", json.dumps({"code": "print(2)\n"}))
        turns = [Completion(text="", finish=Finish.TOOL_CALL, tool_calls=(call,), reasoning="Hm.")] * 4
    episode = await played(sandbox, *turns, "<preference>B</preference>", protocol=protocol)
    (trajectory,) = episode.trajectories
    record = json.loads(encode_line(trajectory_record(trajectory, ids=True)))
    again = read_trajectory(record)
    unplaced = {**record, "programs": [{**one, "placement": None} for one in record["programs"][:3]]}
    unplaced["programs"].append(record["programs"][3])
    assert json.loads(encode_line(trajectory_record(again, ids=True))) == unplaced
    assert [call.request.call_id for call in again.calls] == [c.request.call_id for c in trajectory.calls]
    judge = TirPairwise(order="given")
    assert judge.score([replace(episode, trajectories=(again,))], {}) == judge.score([episode], {})
