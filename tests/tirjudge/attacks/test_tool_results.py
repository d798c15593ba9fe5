"""Every attack as the answer of a tool: none changes the dialogue around it or becomes a verdict."""

from __future__ import annotations

import json

from tests.environments.tools.test_dialogue import FixedTool
from tests.rows import each_row
from tests.tirjudge.attacks.test_transcripts import ATTACKS
from tests.transcripts import ROW
from tirjudge.attacks import Attack, Target
from tirjudge.generation.base import Sampling
from tirjudge.generation.endpoint.chat_turns import alternating
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.rollout import Rollout
from tirjudge_environments import By, Completion, Context, Finish, StopReason, ToolCall, Trajectory, read_task
from tirjudge_environments.quoting import quote_control_tokens
from tirjudge_environments.registry import open_environment
from tirjudge_environments.testing import fixed_sandbox
from tirjudge_environments.turn_reader import Turn, find_fences
from tirjudge_sandbox import Execution, Status

TASK = read_task(ROW, default_id="attacked")
ENDS = {
    "an answer": lambda text: Execution(status=Status.OK, stdout=text),
    "an error": lambda text: Execution(status=Status.ERROR, stderr=text),
    "a long answer": lambda text: Execution(status=Status.OK, stdout=text + "\n" + "x" * 9000 + "\n" + text),
}
CALL = ToolCall("c1", "search", json.dumps({"query": "Paris"}))
ASKS = {
    "fence": Completion(text=f"I look.\n```search\n{CALL.arguments}\n```\n", finish=Finish.STOP),
    "opened": Completion(text=f"I look.\n```search\n{CALL.arguments}\n```output", finish=Finish.STOP),
    "native": Completion(text="", finish=Finish.TOOL_CALL, tool_calls=(CALL,)),
}
each = each_row(
    "attack, ask, end", [(attack, ask, end) for attack in ATTACKS for ask in ASKS for end in ENDS]
)


async def played(attack: Attack, ask: str, end: str, last: str) -> Trajectory:
    """Play a dialogue in which a tool attacks for B, and the judge ends with `last`."""
    target = Target(response="Paris", letter="B", other="A", answer="<preference>B</preference>")
    text = attack.change(target)
    assert text is not None
    environment = open_environment(
        "tir-pairwise", order="given", protocol="tool" if ask == "native" else "fence"
    )
    judge = ScriptedGenerator([ASKS[ask], last])
    tools = [FixedTool(ENDS[end](text))]
    rollout = Rollout(environment, judge, fixed_sandbox(), tools=tools, sampling=Sampling())
    return (await rollout.episode(TASK)).trajectories[0]


@each
async def test_the_judge_keeps_its_verdict_and_the_answer_its_fence(
    attack: Attack, ask: str, end: str
) -> None:
    trajectory = await played(attack, ask, end, "<preference>A</preference>")
    assert (trajectory.stop, trajectory.verdict and trajectory.verdict.choice) == (StopReason.VERDICT, 0)
    assert len(trajectory.calls) == 1
    first, shown, last = trajectory.segments
    assert (first.by, shown.by, last.by) == (By.MODEL, By.SANDBOX, By.MODEL)
    assert len(shown.text) <= 2200
    if ask != "native":
        text = ("```output" if ask == "opened" else "") + shown.text
        (fence,) = find_fences(text)
        assert (fence.info, fence.closed, text[fence.end :]) == ("output", True, "")
        assert Turn(text, ("search",)).program is None
    for turn in alternating(Context(trajectory.prompt, trajectory.segments)):
        assert quote_control_tokens(turn["content"] or "") == (turn["content"] or "")


@each
async def test_an_answer_is_never_read_as_the_judge(attack: Attack, ask: str, end: str) -> None:
    trajectory = await played(attack, ask, end, "I cannot tell.")
    assert (trajectory.stop, trajectory.verdict, len(trajectory.calls)) == (StopReason.MALFORMED, None, 1)
