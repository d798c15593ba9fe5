"""Best-of-N: selection methods under a judge of known taste, and grading in the real sandbox."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import pytest_asyncio

from tests.rows import every
from tests.sandbox.targets import PLACEMENTS, READ_ONLY
from tirjudge import Judge
from tirjudge.best_of_n import RefereeUnavailable, Selection, abest_of, best_of
from tirjudge.data.rows import Row
from tirjudge.generation.base import GeneratorFailed, Sampling
from tirjudge.judging.batch import Failure
from tirjudge.selection.best_of_n import majority, open_method
from tirjudge.selection.grading import (
    PRELOAD,
    CandidateSet,
    Grade,
    Grades,
    Instructions,
    Mathematics,
    Recorded,
    UnitTests,
    questions,
)
from tirjudge_environments import Completion, Context, Finish, JudgeTask, Message
from tirjudge_environments.files.folder import Folder
from tirjudge_environments.turn_reader import code_of
from tirjudge_sandbox import Limits, Sandbox, open_sandbox


class Taste:
    """A referee that prefers the candidate with the larger number; equal numbers tie, None has no verdict."""

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
async def test_every_method_selects_the_candidate_that_a_consistent_judge_prefers(name: str) -> None:
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
async def test_the_number_of_judgments_of_each_method(name: str, count: int, judgments: int) -> None:
    selection, referee = await select(name, list(range(count)))
    assert selection.judgments == len(referee.asked) == judgments
    assert max(Counter(referee.asked).values(), default=1) == 1


async def test_the_bracket_is_a_function_of_the_seed_and_the_question() -> None:
    async def first_round(seed: int, id: str) -> list[tuple[int, ...]]:
        referee = Taste(list(range(8)))
        await open_method("pairwise", seed=seed).select(asking(8, id), different(8), referee)
        return referee.asked[:4]

    assert await first_round(0, "q") == await first_round(0, "q")
    assert await first_round(0, "q") != await first_round(1, "q")
    assert await first_round(0, "q") != await first_round(0, "r")


async def test_equal_scores_are_decided_by_the_majority_of_their_answers() -> None:
    """Candidates 0, 2, 3 and 4 share the best score; 2 and 4 give one answer, the other five another."""
    likes: list[float | None] = [9, 8, 9, 9, 9, 8, None]
    grade = Grade((0.0,) * 7, (0, 0, 2, None, 2, 0, 0))
    selection = await open_method("pointwise").select(asking(7), grade, Taste(likes))
    assert (selection.choice, selection.undecided) == (2, 1)
    selection = await open_method("pointwise").select(asking(3), different(3), Taste([3, 3, 3]))
    assert selection.undecided == 3


async def test_a_knockout_draws_lots_if_the_judge_does_not_decide() -> None:
    """Over many questions every candidate advances; a tie is drawn only among the tied candidates."""
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


def test_a_majority_vote() -> None:
    assert majority([0, 1, 2, 3], [0, 1, 1, 0]) == 0
    assert majority([0, 1, 2, 3], [None, 1, None, None]) == 1
    assert majority([1, 2], [0, None, None]) == 1
    assert majority([0, 1, 2, 3, 4], [0, 1, 2, 1, 0]) == 0
    assert majority([3, 1, 2], [0, 1, 2, 1]) == 3


def rows(*fields: dict[str, Any], **options: Any) -> list[CandidateSet | Failure]:
    return list(questions((Row(f"f:{n}", f"line-{n}", one) for n, one in enumerate(fields, 1)), **options))


def test_rows_of_jetts_are_read_unchanged() -> None:
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


def test_the_columns_of_a_row_decide_how_it_is_graded() -> None:
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


def test_an_empty_cell_of_a_table_is_no_evidence() -> None:
    row = {"prompt": "p", "responses": ["a", "b"], "tests": "", "answer": ""}
    found = rows({**row, "label": "B"}, row, {**row, "answer": "7"})
    assert [one.task.gold["check"] for one in found if isinstance(one, CandidateSet)] == [
        "label",
        "none",
        "math",
    ]
    (failure,) = rows(row, check="tests")
    assert isinstance(failure, Failure)
    assert "a row needs tests" in failure.reason


def test_a_label_grades_a_row_without_other_columns_and_nothing_is_needed_to_select() -> None:
    row = {"prompt": "p", "responses": ["a", "b", "c"]}
    labelled, unlabelled, tied, cut, both = (
        rows({**row, **more}, most=most)[0]
        for more, most in (
            ({"label": "B"}, None),
            ({}, None),
            ({"label": "tie"}, None),
            ({"label": 2}, 2),
            ({"label": "B", "answer": 7}, None),
        )
    )
    assert all(isinstance(one, CandidateSet) for one in (labelled, unlabelled, tied, cut, both))
    assert labelled.task.gold == {"check": "label", "solved": [0.0, 1.0, 0.0]}
    assert cut.task.gold == {"check": "label", "solved": [0.0, 0.0]}, "the labelled one is not among them"
    assert unlabelled.task.gold == tied.task.gold == {"check": "none"}
    assert both.task.gold["check"] == "math"
    assert labelled.task.label is None, "the judge must not see it"


@pytest.mark.parametrize(
    ("changes", "options", "said"),
    [
        ({}, {"check": "recorded"}, "no evidence for which candidates solve it: a row needs solved"),
        ({"label": "tie"}, {"check": "label"}, "a row needs a label that names one candidate"),
        ({"solved": [1]}, {}, "solved must be a list of 2"),
        ({"instruction_id_list": ["no:such"], "kwargs": [{}]}, {}, "no verifier is called 'no:such'"),
        ({"tests": ["x"]}, {}, "tests: Input should be a valid dictionary"),
    ],
)
def test_an_invalid_row_is_a_failure(changes: dict[str, Any], options: dict[str, Any], said: str) -> None:
    (failure,) = rows({"prompt": "p", "responses": ["a", "b"], **changes}, **options)
    assert isinstance(failure, Failure)
    assert said in failure.reason


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with open_sandbox("local", capacity=1, preload=PRELOAD) as opened:
        yield opened


def solving(candidates: Sequence[str], **gold: Any) -> CandidateSet:
    task = JudgeTask(id="q", prompt=(Message("user", "p"),), candidates=tuple(candidates), gold=gold)
    return CandidateSet(task, "f:1")


@pytest.mark.asyncio(loop_scope="module")
async def test_mathematics_compares_values_and_not_strings(sandbox: Sandbox) -> None:
    texts = ["so \\boxed{0.5}", "\\boxed{\\frac12}", "it is 3", "no idea", "\\boxed{2}", "it is 2", "4/8"]
    grade = await Mathematics(sandbox).grade(solving(texts, answer="1/2"))
    assert grade == Grade((1, 1, 0, 0, 0, 0, 1), (0, 0, 2, None, 4, 4, 0))
    with_zeros = await Mathematics(sandbox).grade(solving(["\\boxed{70}", "\\boxed{7}"], answer="070"))
    assert with_zeros.solved == (1, 0)


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="module")
async def test_an_endless_answer_does_not_affect_the_others(sandbox: Sandbox) -> None:
    texts = ["\\boxed{3}", "\\boxed{9^{9^{9^{9^9}}}}", "\\boxed{6/2}"]
    checking = Mathematics(sandbox, Limits(cpu_seconds=20, wall_seconds=120))
    grade = await checking.grade(solving([*texts, "\\boxed{5}", "\\boxed{7}", "\\boxed{9}"], answer="3"))
    assert grade == Grade((1, 0, 1, 0, 0, 0), (0, None, 0, 3, 4, 5))


@pytest.mark.asyncio(loop_scope="module")
async def test_an_unreadable_answer_fails_its_question(sandbox: Sandbox) -> None:
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


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "tests", every(3, [ASSERTIONS, CASES, CHECK]), ids=["assertions", "unittest", "check"]
)
async def test_code_that_exits_early_does_not_pass_its_tests(sandbox: Sandbox, tests: str) -> None:
    checking = UnitTests(sandbox, Limits(cpu_seconds=1, wall_seconds=30))
    grade = await checking.grade(solving(PROGRAMS, tests=tests, entry_point="double"))
    assert grade.solved == (1, 1, 0, 0, 0, 0, 0)
    assert grade.answers == (0, 0, 2, 3, 4, 5, 6)


@pytest.mark.slow
@pytest.mark.parametrize("placement", [name for name in READ_ONLY if name in PLACEMENTS])
async def test_code_is_graded_where_programs_can_write_no_file(placement: str) -> None:
    async with PLACEMENTS[placement]() as box:
        grade = await UnitTests(box).grade(solving(PROGRAMS[:3], tests=ASSERTIONS, entry_point="double"))
    assert grade.solved == (1, 1, 0)


DECEIVING = """class Equal(int):
    def __eq__(self, other):
        return True

