"""The options `consistency` and `evidence` of TIR's pairs and lists, with programs in the real sandbox."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
import pytest_asyncio

from tests.trajectories import bare_trajectory
from tirjudge_environments import (
    Call,
    Completion,
    Environment,
    Episode,
    Evidence,
    Finish,
    JudgeSession,
    Reward,
    RunCode,
    StopReason,
    TirListwise,
    TirPairwise,
    TirPointwise,
    Trajectory,
    Unscored,
    View,
)
from tirjudge_environments.programs.evidence import decided, evidence_of
from tirjudge_sandbox import Execution, Limits, Sandbox, Status, open_sandbox

LENGTHS = "print(len(response_a), len(response_b))"
CHECKS = "for name, one in ('A', response_a), ('B', response_b): print(name, int(len(one) < 10), 'of 1')"
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
    assert evidence_of(trajectory) is evidence
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


class FailsInTheSecondRun:
    """The real sandbox, which fails whenever a program is run again."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox, self.capacity, self._seen = sandbox, sandbox.capacity, set[str]()

    async def run(self, program, limits=Limits()) -> Execution:
        if program.source in self._seen:
            return Execution(status=Status.SANDBOX_FAILED, detail="the worker is gone")
        self._seen.add(program.source)
        return await self._sandbox.run(program, limits)


async def test_a_sandbox_that_fails_in_the_second_run_costs_the_evidence_and_not_the_verdict(
    make_task, sandbox
) -> None:
    task, required = make_task("right", "wrong answer"), TirPairwise(order="given", evidence="required")
    trajectory = await dialogue(required, task, FailsInTheSecondRun(sandbox), turns(CHECKS))
    assert trajectory.stop is StopReason.VERDICT
    assert trajectory.verdict is not None
    assert trajectory.verdict.choice == 0
    assert evidence_of(trajectory) is Evidence.UNCHECKED
    assert decided(trajectory) is None
    # A reward that needs the evidence is not known, and one that does not is as ever.
    assert rewards(required, task, trajectory) == [
        "the sandbox failed in the run with exchanged responses: the worker is gone"
    ]
    assert rewards(TirPairwise(order="given", evidence="recorded"), task, trajectory) == [1.0]


# Programs, the verdict, and whether the program decided it. Response A has 5 characters, B has 12.
DECIDED = {
    "checks": ([CHECKS], "A", True),
    "checks, and the verdict is against them": ([CHECKS], "B", False),
    "a letter": (["print('A' if len(response_a) < len(response_b) else 'B')"], "A", True),
    # 1 may be the index of a response, or say that A has at least five characters.
    "a number that follows the responses": (["print(int(len(response_a) > 5))"], "A", False),
    "a number for True": (["print(int(len(response_a) <= 5))"], "B", False),
    # More is not better: "at most 5 characters" favours A, and 12 is the larger number.
    "a length for each letter": (["print('A', len(response_a))\nprint('B', len(response_b))"], "B", False),
    "lengths in one line": ([LENGTHS], "B", False),
    # The judge's question decides whether more of something is better, and whether a ranking begins with the
    # best response. The output alone cannot say either.
    "a count for each response": (["for one in responses: print(one.count('t'))"], "A", False),
    "a ranking": (["print(*sorted('AB', key=lambda n: len(responses[n == 'B'])), sep='\\n')"], "B", False),
    "the same letter twice": (["for _ in 1, 2: print('A' if len(response_a) < 9 else 'B')"], "A", True),
    "equal checks": (["print('A 1 of 1')\nprint('B 1 of 1')\nprint(len(response_a))"], "A", False),
    "checks of one response only": (["print('A', int(len(response_a) < 6), 'of 1')"], "A", False),
    "a letter that does not depend on the responses": (["print('A')"], "A", False),
    "a letter that does not move with the responses": (["print(len(response_a))\nprint('A')"], "A", False),
    "a failure for exchanged responses": (["assert len(response_a) == 5\nprint('A')"], "A", False),
    "no program": ([], "A", False),
    "a program that fails": ([BROKEN], "A", False),
    "a failure after checks": ([CHECKS, BROKEN], "A", True),
    "the last program counts": ([CHECKS, PROMPT], "A", False),
}


@pytest.mark.parametrize(("programs", "verdict", "expected"), DECIDED.values(), ids=DECIDED)
async def test_a_program_decides_if_it_favours_the_verdict_in_both_orders(
    make_task, sandbox, programs, verdict, expected
) -> None:
    task, environment = make_task("right", "wrong answer"), TirPairwise(order="given", evidence="recorded")
    trajectory = await dialogue(environment, task, sandbox, turns(*programs, verdict=verdict))
    assert decided(trajectory) is expected
    # It cannot be known of a program that was not run again.
    alone = await dialogue(TirPairwise(order="given"), task, sandbox, turns(CHECKS, verdict=verdict))
    assert decided(alone) is None


