"""A judge's rewards for groups: calls, orders, budgets, the cache, overlap, failures and bad input."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from tests.tirjudge.judge_server import RESPONSE, longest
from tirjudge import Judge
from tirjudge.generation.base import GeneratorFailed, Sampling
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.group_rewards import GroupOptions, GroupRewards
from tirjudge_environments import Completion, Context, Finish


def shown(context: Context) -> dict[str, str]:
    """Return the responses of a question by their letters."""
    return dict(RESPONSE.findall(context.prompt.messages[-1].content))


class Counting:
    """A scripted judge, with the questions that it was asked."""

    def __init__(self, script: Callable[[Context], str] = longest, **options: Any) -> None:
        self.asked: list[tuple[str, ...]] = []
        self._script = script
        self.judge = Judge(
            generator=ScriptedGenerator(self._answer), **{"tools": False, "untrained": "tir", **options}
        )

    def _answer(self, context: Context) -> str:
        self.asked.append(tuple(shown(context).values()))
        return self._script(context)

    def __call__(self, *completions: str, prompt: str = "Write.", **options: Any) -> GroupRewards:
        return self.judge.reward_group(prompt, completions, GroupOptions(**options))


def texts(size: int) -> list[str]:
    return ["x" * (length + 1) for length in range(size)]


@pytest.mark.parametrize("both_orders", [False, True])
@pytest.mark.parametrize(
    ("method", "budget", "comparisons"),
    [
        ("round-robin", None, 28),
        ("round-robin", 17, 16),
        ("knockout", None, 7),
        ("pivot", None, 7),
        ("swiss", None, 12),
        ("swiss", 9, 8),
        ("listwise", None, 1),
    ],
)
def test_the_judge_is_called_as_often_as_documented(
    method: str, budget: int | None, comparisons: int, both_orders: bool
) -> None:
    counting = Counting()
    each = 2 if both_orders else 1
    with counting.judge:
        found = counting(*texts(8), method=method, both_orders=both_orders, budget=budget and budget * each)
    assert len(counting.asked) == found.calls == comparisons * each
    assert (found.comparisons, found.cached, found.ties, found.no_verdict) == (comparisons, 0, 0, 0)
    assert found.rewards[7] == max(reward for reward in found.rewards if reward is not None)
    if both_orders:
        assert {pair[::-1] for pair in counting.asked} == set(counting.asked)


@pytest.mark.parametrize("method", ["swiss", "round-robin"])
def test_a_repeated_completion_leaves_nobody_without_a_comparison(method: str) -> None:
    """Four calls compare all of eight completions; of seven, one sits out in each round of three."""
    with (counting := Counting()).judge:
        found = counting(*texts(7), "x", method=method, budget=4)
    assert None not in found.rewards
    assert (found.duplicates, found.calls) == (1, 6)


def test_two_orders_that_disagree_are_a_tie() -> None:
    with (first := Counting(lambda _: "<preference>A</preference>")).judge:
        found = first("x", "yy", "zzz", method="round-robin", both_orders=True)
    assert (found.rewards, found.ties) == ((0.5, 0.5, 0.5), 3)


def test_a_comparison_that_is_left_open_has_no_influence() -> None:
    """The judge is biased where `u` is shown: without those pairs, `xxx` won its only comparison."""

    def biased_about_u(context: Context) -> str:
        return "<preference>A</preference>" if "u" in shown(context).values() else longest(context)

    with (plain := Counting(biased_about_u, order="both")).judge:
        found = plain("x", "u", "xxx", method="round-robin")
    assert (found.rewards, found.ties, found.no_verdict) == ((0.25, 0.5, 0.75), 2, 0)
    with (careful := Counting(biased_about_u, order="both", abstain_below=0.6)).judge:
        found = careful("x", "u", "xxx", method="round-robin")
    assert (found.rewards, found.ties, found.no_verdict) == ((0.0, None, 1.0), 0, 2)


def test_an_equal_question_is_asked_once() -> None:
    """A second method, a larger group and the reversed order find the pairs that are known."""
    with (counting := Counting()).judge:
        counting(*texts(4), method="round-robin")
        assert len(counting.asked) == 6
        again = counting(*reversed(texts(4)), method="knockout")
        assert (again.calls, again.cached, len(counting.asked)) == (3, 3, 6)
        more = counting(*texts(5), method="round-robin")
        assert (more.calls, more.cached, len(counting.asked)) == (10, 6, 10)
        other = counting(*texts(4), method="round-robin", prompt="Another prompt.")
        assert (other.cached, len(counting.asked)) == (0, 16)


class Gate:
    """A model that answers only once `most` questions are waiting, so that less overlap would never end."""

    model, encoder = "gate", None

    def __init__(self, most: int) -> None:
        self.most, self.waiting, self.asked = most, 0, 0
        self.opened: asyncio.Event | None = None

    async def generate(self, context: Context, sampling: Sampling) -> Completion:
        self.opened = self.opened or asyncio.Event()
        self.asked += 1
        self.waiting += 1
        if self.waiting == self.most:
            self.opened.set()
        await asyncio.wait_for(self.opened.wait(), 10)
        return Completion(text="<preference>A</preference>", finish=Finish.END)

    async def close(self) -> None:
        """Do nothing."""


async def test_pairs_and_groups_are_judged_at_the_same_time_and_equal_ones_together() -> None:
    gate = Gate(6 + 3)
    async with Judge(generator=gate, tools=False) as judge:
        options = GroupOptions(method="round-robin")
        found = await asyncio.gather(
            judge.areward_group("one", texts(4), options),
            judge.areward_group("one", texts(4), options),
            judge.areward_group("two", texts(3), options),
        )
    assert gate.asked == 9
    assert found[0].rewards == found[1].rewards
    assert [one.cached for one in found] == [0, 6, 0]


async def test_the_configured_concurrency_is_the_limit_over_all_groups() -> None:
    gate = Gate(2)
    async with Judge(generator=gate, tools=False, concurrency=2) as judge:
        work = [asyncio.create_task(judge.areward_group(name, texts(4))) for name in ("one", "two")]
        gate.most = 3  # never reached
        async with asyncio.timeout(20):
            while gate.waiting < 2:  # noqa: ASYNC110 (the judge's event loop is in another thread)
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert gate.waiting == 2, "a third question must wait"
        for one in work:
            one.cancel()
        await asyncio.gather(*work, return_exceptions=True)


def test_without_a_verdict_there_is_no_reward() -> None:
    with (counting := Counting()).judge:
        found = counting("a?", "bb", "ccc", method="round-robin")
        assert (found.rewards, found.no_verdict) == ((None, 0.0, 1.0), 2)
        assert counting("a?", "b?", method="swiss").rewards == (None, None)
        assert counting("a?", "b?", "cc", method="listwise").rewards == (None, None, None)


def test_a_judge_that_is_down_raises_and_is_asked_again_afterwards() -> None:
    down = [True]

    def script(context: Context) -> str:
        if down[0]:
            raise GeneratorFailed("the machine is off")
        return longest(context)

    with (counting := Counting(script)).judge:
        for method in ("round-robin", "listwise"):
            with pytest.raises(GeneratorFailed, match="the machine is off"):
                counting(*texts(3), method=method)
        down[0] = False
        assert counting(*texts(3), method="round-robin").rewards == (0, 0.5, 1)


def test_equal_completions_share_a_reward_and_are_judged_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), (counting := Counting()).judge:
        found = counting("x", "yy", "x", "zzz", method="round-robin")
        assert (found.rewards, found.calls, found.duplicates) == ((0, 0.5, 0, 1), 3, 1)
        same = counting("x", "x", "x")
        assert (same.rewards, same.calls, same.duplicates) == ((0.5, 0.5, 0.5), 0, 2)
    assert [record.message for record in caplog.records] == [
        "1 of 4 completions of a group repeat another: each text is judged once, and equal texts share a "
        "reward (said once)"
    ]


def by_length(context: Context) -> str:
    response = context.prompt.messages[-1].content.partition("\nResponse:\n")[2].partition("\n")[0]
    return f"<score>{len(response)}</score>"


def test_a_list_gets_the_scores_of_a_judge_that_gives_scores() -> None:
    judge = Judge(generator=ScriptedGenerator(by_length), format="tir-pointwise", tools=False)
    with judge:
        found = judge.reward_group("p", ["x", "xxx", "xx"], GroupOptions(method="listwise"))
        assert (found.rewards, found.calls) == ((1.0, 3.0, 2.0), 3)
        silent = judge.reward_group("p", ["x", "", "xx"], GroupOptions(method="listwise"))
    assert silent.rewards == (1.0, 0.0, 2.0)


@pytest.mark.parametrize(
    ("size", "options", "line"),
    [
        (1, {}, "a group of 1 cannot be compared"),
        (8, {"method": "knockout", "budget": 6}, "a budget of 6 judge calls is too small: knockout needs 7"),
        (5, {"budget": 7, "both_orders": True}, "a budget of 7 judge calls is too small: swiss needs 8"),
        (2, {"method": "elo"}, "no method 'elo'; there are round-robin"),
    ],
)
def test_bad_input_is_one_line(size: int, options: dict[str, Any], line: str) -> None:
    with (counting := Counting()).judge:
        with pytest.raises(ValueError, match=f"^{line}"):
            counting(*texts(size), **options)
        assert counting.asked == []


def test_a_format_that_cannot_take_the_question_is_named() -> None:
    judge = Judge(generator=ScriptedGenerator(["[[A]]"]), format="tir-pairwise", tools=False)
    with judge, pytest.raises(ValueError, match=r"^listwise does not suit this judge: a pair has"):
        judge.reward_group("p", texts(3), GroupOptions(method="listwise"))


def measuring(context: Context) -> str:
    """Let a program name the longer response; where a `u` is shown, guess the first without a program."""
    if any("u" in text for text in shown(context).values()):
        return "<preference>A</preference>"
    if not context.segments:
        program = "lengths = list(map(len, responses))\nprint('ABCD'[lengths.index(max(lengths))])"
        return f"```python\n{program}\n```\n"
    return f"<preference>{context.segments[-1].text.split()[1]}</preference>"


@pytest.mark.parametrize(
    ("completions", "method", "rewards", "decided", "ties"),
    [
        (("x", "xx", "xxx"), "round-robin", (0.0, 0.5, 1.0), 3, 0),
        (("x", "uu", "xxx"), "round-robin", (0.25, 0.5, 0.75), 1, 2),
        (("u", "uu", "uuu"), "round-robin", (0.5, 0.5, 0.5), 0, 3),
        (("u", "uu", "uuu"), "swiss", (0.5, 0.5, 0.5), 0, 2),
        (("u", "uu", "uuu"), "pivot", (0.5, 0.5, 0.5), 0, 2),
        (("u", "uu"), "knockout", (0.5, 0.5), 0, 1),
        (("x", "xx", "xxx"), "listwise", (0.0, 0.0, 1.0), 1, 0),
        (("u", "uu", "uuu"), "listwise", (0.5, 0.5, 0.5), 0, 1),
        (("", "u", "uu"), "listwise", (0.0, 0.5, 0.5), 0, 1),
    ],
)
def test_a_guess_pays_as_a_tie_unless_guesses_are_kept(
    completions: tuple[str, ...],
    method: str,
    rewards: tuple[float, ...],
    decided: int,
    ties: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    options: dict[str, Any] = {"tools": True, "undecided": "tie", "backend_options": {"preload": []}}
    with (counting := Counting(measuring, **options)).judge:
        found = counting(*completions, method=method)
        assert found.rewards == pytest.approx(rewards)
        assert (found.decided, found.ties) == (decided, ties)
        line = "no program decided any comparison: guesses pay as ties"
        assert found.detail == ("" if decided else line)
        assert (line in caplog.text) is (decided == 0)
        # A verdict with its guess is another answer, not the one that is known.
        kept = counting(*completions, method=method, keep_guesses=True)
        assert (kept.decided, kept.ties, kept.detail, kept.cached) == (None, 0, "", 0)
        assert counting(*completions, method=method).cached == found.calls


@pytest.mark.parametrize("keep_guesses", [False, True])
def test_a_comparison_that_a_program_decided_is_not_left_open(keep_guesses: bool) -> None:
    """Confidence is evidence, without which every comparison would be open."""
    options: dict[str, Any] = {"tools": True, "backend_options": {"preload": []}}
    counting = Counting(measuring, abstain_below=1, confidence="evidence", **options)
    with counting.judge:
        found = counting("x", "xx", "uuu", method="round-robin", keep_guesses=keep_guesses)
    assert (found.no_verdict, found.decided) == (2, 1)
    assert found.rewards == (0.0, 1.0, None)


def test_the_guesses_of_a_judge_whose_guesses_are_no_ties_are_kept() -> None:
    with (counting := Counting(measuring, tools=True, backend_options={"preload": []})).judge:
        found = counting("u", "uu", "uuu", method="round-robin")
    assert (found.decided, found.ties) == (None, 0)


def test_guessed_scores_are_no_rewards() -> None:
    options: dict[str, Any] = {"format": "tir-pointwise", "undecided": "tie"}
    with Judge(generator=ScriptedGenerator(by_length), backend_options={"preload": []}, **options) as judge:
        found = judge.reward_group("p", ["x", "xxx", "xx"], GroupOptions(method="listwise"))
    assert (found.rewards, found.decided) == ((0.5, 0.5, 0.5), 0)
