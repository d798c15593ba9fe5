"""Methods of best-of-N, under a judge whose taste is known; checks, in the real sandbox."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from itertools import combinations
from random import Random
from typing import Any

import pytest
import pytest_asyncio

from tirjudge import Judge
from tirjudge.best_of_n import (
    CandidateSet,
    Grade,
    RefereeUnavailable,
    Selection,
    abest_of,
    best_of,
    majority,
    open_method,
)
from tirjudge.best_of_n.grading import Instructions, Recorded
from tirjudge.best_of_n.mathematics import PRELOAD, Mathematics
from tirjudge.best_of_n.questions import questions
from tirjudge.best_of_n.unit_tests import UnitTests, code_of
from tirjudge.data.rows import Row
from tirjudge.generation.base import GeneratorFailed, Sampling
from tirjudge.judging.batch import Failure
from tirjudge_environments import Completion, Context, Finish, JudgeTask, Message
from tirjudge_sandbox import Limits, Sandbox, open_sandbox


class Taste:
    """A referee that likes candidates by a number each; equal numbers are a tie, None has no verdict."""

    def __init__(self, likes: Sequence[float | None]) -> None:
        self.likes = likes
        self.asked: list[tuple[int, ...]] = []

    async def score(self, candidate: int) -> float | None:
        self.asked.append((candidate,))
        return self.likes[candidate]

    async def best(self, candidates: Sequence[int]) -> tuple[int, ...]:
        self.asked.append(tuple(candidates))
        likes = [self.likes[one] for one in candidates]
        known = [like for like in likes if like is not None]
        if len(known) < len(likes):
            return ()
        return tuple(one for one, like in zip(candidates, likes, strict=True) if like == max(known))


def asking(count: int, id: str = "q", **gold: Any) -> CandidateSet:
    texts = tuple(f"candidate {number}" for number in range(count))
    return CandidateSet(JudgeTask(id=id, prompt=(Message("user", "p"),), candidates=texts, gold=gold), "f:1")


def different(count: int) -> Grade:
    return Grade((0.0,) * count, tuple(range(count)))


async def select(name: str, likes: Sequence[float | None], **options: Any) -> tuple[Selection, Taste]:
    referee = Taste(likes)
    method = open_method(name, **options)
    grade = options.get("grade") or different(len(likes))
    return await method.select(asking(len(likes)), grade, referee), referee


@pytest.mark.parametrize("name", ["pointwise", "pairwise", "listwise", "listwise-all", "round-robin"])
async def test_every_method_selects_whom_a_consistent_judge_likes_best(name: str) -> None:
    rng = Random(3)
    for count in (*range(1, 12), 16, 33):
        likes = rng.sample(range(100), count)
        for seed in (0, 1):
            selection, _ = await select(name, likes, seed=seed)
            assert selection.choice == likes.index(max(likes))
            assert selection.undecided == 0


@pytest.mark.parametrize(
    ("name", "count", "judgments"),
    [
        ("pointwise", 16, 16),
        ("pairwise", 16, 15),
        ("pairwise", 7, 6),
        ("pairwise", 1, 0),
        ("listwise", 16, 5),
        ("listwise", 4, 1),
        ("listwise", 9, 4),
        ("listwise", 5, 3),
        ("listwise-all", 16, 1),
        ("listwise-all", 1, 0),
        ("round-robin", 16, 120),
    ],
)
async def test_how_often_the_judge_is_asked(name: str, count: int, judgments: int) -> None:
    selection, referee = await select(name, list(range(count)))
    assert selection.judgments == len(referee.asked) == judgments
    assert max(Counter(referee.asked).values(), default=1) == 1


async def test_lists_of_a_knockout_are_no_longer_than_the_group_and_even() -> None:
    _, referee = await select("listwise", list(range(10)), group_size=4)
    assert sorted(map(len, referee.asked)) == [3, 3, 3, 4]


async def test_the_bracket_is_a_function_of_the_seed_and_the_question() -> None:
    async def first_round(seed: int, id: str) -> list[tuple[int, ...]]:
        referee = Taste(list(range(8)))
        await open_method("pairwise", seed=seed).select(asking(8, id), different(8), referee)
        return referee.asked[:4]

    assert await first_round(0, "q") == await first_round(0, "q")
    assert await first_round(0, "q") != await first_round(1, "q")
    assert await first_round(0, "q") != await first_round(0, "r")


async def test_equal_scores_are_decided_by_the_majority_of_their_answers() -> None:
    """Candidates 0, 2, 3 and 4 share the best score; 2 and 4 give one answer, the five others another."""
    likes: list[float | None] = [9, 8, 9, 9, 9, 8, None]
    grade = Grade((0.0,) * 7, (0, 0, 2, None, 2, 0, 0))
    selection = await open_method("pointwise").select(asking(7), grade, Taste(likes))
    assert (selection.choice, selection.undecided) == (2, 1)


async def test_without_any_verdict_pointwise_is_the_majority_vote() -> None:
    grade = Grade((0.0,) * 4, (0, 1, 1, 0))
    selection = await open_method("pointwise").select(asking(4), grade, Taste([None] * 4))
    assert (selection.choice, selection.undecided) == (0, 4)


async def test_a_knockout_draws_where_the_judge_does_not_decide() -> None:
    """Over many questions every candidate gets through; a tie is drawn among those that tie alone."""
    method = open_method("pairwise")
    drawn = Counter()
    for number in range(200):
        selection = await method.select(asking(4, f"q{number}"), different(4), Taste([None] * 4))
        drawn[selection.choice] += 1
        assert selection.undecided == 3
    assert set(drawn) == {0, 1, 2, 3}
    assert min(drawn.values()) > 25
    listed = open_method("listwise-all")
    for number in range(50):
        selection = await listed.select(asking(4, f"q{number}"), different(4), Taste([1, 5, 5, 2]))
        assert selection.choice in (1, 2)


async def test_a_round_robin_is_what_counting_by_hand_gives() -> None:
    rng = Random(8)
    for _ in range(20):
        likes = [rng.choice((1, 2, 3, None)) for _ in range(6)]
        selection, _ = await select("round-robin", likes)
        points = [0.0] * 6
        for a, b in combinations(range(6), 2):
            one, other = likes[a], likes[b]
            if one is None or other is None or one == other:
                points[a], points[b] = points[a] + 0.5, points[b] + 0.5
            else:
                points[a if one > other else b] += 1
        assert points[selection.choice] == max(points)


def test_a_majority_vote() -> None:
    assert majority([0, 1, 2, 3], [0, 1, 1, 0]) == 0
    assert majority([0, 1, 2, 3], [None, 1, None, None]) == 1
    assert majority([1, 2], [0, None, None]) == 1
    assert majority([0, 1, 2, 3, 4], [0, 1, 2, 1, 0]) == 0
    assert majority([3, 1, 2], [0, 1, 2, 1]) == 3


def test_a_method_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="no method 'swiss'; there are pointwise"):
        open_method("swiss")
    with pytest.raises(ValueError, match="a knockout needs groups of 2 candidates or more, not 1"):
        open_method("listwise", group_size=1)


def rows(*fields: dict[str, Any], **options: Any) -> list[CandidateSet | Failure]:
    return list(questions((Row(f"f:{n}", f"line-{n}", one) for n, one in enumerate(fields, 1)), **options))


def test_rows_of_jetts_are_read_as_they_are() -> None:
    jetts = {
        "query": {"content": "Name a prime.", "metadata": {"answer": "7"}},
        "responses": [{"content": "4", "metadata": {"score": 0}}, {"content": "5", "metadata": {"score": 1}}],
    }
    (question,) = rows(jetts)
    assert isinstance(question, CandidateSet)
    assert question.task.candidates == ("4", "5")
    assert question.task.prompt[0].content == "Name a prime."
    assert question.task.gold == {"check": "recorded", "solved": [0.0, 1.0]}
    (compared,) = rows(jetts, check="math")
    assert isinstance(compared, CandidateSet)
    assert compared.task.gold == {"check": "math", "answer": "7"}


def test_what_a_row_has_tells_how_it_is_checked() -> None:
    row = {"prompt": "p", "responses": ["a", "b", "c"], "solved": [True, False, 0.5], "answer": 7}
    kinds = [
        rows(row)[0],
        rows({**row, "test": "assert x"})[0],
        rows({**row, "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]})[0],
        rows(row, check="recorded", most=2)[0],
    ]
    golds = [question.task.gold for question in kinds if isinstance(question, CandidateSet)]
    assert [gold["check"] for gold in golds] == ["math", "tests", "instructions", "recorded"]
    assert golds[0]["answer"] == "7"
    assert golds[3]["solved"] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("changes", "options", "said"),
    [
        ({}, {}, "no evidence for which candidates solve it"),
        ({"solved": [1]}, {}, "solved must be a list of 2"),
        ({"solved": [1, 2]}, {}, "numbers from 0 to 1"),
        ({"answer": "7"}, {"check": "tests"}, "a row needs tests"),
        ({"instruction_id_list": ["no:such"], "kwargs": [{}]}, {}, "no verifier is called 'no:such'"),
        ({"tests": ["x"]}, {}, "tests must be a text"),
        ({"prompt": None, "solved": [1, 0]}, {}, "no prompt"),
    ],
)
def test_a_row_that_is_no_question_is_a_failure(
    changes: dict[str, Any], options: dict[str, Any], said: str
) -> None:
    (failure,) = rows({"prompt": "p", "responses": ["a", "b"], **changes}, **options)
    assert isinstance(failure, Failure)
    assert said in failure.reason


def test_an_id_that_is_there_twice_is_a_failure() -> None:
    row = {"id": "x", "prompt": "p", "responses": ["a"], "solved": [1]}
    _, second = rows(row, row)
    assert isinstance(second, Failure)
    assert "its id 'x' was used before, at f:1" in second.reason


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with open_sandbox("local", capacity=1, preload=PRELOAD) as opened:
        yield opened


def solving(candidates: Sequence[str], **gold: Any) -> CandidateSet:
    task = JudgeTask(id="q", prompt=(Message("user", "p"),), candidates=tuple(candidates), gold=gold)
    return CandidateSet(task, "f:1")


@pytest.mark.asyncio(loop_scope="module")
async def test_mathematics_compares_values_and_not_texts(sandbox: Sandbox) -> None:
    texts = ["so \\boxed{0.5}", "\\boxed{\\frac12}", "it is 3", "no idea", "\\boxed{2}", "it is 2", "4/8"]
    grade = await Mathematics(sandbox).grade(solving(texts, answer="1/2"))
    assert grade == Grade((1, 1, 0, 0, 0, 0, 1), (0, 0, 2, None, 4, 4, 0))
    with_zeros = await Mathematics(sandbox).grade(solving(["\\boxed{70}", "\\boxed{7}"], answer="070"))
    assert with_zeros.solved == (1, 0)


@pytest.mark.asyncio(loop_scope="module")
async def test_an_answer_that_never_ends_costs_nobody_else_theirs(sandbox: Sandbox) -> None:
    texts = ["\\boxed{3}", "\\boxed{9^{9^{9^{9^9}}}}", "\\boxed{6/2}"]
    checking = Mathematics(sandbox, Limits(cpu_seconds=10, wall_seconds=60))
    grade = await checking.grade(solving(texts, answer="3"))
    assert (grade.solved, grade.answers[::2]) == ((1, 0, 1), (0, 0))


@pytest.mark.asyncio(loop_scope="module")
async def test_an_answer_that_cannot_be_read_fails_its_question(sandbox: Sandbox) -> None:
    with pytest.raises(ValueError, match="cannot read its answer"):
        await Mathematics(sandbox).grade(solving(["\\boxed{3}"], answer=""))


PASSING = "Here it is:\n```python\ndef double(x):\n    return 2 * x\n```\nUse it:\n```python\ndouble(1)\n```"
PROGRAMS = [
    PASSING,
    "def double(x):\n    return 2 * x",
    "```python\ndef double(x):\n    return x ** 2\n```",
    "```python\nimport sys; sys.exit(0)\n```",
    "```python\nimport os; os._exit(0)\n```",
    "```python\nwhile True: pass\n```",
    "no program",
]
ASSERTIONS = "assert double(3) == 6"
CASES = """
import unittest
class TestDouble(unittest.TestCase):
    def test_three(self):
        self.assertEqual(double(3), 6)