async def test_a_program_that_does_not_end_for_exchanged_responses_decides_nothing(
    make_task, sandbox
) -> None:
    task, environment = make_task("right", "wrong answer"), TirPairwise(order="given", evidence="recorded")
    source = "while len(response_a) != 5: pass\nprint('A')"
    session = JudgeSession(
        environment, task, environment.views(task)[0], sandbox, limits=Limits(wall_seconds=1, cpu_seconds=1)
    )
    for text in turns(source):
        await session.step(Completion(text=text, finish=Finish.END))
    assert session.trajectory.verdict is not None
    assert evidence_of(session.trajectory) is Evidence.SEPARATES
    assert decided(session.trajectory) is False


async def test_a_response_that_is_a_letter_names_no_other_response(make_task, sandbox) -> None:
    task, environment = make_task("B", "A"), TirPairwise(order="given", evidence="recorded")
    for program in ("print(response_a)", "print(response_b)"):
        for letter in "AB":
            trajectory = await dialogue(environment, task, sandbox, turns(program, verdict=letter))
            assert decided(trajectory) is False
    counts = "print('A', int(response_a == '1'), 'of 1')\nprint('B', int(response_b == '1'), 'of 1')"
    for rest in ("2", "B 0 of 1"):
        trajectory = await dialogue(environment, make_task("1", rest), sandbox, turns(counts, verdict="A"))
        assert decided(trajectory) is True


async def test_lists_are_decided_in_the_order_shown(make_task, sandbox) -> None:
    """The list is shown as C, A, B, so that the row's third response has the letter A."""
    task = make_task("four", "three", "two", label=2)
    environment = TirListwise(order="given", evidence="recorded")
    view = View("CAB", (2, 0, 1))
    program = "for name, one in zip('ABC', responses): print(name, int(len(one) < 4), 'of 1')"
    for letter, expected in (("A", True), ("B", False)):
        session = JudgeSession(environment, task, view, sandbox)
        for text in turns(program, verdict=letter):
            await session.step(Completion(text=text, finish=Finish.END))
        assert session.trajectory.verdict is not None
        assert decided(session.trajectory) is expected


# Programs on one response of ten words.
ALONE = {
    # A number says nothing of a response, although it depends on it.
    "a number that depends on the response": ("print(len(response.split()))", 7, False),
    # An empty response has fewer than 30 words as well; the other response has more.
    "a check that fails for an empty response too": ("print(len(response.split()) >= 30)", 2, True),
    "a check that fails, and a score that passes": ("print(len(response.split()) >= 30)", 7, False),
    "a check that passes": (
        "print('words', len(response))\nprint('pass' if len(response) > 9 else 'fail')",
        7,
        True,
    ),
    "a check that says nothing of another response": ("print('pass' * (len(response) > 9))", 10, False),
    "checks that are kept": ("print(sum([len(response) > 9, len(response) > 99]), 'of 2')", 5, True),
    "fewer checks than the score says": (
        "print(sum([len(response) > 9, len(response) > 99]), 'of 2')",
        10,
        False,
    ),
    "two lines that disagree": ("print('pass')\nprint('pass' if len(response) > 9 else 'fail')", 9, False),
    "more checks than all": ("print(len(response), 'of 2')", 10, False),
    "a number that does not": ("print(len(prompt))", 7, False),
    "a failure for any other response": ("assert response.startswith('one')\nprint('pass')", 7, False),
}


@pytest.mark.parametrize(("program", "score", "expected"), ALONE.values(), ids=ALONE)
async def test_a_single_response_is_decided_if_the_output_depends_on_it_and_says_what_the_score_says(
    make_task, sandbox, program, score, expected
) -> None:
    task = make_task("one two three four five six seven eight nine ten")
    environment = TirPointwise(evidence="recorded")
    texts = [f"```python\n{program}\n```\n", f"<score>{score}</score>"]
    assert decided(await dialogue(environment, task, sandbox, texts)) is expected
    assert decided(await dialogue(TirPointwise(), task, sandbox, texts)) is None


@pytest.mark.parametrize("texts", [("yes", "yes", "no"), ("yes", "no", "yes")])
async def test_any_other_candidate_may_show_that_a_program_depends_on_its_response(
    make_task, sandbox, texts
) -> None:
    program = "```python\nprint('fail' if response == 'no' else 'pass')\n```\n"
    environment = TirPointwise(evidence="recorded")
    shown = await dialogue(environment, make_task(*texts), sandbox, [program, "<score>10</score>"])
    assert decided(shown) is True


async def test_a_response_that_is_printed_is_no_evidence_for_itself(make_task, sandbox) -> None:
    for text in ("I say so.\nTrue", "All tests\n3 of 3", "pass"):
        texts = ["```python\nprint(response)\n```\n", "<score>10</score>"]
        shown = await dialogue(TirPointwise(evidence="recorded"), make_task(text), sandbox, texts)
        assert decided(shown) is False


async def test_a_verdict_that_rests_on_another_tool_says_so() -> None:
    answered = Call(RunCode("{}", tool="run_tests"), Execution(status=Status.OK, stdout="A 1 of 1"))
    counted = Call(RunCode(CHECKS), Execution(status=Status.OK, stdout="A 1 of 1"))
    assert evidence_of(bare_trajectory(calls=(counted, answered))) is Evidence.TOOL
    assert decided(bare_trajectory(calls=(counted, answered))) is None
    assert evidence_of(bare_trajectory(calls=(answered, counted))) is Evidence.UNCHECKED