def double(x):
    return Equal()
"""
STEALING = """import os, sys
word = next(value for value in sys._getframe().f_code.co_consts if isinstance(value, bytes))
os.write(1, word)
os._exit(0)
"""
"""Ends with what a program's own process would print after its tests."""
LIVECODEBENCH = [
    {"input": "3", "output": "6", "testtype": "functional"},
    {"input": "[1, 2]", "output": "[1, 2, 1, 2]", "testtype": "functional"},
]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "tests",
    [
        [{"call": "double(3)", "expected": 6}, {"call": "double(0)", "expected": 0}],
        LIVECODEBENCH,
        json.dumps(LIVECODEBENCH),
        "assert double(3) == 6\nassert 0 == double(0)\nassert (double(1), ) == (2,)",
    ],
    ids=["cases", "livecodebench", "json", "assertions"],
)
async def test_a_program_cannot_deceive_cases(sandbox: Sandbox, tests: object) -> None:
    method = "class Solution:\n    def double(self, x: List[int]):\n        return Counter() or x + x"
    programs = [*PROGRAMS[:5], DECEIVING, STEALING, method if "testtype" in str(tests) else PROGRAMS[1]]
    row = {"id": "q", "prompt": "p", "responses": programs, "tests": tests, "entry_point": "double"}
    (question,) = questions([Row("file:1", "q", row)])
    assert isinstance(question, CandidateSet)
    grade = await UnitTests(sandbox, Limits(cpu_seconds=10, wall_seconds=30)).grade(question)
    assert grade.solved == (1, 1, 0, 0, 0, 0, 0, 1)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("returned", "asserted"),
    [
        ("(1, 2)", "[1, 2]"),
        ("[1, 2]", "(1, 2)"),
        ("(1.0, 2)", "(1, 2)"),
        ("[(1, True)]", "[(1, True)]"),
        ("{'a': (1,)}", "{'a': [1]}"),
        ("__import__('numpy').array([3])[0]", "3"),
        ("__import__('collections').namedtuple('P', 'x y')(1, 2)", "(1, 2)"),
        ("{1: 2}", "{'1': 2}"),
    ],
)
async def test_assertions_pass_as_python_decides(sandbox: Sandbox, returned: str, asserted: str) -> None:
    programs = [f"def f():\n    return {returned}", "def f():\n    return 'other'"]
    grade = await UnitTests(sandbox).grade(solving(programs, tests=f"assert f() == {asserted}"))
    assert grade.solved == (float(eval(f"({returned}) == {asserted}")), 0.0)


