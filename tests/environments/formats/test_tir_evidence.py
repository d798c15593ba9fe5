"""The options `consistency` and `evidence` of TIR's pairs and lists, with programs in the real sandbox."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
import pytest_asyncio

from tirjudge_environments import (
    Completion,
    Environment,
    Episode,
    Evidence,
    Finish,
    JudgeSession,
    Reward,
    StopReason,
    TirListwise,
    TirPairwise,
    Trajectory,
    Unscored,
)
from tirjudge_sandbox import Execution, Sandbox, Status, open_sandbox

LENGTHS = "print(len(response_a), len(response_b))"
PROMPT = "print(len(prompt))"
BROKEN = "print(response_c)"
HIDDEN = "import sys\nprint(len(response_a), len(response_b), file=sys.stderr)"


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with open_sandbox("local", preload=()) as opened:
        yield opened


def turns(*programs: str, verdict: str = "A") -> list[str]:
    return [*(f"```python\n{one}\n```\n" for one in programs), f"<preference>{verdict}</preference>"]


async def dialogue(
    environment: Environment, task, sandbox: Sandbox, texts: Sequence[str], view: int = 0
) -> Trajectory:
    session = JudgeSession(environment, task, environment.views(task)[view], sandbox)
    for text in texts:
        await session.step(Completion(text=text, finish=Finish.END))
    return session.trajectory


def rewards(environment: Environment, task, *trajectories: Trajectory) -> list[float | str]:
    [scores] = environment.score([Episode(task, 0, trajectories)], {})
    return [score.total if isinstance(score, Reward) else score.reason for score in scores]


# The programs of a dialogue whose verdict is right; then the evidence, and the reward if it is required.
CASES = {
    "counts that differ": ([LENGTHS], Evidence.SEPARATES, 1.0),
    "a count of the prompt alone": ([PROMPT], Evidence.TIE, 0.0),
    "counts that the judge is not shown": ([HIDDEN], Evidence.TIE, 0.0),
    "no program": ([], Evidence.MISSING, 0.0),
    "a program that fails": ([BROKEN], Evidence.FAILED, 0.0),
    "the last program decides": ([LENGTHS, PROMPT], Evidence.TIE, 0.0),
    "a failure after counts": ([LENGTHS, BROKEN], Evidence.SEPARATES, 0.1),  # Rt = 0
    "an error for exchanged responses": (
        ["assert len(response_a) == 5\nprint('ok')"],
        Evidence.SEPARATES,
        1.0,
    ),
}


@pytest.mark.parametrize(("programs", "evidence", "total"), CASES.values(), ids=CASES)
async def test_a_right_verdict_is_paid_if_the_program_tells_the_responses_apart(
    make_task, sandbox, programs, evidence, total
) -> None:
    task = make_task("right", "wrong answer")
    required = TirPairwise(order="given", evidence="required")
    trajectory = await dialogue(required, task, sandbox, turns(*programs))
    assert trajectory.evidence is evidence
    assert rewards(required, task, trajectory) == [total]
    # What is only recorded changes no reward, and without the option nothing is run twice.
    recorded = TirPairwise(order="given", evidence="recorded")
    paper = TirPairwise(order="given")
    alone = await dialogue(paper, task, sandbox, turns(*programs))
    assert rewards(recorded, task, trajectory) == rewards(paper, task, alone)
    assert all(call.exchanged is None for call in alone.calls)


async def test_a_wrong_verdict_is_not_paid_whatever_its_program_shows(make_task, sandbox) -> None:
    task, environment = make_task("right", "wrong answer"), TirPairwise(order="given", evidence="required")
    trajectory = await dialogue(environment, task, sandbox, turns(LENGTHS, verdict="B"))
    [(reward,)] = environment.score([Episode(task, 0, (trajectory,))], {})
    assert (reward.total, reward.right, reward.teaches) == (0.0, False, False)


@pytest.mark.parametrize(("programs", "evidence", "total"), CASES.values(), ids=CASES)
async def test_a_reward_is_settled_if_its_programs_cannot_show_anything(
    make_task, sandbox, programs, evidence, total
) -> None:
    """Without a program the verdict is settled by nothing: the same turn could have run one."""
    task, environment = make_task("right", "wrong answer"), TirPairwise(order="given", evidence="required")
    for verdict in "AB":
        trajectory = await dialogue(environment, task, sandbox, turns(*programs, verdict=verdict))
        [(reward,)] = environment.score([Episode(task, 0, (trajectory,))], {})
        assert reward.settled is (evidence in (Evidence.TIE, Evidence.FAILED))
    # With the paper's reward a guess is paid.
    [(reward,)] = TirPairwise(order="given").score([Episode(task, 0, (trajectory,))], {})
    assert not reward.settled


async def test_a_list_is_exchanged_as_a_whole(make_task, sandbox) -> None:
    task = make_task("a", "bb", "ccc", label=2)
    environment = TirListwise(order="given", evidence="required")
    program = "print([len(one) for one in responses], len(response_a))"
    trajectory = await dialogue(environment, task, sandbox, turns(program, verdict="C"))
    [call] = trajectory.calls
    assert call.outcome.stdout == "[1, 2, 3] 1\n"
    assert call.exchanged.stdout == "[2, 3, 1] 2\n"
    assert rewards(environment, task, trajectory) == [1.0]


async def test_domains_without_tools_need_no_evidence(make_task, sandbox) -> None:
    environment = TirPairwise(order="given", evidence="required", tools_by_domain={"chat": False})
    for domain in ("safety", "chat"):
        task = make_task("right", "wrong answer", domain=domain)
        trajectory = await dialogue(environment, task, sandbox, turns())
        assert rewards(environment, task, trajectory) == [1.0]


@pytest.mark.parametrize(
    ("first", "second", "totals"),
    [("A", "B", [1.0, 1.0]), ("A", "A", [0.0, 0.0]), ("B", "B", [0.0, 0.0]), ("B", "A", [0.0, 0.0])],
)
async def test_both_orders_must_be_right(make_task, sandbox, first, second, totals) -> None:
    """Response 0 is A in the first order and B in the second."""
    task, environment = make_task("right", "wrong"), TirPairwise(order="both", consistency=True)
    pair = [
        await dialogue(environment, task, sandbox, turns(verdict=letter), view)
        for view, letter in enumerate((first, second))
    ]
    assert environment.linked
    assert rewards(environment, task, *pair) == totals


async def test_both_orders_need_evidence(make_task, sandbox) -> None:
    task = make_task("right", "wrong answer")
    environment = TirPairwise(order="both", consistency=True, evidence="required")
    counted = await dialogue(environment, task, sandbox, turns(LENGTHS), 0)
    guessed = await dialogue(environment, task, sandbox, turns(PROMPT, verdict="B"), 1)
    shown = await dialogue(environment, task, sandbox, turns(LENGTHS, verdict="B"), 1)
    assert rewards(environment, task, counted, guessed) == [0.0, 0.0]
    assert rewards(environment, task, counted, shown) == [1.0, 1.0]
    [scores] = environment.score([Episode(task, 0, (counted, guessed))], {})
    assert [score.settled for score in scores] == [False, True]


async def test_an_order_that_failed_leaves_the_other_unscored(make_task, sandbox) -> None:
    task, environment = make_task("right", "wrong"), TirPairwise(order="both", consistency=True)
    pair = [await dialogue(environment, task, sandbox, turns(), view) for view in (0, 1)]
    down = replace(pair[1], stop=StopReason.SANDBOX_DOWN, verdict=None, detail="the worker is gone")
    [scores] = environment.score([Episode(task, 0, (pair[0], down))], {})
    assert scores == (Unscored("sandbox_down: the worker is gone"),) * 2


async def test_a_sandbox_that_fails_in_the_second_run_is_no_evidence(make_task) -> None:
    class FailsOnSecond:
        capacity = 1

        def __init__(self) -> None:
            self.runs = 0

        async def run(self, program, limits=None) -> Execution:
            self.runs += 1
            return Execution(status=Status.OK if self.runs == 1 else Status.SANDBOX_FAILED, detail="gone")

    task, environment = make_task("right", "wrong"), TirPairwise(order="given", evidence="required")
    session = JudgeSession(environment, task, environment.views(task)[0], FailsOnSecond())
    await session.step(Completion(text=turns(LENGTHS)[0], finish=Finish.END))
    assert session.trajectory.stop is StopReason.SANDBOX_DOWN
