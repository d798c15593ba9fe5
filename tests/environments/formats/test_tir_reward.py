"""TIR-Judge's reward on cases computed by hand from TIR section 4.2, Eq. 3 and 4."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tirjudge_environments import (
    Budget,
    Completion,
    Episode,
    Finish,
    JudgeSession,
    Reward,
    StopReason,
    TirListwise,
    TirPairwise,
    TirPointwise,
    ToolCall,
    Unscored,
)
from tirjudge_environments.testing import fixed_sandbox
from tirjudge_sandbox import Execution, Status

OK = Execution(status=Status.OK, exit_code=0, stdout="42\n")
ERROR = Execution(status=Status.ERROR, exit_code=1, stderr="NameError: name 'x' is not defined\n")
SLOW = Execution(status=Status.CPU_LIMIT, signal=24)
FLOOD = Execution(status=Status.OUTPUT_LIMIT, signal=9, stdout="x", truncated=True)

CALL = "Let me count.\n```python\nprint(42)\n```\n"
OPENED = "```python\nprint(42)\n```output"
PRINTED = "```python\nprint('<preference>B</preference>')\n```\n"
RIGHT = "<preference>A</preference>"
WRONG = "<preference>B</preference>"

FULL, TENTH, NOTHING = 1.0, 0.1, 0.0

# The model's turns, its programs' statuses and the domain; then Rc, Rf, Rt and R.
CASES = {
    "right": ([RIGHT], [], "math", 1, 1, 1, FULL),
    "wrong": ([WRONG], [], "math", 0, 1, 1, NOTHING),
    "reasoned, and a line break at the end": ([f"A is right.\n{RIGHT}\n"], [], "", 1, 1, 1, FULL),
    "white space within the tag": (["<preference> A </preference>"], [], "", 1, 1, 1, FULL),
    "one program": ([CALL, RIGHT], [OK], "math", 1, 1, 1, FULL),
    "one program, wrong": ([CALL, WRONG], [OK], "math", 0, 1, 1, NOTHING),
    "three programs": ([CALL] * 3 + [RIGHT], [OK], "math", 1, 1, 1, FULL),
    "a fourth asked for, not run": ([CALL] * 4 + [RIGHT], [OK], "math", 1, 1, 0, TENTH),
    "a program error": ([CALL, RIGHT], [ERROR], "math", 1, 1, 0, TENTH),
    "an error, then mended": ([CALL, CALL, RIGHT], [ERROR, OK], "math", 1, 1, 0, TENTH),
    "a program at its CPU limit": ([CALL, RIGHT], [SLOW], "math", 1, 1, 0, TENTH),
    "a program at its output limit": ([CALL, RIGHT], [FLOOD], "math", 1, 1, 0, TENTH),
    "a program error and a wrong verdict": ([CALL, WRONG], [ERROR], "math", 0, 1, 0, NOTHING),
    "the model opens the output": ([CALL + "```output\n", RIGHT], [OK], "", 1, 1, 1, FULL),
    "the output opens in place of the close": ([OPENED, RIGHT], [OK], "", 1, 1, 1, FULL),
    "another fence": (["```json\n{}\n```\n" + RIGHT], [], "", 1, 1, 1, FULL),
    "a verdict in a fence, too": (["```\n" + WRONG + "\n```\n" + RIGHT], [], "", 1, 0, 1, TENTH),
    "a verdict in a program, too": ([PRINTED, RIGHT], [OK], "", 1, 1, 1, FULL),
    "a verdict only in a fence": (["```\n" + RIGHT + "\n```\n"], [], "", 1, 0, 1, TENTH),
    "a forged output": (["```output\n42\n```\n" + RIGHT], [], "", 1, 0, 1, TENTH),
    "a forged output behind a real one": ([CALL, "```output\n43\n```\n" + RIGHT], [OK], "", 1, 0, 1, TENTH),
    "the same verdict twice": ([RIGHT + RIGHT], [], "", 1, 0, 1, TENTH),
    "another verdict before": ([WRONG + RIGHT], [], "", 1, 0, 1, TENTH),
    "another verdict after": ([RIGHT + WRONG], [], "", 0, 0, 1, NOTHING),
    "a verdict before the program, too": ([RIGHT + "\n" + CALL, RIGHT], [OK], "", 1, 0, 1, TENTH),
    "words after the verdict": ([RIGHT + "."], [], "", 1, 0, 1, TENTH),
    "a fence after the verdict": ([RIGHT + "\n```"], [], "", 1, 0, 1, TENTH),
    "one opening tag too many": (["<preference>" + RIGHT], [], "", 1, 0, 1, TENTH),
    "one closing tag too many": ([RIGHT + "</preference>"], [], "", 0, 0, 1, NOTHING),
    "an unclosed tag": (["<preference>A"], [], "", 0, 0, 1, NOTHING),
    "a letter of no response": (["<preference>C</preference>"], [], "", 0, 0, 1, NOTHING),
    "no verdict": (["A is better."], [], "", 0, 0, 1, NOTHING),
    "an unclosed program": (["```python\nprint(42)\n" + RIGHT], [], "", 1, 0, 1, TENTH),
    "safety, no tool": ([RIGHT], [], "safety", 1, 1, 1, FULL),
    "safety, a tool": ([CALL, RIGHT], [OK], "safety", 1, 0, 1, TENTH),
    "helpfulness, no tool": ([RIGHT], [], "helpfulness", 1, 1, 1, FULL),
    "helpfulness, a tool": ([CALL, RIGHT], [OK], "helpfulness", 1, 0, 1, TENTH),
    "helpfulness, a failing tool, wrong": ([CALL, WRONG], [ERROR], "helpfulness", 0, 0, 0, NOTHING),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_the_reward_of_a_pair(make_task, play, case) -> None:
    turns, executions, domain, correct, well_formed, in_order, total = case
    task, environment = make_task(domain=domain), TirPairwise(order="given")
    trajectory = await play(environment, task, turns, executions=executions or [OK])
    [(reward,)] = environment.score([Episode(task, 0, (trajectory,))], {})
    assert reward.parts == {"correct": correct, "format": well_formed, "tool": in_order}
    assert (reward.total, reward.right, reward.teaches) == (total, bool(correct), bool(correct))


async def test_a_program_from_a_judge_without_tools(make_task, play) -> None:
    environment = TirPairwise(order="given", tools=False)
    for domain, well_formed in (("safety", 0), ("math", 1)):
        task = make_task(domain=domain)
        trajectory = await play(environment, task, [CALL + RIGHT])
        [(reward,)] = environment.score([Episode(task, 0, (trajectory,))], {})
        assert reward.parts == {"correct": 1, "format": well_formed, "tool": 1}


async def test_three_calls_are_the_paper_s_whatever_the_budget_allows(make_task, play) -> None:
    task, environment = make_task(), TirPairwise(order="given")
    trajectory = await play(environment, task, [CALL] * 4 + [RIGHT], budget=Budget(tool_calls=9))
    [(reward,)] = environment.score([Episode(task, 0, (trajectory,))], {})
    assert reward == Reward(0.1, {"correct": 1, "format": 1, "tool": 0}, right=True, teaches=True)


@pytest.mark.parametrize(("domain", "total"), [("math", 1.0), ("safety", 0.1)])
async def test_a_native_call_is_a_tool_call(make_task, domain: str, total: float) -> None:
    task, environment = make_task(domain=domain), TirPairwise(order="given", protocol="tool")
    session = JudgeSession(environment, task, environment.views(task)[0], fixed_sandbox(OK))
    call = ToolCall("1", "run_python", '{"code": "print(42)"}')
    await session.step(Completion(text="", finish=Finish.TOOL_CALL, tool_calls=(call,)))
    await session.step(Completion(text=RIGHT, finish=Finish.END))
    [(reward,)] = environment.score([Episode(task, 0, (session.trajectory,))], {})
    assert reward.total == total


@pytest.mark.parametrize(
    ("overhang", "total"),
    [("\n", 1.0), ("So:\n", 1.0), ("```json\n{", 0.1), ("```output\n4", 0.1), (WRONG, 0.1)],
)
async def test_text_after_a_program_counts_for_the_form(make_task, play, overhang: str, total: float) -> None:
    """Text after a program stays in the dialogue only if there are token ids."""
    task, environment = make_task(), TirPairwise(order="given")
    trajectory = await play(environment, task, [CALL, RIGHT])
    first, *others = trajectory.segments
    kept = replace(trajectory, segments=(replace(first, text=first.text + overhang), *others))
    [(reward,)] = environment.score([Episode(task, 0, (kept,))], {})
    assert reward.total == total


async def test_a_dialogue_ended_by_its_budget_earns_nothing(make_task, play) -> None:
    task, environment = make_task(), TirPairwise(order="given")
    trajectory = await play(environment, task, ["A is better because"], last=Finish.LENGTH)
    assert trajectory.stop is StopReason.TOKEN_BUDGET
    [(reward,)] = environment.score([Episode(task, 0, (trajectory,))], {})
    assert reward == Reward(0.0, {"correct": 0, "format": 0, "tool": 1}, right=False, teaches=False)


@pytest.mark.parametrize(("label", "total"), [(3, 1.0), (0, 0.0)])
async def test_the_reward_of_a_list_is_for_the_labelled_response(
    make_task, play, label: int, total: float
) -> None:
    task, environment = make_task("a", "b", "c", "d", label=label), TirListwise(order="both")
    trajectories = [
        await play(environment, task, ["<preference>D</preference>"]),
        await play(environment, task, ["<preference>A</preference>"], view=1),
    ]
    [scores] = environment.score([Episode(task, 0, tuple(trajectories))], {})
    assert [score.total for score in scores] == [total, total]


# The turns of each view (the first response is the labelled one); then R of each view.
POINTWISE = {
    "above": ([["<score>8</score>"], ["<score>3</score>"]], [1.0, 1.0]),
    "above by a fraction": ([["<score>7.5</score>"], ["<score>7</score>"]], [1.0, 1.0]),
    "ten is above nine": ([["<score>10</score>"], ["<score>9</score>"]], [1.0, 1.0]),
    "a tie": ([["<score>5</score>"], ["<score>5.0</score>"]], [0.0, 0.0]),
    "below": ([["<score>3</score>"], ["<score>8</score>"]], [0.0, 0.0]),
    "out of range": ([["<score>11</score>"], ["<score>3</score>"]], [0.0, 0.0]),
    "the other one out of range": ([["<score>8</score>"], ["<score>0</score>"]], [0.0, 0.0]),
    "the other one without a score": ([["<score>8</score>"], ["bad"]], [0.0, 0.0]),
    "above both others": (
        [["<score>8</score>"], ["<score>3</score>"], ["<score>7</score>"]],
        [1.0, 1.0, 1.0],
    ),
    "above only one": ([["<score>8</score>"], ["<score>3</score>"], ["<score>8</score>"]], [0.0, 0.0, 0.0]),
    "one of them ill-formed": ([["<score>8</score>"], ["<score>3</score>!"]], [1.0, 0.1]),
    "one of them with four programs": ([["<score>8</score>"], [CALL] * 4 + ["<score>3</score>"]], [1.0, 0.1]),
}


@pytest.mark.parametrize("case", POINTWISE.values(), ids=POINTWISE)
async def test_single_scores_are_rewarded_together(make_task, play, case) -> None:
    views, totals = case
    environment, task = TirPointwise(), make_task(*(f"answer {i}" for i in range(len(views))))
    trajectories = [await play(environment, task, turns, view=i) for i, turns in enumerate(views)]
    [scores] = environment.score([Episode(task, 0, tuple(trajectories))], {})
    assert [score.total for score in scores] == totals


@pytest.mark.parametrize(
    "stop", [StopReason.SANDBOX_DOWN, StopReason.GENERATOR_DOWN, StopReason.PROMPT_TOO_LONG]
)
async def test_a_failure_outside_of_the_judge_gives_no_reward(make_task, play, stop: StopReason) -> None:
    task, pairwise, pointwise = make_task(), TirPairwise(order="both"), TirPointwise()
    pair = [await play(pairwise, task, [RIGHT]), await play(pairwise, task, [WRONG], view=1)]
    down = replace(pair[1], stop=stop, verdict=None, detail="the worker is gone")
    [scores] = pairwise.score([Episode(task, 0, (pair[0], down))], {})
    assert isinstance(scores[0], Reward)
    assert scores[1] == Unscored(f"{stop.value}: the worker is gone")

    single = [await play(pointwise, task, ["<score>5</score>"], view=i) for i in (0, 1)]
    linked = Episode(task, 0, (replace(single[0], stop=stop, verdict=None), single[1]))
    assert all(isinstance(score, Unscored) for score in pointwise.score([linked], {})[0])


async def test_a_score_is_replayed_from_the_texts_alone(make_task, play) -> None:
    task, environment = make_task(), TirPairwise(order="given")
    trajectory = await play(environment, task, [CALL, RIGHT])
    claimed = replace(await play(environment, task, [WRONG]), verdict=trajectory.verdict)
    group = [Episode(task, 0, (replace(trajectory, verdict=None),)), Episode(task, 1, (claimed,))]
    assert [scores[0].total for scores in environment.score(group, {})] == [1.0, 0.0]


def test_the_total_equals_equation_4() -> None:
    totals = {
        (correct, form, tool): TirPairwise().equation({"correct": correct, "format": form, "tool": tool})
        for correct in (False, True)
        for form in (False, True)
        for tool in (False, True)
    }
    assert {parts for parts, total in totals.items() if total == 1.0} == {(True, True, True)}
    assert all(total == 0.0 for parts, total in totals.items() if not parts[0])
    assert [totals[True, False, True], totals[True, True, False], totals[True, False, False]] == [0.1] * 3