@pytest.mark.asyncio(loop_scope="module")
async def test_programs_of_livecodebench_read_standard_input(sandbox: Sandbox) -> None:
    tests = [{"input": "3\n", "output": "6\n", "testtype": "stdin"}]
    row = {"id": "q", "prompt": "p", "responses": ["print(2 * int(input()))", "print(5)"], "tests": tests}
    (question,) = questions([Row("file:1", "q", row)])
    assert isinstance(question, CandidateSet)
    assert (await UnitTests(sandbox).grade(question)).solved == (1, 0)


def test_the_program_of_a_response_is_its_longest_fence() -> None:
    assert code_of(PASSING) == "def double(x):\n    return 2 * x\n"
    assert code_of("```json\n{}\n```\n x = 1") == "```json\n{}\n```\n x = 1"
    assert code_of("```\nx = 1\n```") == "x = 1\n"


async def test_instructions_and_recorded_grades_are_graded() -> None:
    asked = {"instruction_id_list": ["punctuation:no_comma", "startend:quotation"], "kwargs": [{}, {}]}
    grade = await Instructions().grade(solving(['"a"', '"a, b"', '"a" ', "a"], instructions=asked))
    assert grade == Grade((1, 0, 1, 0), (0, 1, 0, 3))
    assert await Recorded().grade(solving(["a", "b", "a "], solved=[1.0, 0.0, 0.5])) == Grade(
        (1.0, 0.0, 0.5), (0, 1, 0)
    )


