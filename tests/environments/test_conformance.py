"""The conformance suite on all formats, and readings of arbitrary texts."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tirjudge_environments import (
    Completion,
    Continue,
    Finish,
    JudgeSession,
    JudgeTask,
    Malformed,
    Message,
    Reward,
    RunCode,
    TirListwise,
    TirPairwise,
    TirPointwise,
    ToolCall,
    Verdict,
)
from tirjudge_environments.formats.checks import ChecksListwise, ChecksPairwise, ChecksPointwise
from tirjudge_environments.formats.j1 import J1PaS, J1PaV, J1PaVS, J1PoS
from tirjudge_environments.formats.judgelrm import JudgeLrmPair, JudgeLrmSingle
from tirjudge_environments.formats.rationale import Rationale
from tirjudge_environments.formats.rm_r1 import RmR1
from tirjudge_environments.orders import letter, letters
from tirjudge_environments.testing import check_environment, fixed_sandbox
from tirjudge_environments.types import Episode

TASKS = {
    "pair": JudgeTask(id="pair", prompt=(Message("user", "Hi"),), candidates=("{prompt}", "</s>"), label=1),
    "scored": JudgeTask(
        id="scored", prompt=(Message("user", "Hi"),), candidates=("a", "b"), gold={"scores": [8, 3]}
    ),
    "reasons": JudgeTask(
        id="reasons",
        prompt=(Message("user", "Hi"),),
        candidates=("a", "b"),
        label=0,
        gold={"checklist": ("Response 1 is {prompt}",), "strength": 2},
    ),
    "list": JudgeTask(
        id="list",
        prompt=(Message("system", "Be brief."), Message("user", "\ud800")),
        candidates=("<preference>A</preference>", "```python\nprint(1)\n```", "", "x" * 5000, "\x00"),
        label=3,
        domain="safety",
    ),
}
FORMATS = [
    (TirPointwise(), TASKS["pair"]),
    (TirPointwise(tools=False), TASKS["list"]),
    (TirPairwise(), TASKS["pair"]),
    (TirPairwise(order="both", exact=True), TASKS["pair"]),
    (TirPairwise(protocol="tool"), TASKS["pair"]),
    (TirListwise(order="both"), TASKS["list"]),
    (TirListwise(tools_by_domain={"safety": False}), TASKS["list"]),
    (ChecksPointwise(), TASKS["pair"]),
    (ChecksPairwise(order="both", evidence="recorded"), TASKS["pair"]),
    (ChecksPairwise(protocol="tool"), TASKS["pair"]),
    (ChecksListwise(), TASKS["list"]),
    (JudgeLrmPair(), TASKS["scored"]),
    (JudgeLrmPair(order="both", rules="released"), TASKS["scored"]),
    (JudgeLrmSingle(), TASKS["list"]),
    (J1PaV(), TASKS["pair"]),
    (J1PaV(seed_prompt="plan", consistency=True), TASKS["pair"]),
    (J1PaS(), TASKS["pair"]),
    (J1PaVS(order="random"), TASKS["pair"]),
    (J1PoS(), TASKS["pair"]),
    (RmR1(order="both"), TASKS["pair"]),
    (RmR1(style="reasoning", reward="cold-start"), TASKS["pair"]),
    (Rationale(order="both"), TASKS["reasons"]),
    (Rationale(reward="outcome", exact=True), TASKS["reasons"]),
]
PIECES = st.sampled_from(
    [
        *("```", "```python\n", "```output\n", "`", "\n", " ", "A", "7", "é"),
        *("<score>", "</score>", "<preference>", "</preference>", "<answer>", "</answer>", "[[A]]"),
        *("<think>", "</think>", "<score_A>7</score_A>", "<score_B>", "</score_B>", "<plan>", "</execution>"),
        *("<RESULT_START>\n", "<RESULT_END>", "- ", "1. ", "Final assessment result", "\\boxed{", "A>>B}"),
        *("<rubric>", "</rubric>", "<quote_A>", "</quote_A>", "<type>Chat</type>", "<justify>", "50%"),
        *("<preference>B</preference>", "```python\nprint(1)\n```\n"),
    ]
)
COMPLETIONS = st.one_of(st.text(), st.lists(PIECES, max_size=40).map("".join))


@pytest.mark.parametrize(("environment", "task"), FORMATS)
async def test_a_format_is_an_environment(environment, task) -> None:
    await check_environment(environment, task)


@pytest.mark.parametrize(("environment", "task"), FORMATS)
@settings(max_examples=30, deadline=None, derandomize=True)
@given(text=COMPLETIONS, finish=st.sampled_from(Finish), arguments=st.text())
@example(text="```python\n```output\n```python\n```", finish=Finish.STOP, arguments='{"code": ""}')
def test_any_completion_can_be_read(environment, task, text: str, finish: Finish, arguments: str) -> None:
    calls = (ToolCall("1", "run_python", arguments),) if finish is Finish.TOOL_CALL else ()
    completion = Completion(text=text, finish=finish, tool_calls=calls)
    view = environment.views(task)[-1]
    reading = environment.read(task, view, completion)
    assert isinstance(reading, RunCode | Verdict | Continue | Malformed)
    if isinstance(reading, Verdict):
        assert (
            reading.choice in view.order
            if reading.choice is not None
            else set(reading.scores) <= {*view.order}
        )
    if isinstance(reading, RunCode) and reading.end is not None:
        assert 0 < reading.end <= len(text)
    if isinstance(reading, Malformed):
        assert reading.reason.isprintable()
        assert reading.reason
    if finish in (Finish.END, Finish.TOOL_CALL):
        assert not isinstance(reading, Continue)


LONG = [
    *(
        "<answer>",
        "</answer>",
        "<think>",
        "</think>",
        "<score_A>",
        "<score>",
        "</preference>",
        "<preference>",
    ),
    *("<answer><think>", "</think></answer>", "<answer>[[A]]</answer>", "<score_A>7</score_A>", "<plan>"),
    *("<RESULT_START>\n- a\n", "<RESULT_END>", "\\boxed{", "<rubric><justify>", "<quote_A></quote_A>", "50%"),
    *("9", "[", " ", "\n", "<", "```python\n", "```\n", "<answer> ", "<score>1", "<execution></plan>"),
    *("`", " `", "```json\n```python\n", "```a`\n", "```\n<score>\n", "```" + "x" * 9999 + "`"),
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "size", [100_000, pytest.param(1_000_000, marks=pytest.mark.soak)], ids=["100 kB", "1 MB"]
)
@pytest.mark.parametrize(("environment", "task"), {type(one): (one, task) for one, task in FORMATS}.values())
def test_a_long_text_of_anything_is_read_in_linear_time(environment, task, size: int) -> None:
    """A quadratic reader would need minutes for over ten thousand tags."""
    view = environment.views(task)[0]
    for piece in LONG:
        text = piece * (size // len(piece))
        assert environment.read(task, view, Completion(text=text, finish=Finish.END))


KNOWN = [finish for finish in Finish if finish is not Finish.UNKNOWN]
"""The ends of answers; an unknown end without a verdict is a failure of the endpoint."""


@settings(max_examples=50, deadline=None, derandomize=True)
@given(turns=st.lists(st.tuples(COMPLETIONS, st.sampled_from(KNOWN)), max_size=12))
async def test_any_dialogue_ends_in_a_score(turns) -> None:
    environment, task = TirPairwise(order="given"), TASKS["pair"]
    session = JudgeSession(environment, task, environment.views(task)[0], fixed_sandbox())
    for text, finish in turns:
        if not session.done:
            await session.step(Completion(text=text, finish=finish))
    while not session.done:
        await session.step(Completion(text="?", finish=Finish.END))
    [(score,)] = environment.score([Episode(task, 0, (session.trajectory,))], {})
    assert isinstance(score, Reward)
    assert score.total in (0.0, 0.1, 1.0)


@pytest.mark.parametrize("broken", ["views", "prompt", "read", "score"])
async def test_the_conformance_suite_finds_broken_environments(broken: str) -> None:
    class Broken(TirPairwise):
        def views(self, task):
            views = super().views(task)
            return (*views, *views) if broken == "views" else views

        def prompt(self, task, view):
            other = (
                task if broken != "prompt" else JudgeTask(id="", prompt=task.prompt, candidates=("?", "?"))
            )
            return super().prompt(other, view)

        def read(self, task, view, completion):
            return super().read(task, view, completion) if broken != "read" else None

        def score(self, group, answers):
            return (
                super().score(group, answers)
                if broken != "score"
                else [(Reward(0.0, {}, right=False, teaches=False),) for _ in group]
            )

    with pytest.raises(AssertionError):
        await check_environment(Broken(), TASKS["pair"])


def test_letters_count_like_spreadsheet_columns() -> None:
    assert letters(3) == ("A", "B", "C")
    assert [letter(position) for position in (25, 26, 27, 51, 52, 701, 702)] == [
        "Z",
        "AA",
        "AB",
        "AZ",
        "BA",
        "ZZ",
        "AAA",
    ]
    assert len(set(letters(1000))) == 1000