"""
CHECK = "def check(candidate):\n    assert candidate(3) == 6\n"


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("tests", [ASSERTIONS, CASES, CHECK], ids=["assertions", "unittest", "check"])
async def test_code_is_solved_by_who_passes_its_tests_and_not_by_who_leaves(
    sandbox: Sandbox, tests: str
) -> None:
    checking = UnitTests(sandbox, Limits(cpu_seconds=1, wall_seconds=30))
    grade = await checking.grade(solving(PROGRAMS, tests=tests, entry_point="double"))
    assert grade.solved == (1, 1, 0, 0, 0, 0, 0)
    assert grade.answers == (0, 0, 2, 3, 4, 5, 6)


def test_the_program_of_a_response_is_its_longest_fence() -> None:
    assert code_of(PASSING) == "def double(x):\n    return 2 * x\n"
    assert code_of("```json\n{}\n```\n x = 1") == "```json\n{}\n```\n x = 1"
    assert code_of("```\nx = 1\n```") == "x = 1\n"


async def test_instructions_and_recorded_grades() -> None:
    asked = {"instruction_id_list": ["punctuation:no_comma", "startend:quotation"], "kwargs": [{}, {}]}
    grade = await Instructions().grade(solving(['"a"', '"a, b"', '"a" ', "a"], instructions=asked))
    assert grade == Grade((1, 0, 1, 0), (0, 1, 0, 3))
    assert await Recorded().grade(solving(["a", "b", "a "], solved=[1.0, 0.0, 0.5])) == Grade(
        (1.0, 0.0, 0.5), (0, 1, 0)
    )


class Longest:
    """A generator that prefers the longest response; it reads them from its prompt."""

    model = "longest"
    encoder = None

    async def generate(self, context: Context, sampling: Sampling) -> Completion:
        shown = [len(stars) for stars in re.findall(r"☆+", context.prompt.messages[-1].content)]
        answer = f"<preference>{'ABCDEFGH'[shown.index(max(shown))]}</preference>"
        if len(shown) == 1:
            answer = f"<score>{min(10, shown[0])}</score>"
        return Completion(text=answer, finish=Finish.END)

    async def close(self) -> None:
        """Nothing is held."""


@pytest.mark.parametrize("method", ["pointwise", "pairwise", "listwise", "listwise-all", "round-robin"])
async def test_from_python_a_judge_selects_inside_a_running_loop_too(method: str) -> None:
    candidates = ["☆" * count for count in (2, 5, 7, 1, 3)]
    with Judge(generator=Longest(), tools=False) as judge:
        assert best_of(judge, "Q", candidates, method).choice == 2
        assert (await abest_of(judge, "Q", candidates, method, seed=4)).choice == 2


async def test_from_python_what_fails_is_raised() -> None:
    class Down(Longest):
        async def generate(self, context: Context, sampling: Sampling) -> Completion:
            raise GeneratorFailed("it is off")

    with Judge(generator=Down(), tools=False) as judge:
        with pytest.raises(RefereeUnavailable, match="generator_down: it is off"):
            best_of(judge, "Q", ["☆", "☆☆"])
        with pytest.raises(ValueError, match="1 answers for 2 candidates"):
            best_of(judge, "Q", ["☆", "☆☆"], answers=[0])