async def test_equal_words_with_other_files_are_other_answers() -> None:
    recorded = solving(["done", "done", "done"], solved=[1.0, 0.0, 0.0])
    files = (Folder({"a": b"1"}), Folder({"a": b"2"}), Folder({"a": b"2"}))
    question = replace(recorded, task=replace(recorded.task, files=files))
    assert (await Recorded().grade(question)).answers == (0, 1, 1)


class Longest:
    """A generator that prefers the longest response, which it finds in its prompt."""

    model = "longest"
    encoder = None

    async def generate(self, context: Context, sampling: Sampling) -> Completion:
        shown = [len(stars) for stars in re.findall(r"☆+", context.prompt.messages[-1].content)]
        answer = f"<preference>{'ABCDEFGH'[shown.index(max(shown))]}</preference>"
        if len(shown) == 1:
            answer = f"<score>{min(10, shown[0])}</score>"
        return Completion(text=answer, finish=Finish.END)

    async def close(self) -> None:
        """Do nothing, since no resource is held."""


@pytest.mark.parametrize("method", ["pointwise", "listwise"])
async def test_best_of_works_inside_a_running_event_loop(method: str) -> None:
    candidates = ["☆" * count for count in (2, 5, 7, 1, 3)]
    with Judge(generator=Longest(), tools=False) as judge:
        assert best_of(judge, "Q", candidates, method).choice == 2
        assert (await abest_of(judge, "Q", candidates, method, seed=4)).choice == 2


async def test_best_of_raises_on_failure() -> None:
    class Down(Longest):
        async def generate(self, context: Context, sampling: Sampling) -> Completion:
            raise GeneratorFailed("it is off")

    with Judge(generator=Down(), tools=False) as judge:
        with pytest.raises(RefereeUnavailable, match=r"^it is off$"):
            best_of(judge, "Q", ["☆", "☆☆"])
        with pytest.raises(ValueError, match="1 answers for 2 candidates"):
            best_of(judge, "Q", ["☆", "☆☆"], answers=[0])


async def test_kept_grades_are_those_of_the_same_files(tmp_path: Path) -> None:
    """Responses with the same words are other answers as soon as their files differ."""

    async def answers(*texts: str) -> tuple[int, ...]:
        files = tuple(Folder({"out.txt": text.encode()}) for text in texts)
        task = JudgeTask(
            id="q", prompt=(Message("user", "p"),), candidates=("done", "done"), label=0, files=files
        )
        graded = replace(task, gold={"check": "recorded", "solved": [True, False]})
        async with Grades(tmp_path / "grades.jsonl") as grades:
            return (await grades.grade(CandidateSet(graded, "rows:1"))).answers

    first, second = await answers("1", "1")
    assert first == second
    first, second = await answers("1", "2")
    assert first != second
    assert len((tmp_path / "grades.jsonl").read_text().splitlines()) == 2
    await answers("1", "2")
    assert len((tmp_path / "grades.jsonl").read_text().splitlines()) == 2, "kept"
