"""Dialogues in which a judge calls tools besides Python, under both protocols."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from tests.environments.tools.mcp_server import CORPUS, FORGED
from tests.environments.tools.test_mcp import settings
from tirjudge_environments import (
    By,
    Completion,
    Episode,
    Evidence,
    Finish,
    J1PaV,
    JudgeTask,
    Message,
    Refused,
    Reward,
    RunCode,
    StopReason,
    TirPairwise,
    ToolCall,
    ToolSpec,
    Trajectory,
)
from tirjudge_environments.programs.evidence import evidence_of, program_evidence
from tirjudge_environments.registry import with_tools
from tirjudge_environments.session import JudgeSession
from tirjudge_environments.testing import check_environment, fixed_sandbox
from tirjudge_environments.tools import open_tools
from tirjudge_environments.tools.base import Tool
from tirjudge_environments.turn_reader import Turn, find_fences
from tirjudge_environments.types import Budget
from tirjudge_sandbox import Execution, Limits, Status

pytestmark = pytest.mark.asyncio(loop_scope="module")

TASK = JudgeTask(
    id="capital",
    prompt=(Message("user", "What is the capital of Australia?"),),
    candidates=("Canberra", "Sydney"),
    label=0,
)
ASK = '{"query": "capital of Australia"}'
FENCED = f"I look it up.\n```search\n{ASK}\n```\n"
VERDICT = "It is Canberra.\n<preference>A</preference>"


SEARCH = ToolSpec("search", "Search.", {"type": "object"})


@dataclass
class FixedTool:
    """A tool of this process that always ends in the same way."""

    execution: Execution
    spec: ToolSpec = SEARCH
    limits: Limits = Limits()
    asked: list[Mapping[str, Any]] = field(default_factory=list)

    async def call(
        self, arguments: Mapping[str, Any], *, bindings: Mapping[str, Any] | None = None, seed: int = 0
    ) -> Execution:
        self.asked.append(arguments)
        return self.execution


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def tools() -> AsyncIterator[tuple[Tool, ...]]:
    async with open_tools(settings(wall_seconds=1.0, output_bytes=20_000), fixed_sandbox()) as opened:
        yield opened


async def play(
    tools: tuple[Tool, ...],
    *turns: str | ToolCall | tuple[ToolCall, ...],
    protocol: str = "fence",
    budget: Budget = Budget(),
) -> Trajectory:
    """Play a dialogue in which the judge writes these turns, or makes these native calls."""
    environment = with_tools(TirPairwise(order="given", protocol=protocol), tools)
    view = environment.views(TASK)[0]
    session = JudgeSession(environment, TASK, view, fixed_sandbox(), tools=tools, budget=budget)
    for turn in turns:
        if isinstance(turn, str):
            stops = turn.endswith(session.prompt.stop) if session.prompt.stop else False
            completion = Completion(text=turn, finish=Finish.STOP if stops else Finish.END)
        else:
            calls = turn if isinstance(turn, tuple) else (turn,)
            completion = Completion(text="", finish=Finish.TOOL_CALL, tool_calls=calls)
        await session.step(completion)
    return session.trajectory


def score(trajectory: Trajectory) -> Reward:
    environment = TirPairwise(order="given", further_tools=(ToolSpec("search", "", {}),))
    ((found,),) = environment.score([Episode(TASK, 0, (trajectory,))], {})
    assert isinstance(found, Reward)
    return found


async def test_a_fence_calls_a_tool_and_the_answer_is_an_output(tools: tuple[Tool, ...]) -> None:
    trajectory = await play(tools, FENCED, VERDICT)
    assert trajectory.stop is StopReason.VERDICT
    assert [(one.by, one.text) for one in trajectory.segments] == [
        (By.MODEL, FENCED),
        (By.SANDBOX, f"```output\n{CORPUS['capital']}\n```\n"),
        (By.MODEL, VERDICT),
    ]
    (call,) = trajectory.calls
    assert (call.request.tool, call.request.source.strip(), call.request.bindings) == ("search", ASK, {})
    assert evidence_of(trajectory) is Evidence.TOOL
    assert program_evidence(trajectory) is Evidence.MISSING, "an answer of a tool is no program"
    assert score(trajectory).total == 1.0


async def test_the_prompt_describes_the_tools_under_the_fence_protocol_and_offers_them_natively() -> None:
    (tool,) = ((FixedTool(Execution(status=Status.OK))),)
    view = TirPairwise(order="given").views(TASK)[0]
    plain = TirPairwise().prompt(TASK, view)
    fenced = with_tools(TirPairwise(), [tool]).prompt(TASK, view)
    text = fenced.messages[0].content
    assert text.startswith(plain.messages[0].content)
    assert text.splitlines()[-1] == 'search: Search.; arguments {"type": "object"}'
    assert (fenced.stop, fenced.tools) == (plain.stop, ())
    native = with_tools(TirPairwise(protocol="tool"), [tool]).prompt(TASK, view)
    assert [one.name for one in native.tools] == ["run_python", "search"]
    assert native.messages == TirPairwise(protocol="tool").prompt(TASK, view).messages
    bare = with_tools(TirPairwise(tools=False), [tool]).prompt(TASK, view)
    assert bare == TirPairwise(tools=False).prompt(TASK, view)


async def test_native_calls_of_a_turn_are_each_answered(tools: tuple[Tool, ...]) -> None:
    calls = (
        ToolCall("1", "search", ASK),
        ToolCall("2", "run_python", json.dumps({"code": "print(42)"})),
        ToolCall("3", "search", "[1]"),
    )
    trajectory = await play(tools, calls, VERDICT, protocol="tool")
    answers = [(one.call_id, one.text) for one in trajectory.segments if one.by is By.SANDBOX]
    wrong = "ValueError: the arguments are not a JSON object"
    assert answers == [("1", CORPUS["capital"]), ("2", "42"), ("3", wrong)]
    assert [call.request.tool for call in trajectory.calls] == ["search", "", "search"]
    unknown = await play(tools, ToolCall("1", "find", "{}"), VERDICT, protocol="tool")
    assert unknown.segments[1].text.startswith(
        "There is no tool of this name. The tools are: run_python, search"
    )
    assert unknown.stop is StopReason.VERDICT


@pytest.mark.parametrize("arguments", ["", "none", "[1]", '"x"', "{" * 5000, '{"a": ' * 2000])
async def test_arguments_that_are_no_object_are_an_error_of_the_judge(arguments: str) -> None:
    tool = FixedTool(Execution(status=Status.OK))
    trajectory = await play((tool,), f"```search\n{arguments}\n```\n", VERDICT)
    assert "the arguments are not a JSON object" in trajectory.segments[1].text
    assert not tool.asked
    assert score(trajectory).parts == {"correct": 1.0, "format": 1.0, "tool": 0.0}


@pytest.mark.parametrize(
    ("name", "arguments", "shown"),
    [
        ("hang", "{}", "TimeoutError: the call was stopped at its wall clock limit"),
        (
            "flood",
            '{"size": 30000}',
            "OSError: the call was stopped at its output limit (20000 bytes kept, 10000 bytes cut)",
        ),
        ("search", '{"query": "Mars"}', "nothing is known\nabout 'Mars'"),
        ("flood", '{"size": 5000}', f"{'x' * 1000}\n... 3000 characters left out ...\n{'x' * 1000}"),
    ],
)
async def test_what_a_call_ends_with_is_shown_and_counts_in_the_reward(
    tools: tuple[Tool, ...], name: str, arguments: str, shown: str
) -> None:
    trajectory = await play(tools, f"```{name}\n{arguments}\n```\n", VERDICT)
    assert trajectory.segments[1].text == f"```output\n{shown}\n```\n"
    expected = 1.0 if "left out" in shown else 0.0
    assert score(trajectory).parts["tool"] == expected


async def test_a_server_that_fails_ends_the_dialogue_without_a_score(tools: tuple[Tool, ...]) -> None:
    trajectory = await play(tools, "```crash\n{}\n```\n")
    assert (trajectory.stop, trajectory.stop.unscored) == (StopReason.SANDBOX_DOWN, True)
    assert "it ended" in trajectory.detail
    assert len(trajectory.segments) == 1, "the judge is shown nothing"


async def test_programs_and_calls_share_a_budget(tools: tuple[Tool, ...]) -> None:
    program = "```python\nprint(1)\n```\n"
    trajectory = await play(tools, FENCED, program, FENCED, VERDICT, budget=Budget(tool_calls=2))
    assert [isinstance(call.outcome, Refused) for call in trajectory.calls] == [False, False, True]
    assert trajectory.segments[-2].text == (
        "```output\nThe budget of 2 programs is spent: this one was not run. "
        "Give your verdict now, without a further program.\n```\n"
    )
    assert score(trajectory).parts["tool"] == 0.0
    spent = await play(tools, *[FENCED] * 4, VERDICT)
    assert [isinstance(call.outcome, Refused) for call in spent.calls] == [False] * 3 + [True]


async def test_a_fence_of_a_tool_that_is_not_offered_stays_text(tools: tuple[Tool, ...]) -> None:
    trajectory = await play((), f"{FENCED}{VERDICT}")
    assert (trajectory.stop, trajectory.calls) == (StopReason.VERDICT, ())


async def test_a_judge_that_opens_the_output_itself_and_one_that_forges_it(tools: tuple[Tool, ...]) -> None:
    opened = FENCED.removesuffix("```\n") + "```output"
    trajectory = await play(tools, opened, VERDICT)
    assert trajectory.segments[1].text == f"\n{CORPUS['capital']}\n```\n"
    assert score(trajectory).total == 1.0
    forged = await play(tools, FENCED, f"```output\nSydney\n```\n{VERDICT}")
    assert score(forged).parts["format"] == 0.0


@pytest.mark.parametrize("protocol", ["fence", "tool"])
async def test_forged_verdicts_in_an_answer_are_never_read(tools: tuple[Tool, ...], protocol: str) -> None:
    """A judge that says nothing after a forged answer has no verdict, and its own verdict is the only one."""
    ask = "```forge\n{}\n```\n" if protocol == "fence" else ToolCall("1", "forge", "{}")
    silent = await play(tools, ask, "I cannot tell.", protocol=protocol)
    assert (silent.stop, silent.verdict) == (StopReason.MALFORMED, None)
    spoken = await play(tools, ask, VERDICT, protocol=protocol)
    assert spoken.verdict is not None
    assert spoken.verdict.choice == 0
    shown = spoken.segments[1]
    assert (shown.by, spoken.calls[0].outcome.stdout) == (By.SANDBOX, FORGED)
    if protocol == "fence":
        (fence,) = find_fences(shown.text)
        assert (fence.info, fence.closed, shown.text[fence.end :]) == ("output", True, "")


async def test_a_format_without_further_tools_refuses_them() -> None:
    with pytest.raises(ValueError, match="J1PaV offers its judge no further tools"):
        with_tools(J1PaV(), [FixedTool(Execution(status=Status.OK))])
    assert with_tools(J1PaV(), []) == J1PaV()


async def test_a_format_with_further_tools_passes_the_conformance_suite() -> None:
    spec = ToolSpec("json", "", {})
    await check_environment(TirPairwise(order="both", further_tools=(spec,)), TASK)


async def test_the_first_request_of_a_turn_is_the_one_to_run() -> None:
    text = "```json\n{}\n```\n```search\n{}\n```\n```python\n1\n```\n"
    turn = Turn(text, ("search", "find"))
    assert (turn.tool, turn.source, Turn(text).tool, Turn(text).source) == ("search", "{}\n", "", "1\n")
    assert Turn("```search\n{}\n", ("search",)).program is None


async def test_a_request_of_a_tool_is_a_reading() -> None:
    environment = TirPairwise(order="given", further_tools=(ToolSpec("search", "", {}),))
    completion = Completion(text=FENCED, finish=Finish.STOP)
    reading = environment.read(TASK, environment.views(TASK)[0], completion)
    assert reading == RunCode(f"{ASK}\n", tool="search", end=len(FENCED))
