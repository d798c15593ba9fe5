"""JudgeLRM's reward on hand-computed cases, and its reader on the published outputs of its 3B model."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from tests.tirjudge.benchmark_data import benchmark_file
from tirjudge_environments import (
    Budget,
    Episode,
    Finish,
    Malformed,
    Reward,
    StopReason,
    Unscored,
    Usage,
    Verdict,
    View,
)
from tirjudge_environments.formats.judgelrm import (
    CONTENT,
    JudgeLrmPair,
    JudgeLrmSingle,
    format_reward,
    judgelrm_parts,
)
from tirjudge_environments.formats.reward_terms import length_reward

AB, BA = View("AB", (0, 1)), View("BA", (1, 0))


def answered(first: object, second: object) -> str:
    return f"<think>why</think><answer>{first}</answer><answer>{second}</answer>"


@pytest.mark.parametrize(
    ("scores", "gold", "parts"),
    [  # format, relation, absolute, confidence
        ((8, 3), (8, 3), (1.0, 2.0, 1.0, 0.2)),
        ((7, 2), (8, 3), (1.0, 2.0, 0.6, 0.2)),  # both off by one: a distance of 2, the same margin
        ((8, 5), (8, 3), (1.0, 2.0, 0.6, 0.0)),  # near, but a smaller margin
        ((8, 6), (8, 3), (1.0, 2.0, 0.0, 0.0)),  # a distance of 3
        ((10, 1), (8, 3), (1.0, 2.0, 0.0, 0.2)),  # far, but more decided
        ((3, 8), (8, 3), (1.0, -1.5, 0.0, 0.0)),
        ((5, 6), (6, 5), (1.0, -1.5, 0.0, 0.0)),  # a distance of 2 with the wrong relation
        ((5, 5), (6, 5), (1.0, -1.5, 0.0, 0.0)),  # a tie is no win
        ((6, 5), (5, 5), (1.0, -1.5, 0.0, 0.0)),  # and a win is no tie
        ((5, 5), (5, 5), (1.0, 2.0, 1.0, 0.2)),
        ((9, 9), (5, 5), (1.0, 2.0, 0.0, 0.2)),
        ((6, 6), (5, 5), (1.0, 2.0, 0.6, 0.2)),
        ((1, 10), (1, 10), (1.0, 2.0, 1.0, 0.2)),  # both ends of the range
        ((0, 10), (1, 10), (-0.5, 2.0, 0.6, 0.2)),  # out of range: the content counts nevertheless
        ((11, 1), (1, 10), (-0.5, -1.5, 0.0, 0.0)),
        ((7.5, 3), (8, 3), (-0.5, 2.0, 0.6, 0.0)),  # not an integer, so none of {1, ..., 10}
        (("seven", 3), (8, 3), (-0.5, -1.5, 0.0, 0.0)),
        (("", 3), (8, 3), (-0.5, -1.5, 0.0, 0.0)),
        (("8/10", "3/10"), (8, 3), (-0.5, -1.5, 0.0, 0.0)),
    ],
)
def test_equations_1_to_5(scores, gold, parts) -> None:
    found = judgelrm_parts(answered(*scores), gold, terms="paper", rules="paper")
    names = ("format", "relation", "absolute", "confidence")
    assert tuple(found[name] for name in names) == parts
    assert JudgeLrmPair().equation(found) == pytest.approx(sum(parts))


@pytest.mark.parametrize(
    ("text", "form", "content"),
    [
        ("", -1.0, -1.5),
        ("no tags, 8 and 3", -1.0, -1.5),
        ("<think>never closed <answer>8</answer><answer>3</answer>", -1.0, -1.5),
        ("<think>a</think><answer>8</answer>", -1.0, -1.5),
        ("<think>a</think><answer>8</answer><answer>3</answer><answer>1</answer>", -1.0, -1.5),
        ("<think>a</think><answer>8 3</answer>", -1.0, -1.5),
        ("<answer>8</answer><answer>3</answer><think>a</think>", -1.0, -1.5),
        # The tags are out of order, but two scores can be read: Eq. 5 is a sum, so they count.
        ("<think>a<think>b</think><answer>8</answer><answer>3</answer>", -1.0, 3.2),
        ("<answer>8</answer><answer>3</answer>", -1.0, 3.2),
        ("<think>a</think> Thus: <answer> 8 </answer>\n<answer>3</answer><|im_end|>", 1.0, 3.2),
    ],
)
def test_a_malformed_answer_loses_the_form_and_the_unreadable_terms(
    text: str, form: float, content: float
) -> None:
    found = judgelrm_parts(text, (8, 3), terms="paper", rules="paper")
    assert format_reward(text) == form
    assert sum(found.values()) == pytest.approx(form + content)


@pytest.mark.parametrize(
    ("rules", "text", "gold", "total"),
    [
        ("zero", "", (8, 3), -1.0),
        ("zero", answered(0, 10), (1, 10), -0.5),
        ("zero", answered(8, 3), (8, 3), 4.2),
        ("zero", answered(5, 5), (6, 5), -0.5),
        ("released", "", (8, 3), -3.0),
        ("released", answered("7.5", 3), (8, 3), -2.5),
        ("released", answered(11, 3), (8, 3), -2.5),
        ("released", answered(0, 10), (1, 10), 3.8),  # 0 is in its range
        ("released", answered(6, 5), (5, 5), 3.8),  # a gold tie counts as a win of the first
        ("released", answered(5, 5), (6, 5), 3.6),  # and so does a predicted one
        ("released", answered(5, 6), (5, 5), -0.5),
    ],
)
def test_the_other_rules_for_a_format_failure(rules, text: str, gold, total: float) -> None:
    found = judgelrm_parts(text, gold, terms="paper", rules=rules)
    assert sum(found.values()) == pytest.approx(total)


@pytest.mark.parametrize(
    ("terms", "exact", "near", "decided", "wrong"),
    [
        ("paper", 4.2, 3.8, 3.2, -0.5),
        ("relation-only", 3.0, 3.0, 3.0, -0.5),  # Table 4
        ("modified", 3.5, 3.0, 2.5, -0.1),  # Table 10: relation 1.1 and -1.1, 1.0 and 0.5, 0.4
        ("changed", 5.8, 5.3, 3.8, -0.5),  # Table 11: relation 1.0 and -1.5, 2.0 and 1.5, 1.8
    ],
)
def test_the_sizes_of_the_terms(terms, exact: float, near: float, decided: float, wrong: float) -> None:
    """The other terms depend on the match of the relation, whatever its reward is."""
    said = [(8, 3), (7, 2), (10, 1), (3, 8)]
    totals = [
        sum(judgelrm_parts(answered(*pair), (8, 3), terms=terms, rules="paper").values()) for pair in said
    ]
    assert totals == pytest.approx([exact, near, decided, wrong])
    assert set(CONTENT) == {"paper", "relation-only", "modified", "changed"}


@pytest.mark.parametrize(
    ("tokens", "cut", "reward"),
    [(1, False, 0.0), (120, False, 0.0), (121, False, 0.2), (121, True, -1.0), (5, True, -1.0)],
)
async def test_equation_9(make_task, play, tokens: int, cut: bool, reward: float) -> None:
    said = await play(JudgeLrmPair(), make_task(), ["why"])
    stop = StopReason.TOKEN_BUDGET if cut else StopReason.VERDICT
    assert length_reward(replace(said, stop=stop, usage=Usage(9, tokens))) == reward


def total(environment: JudgeLrmPair, task, *trajectories) -> list[float | str]:
    [scores] = environment.score([Episode(task, 0, trajectories)], {})
    return [score.total if isinstance(score, Reward) else score.reason for score in scores]


async def test_gold_scores_follow_the_order_shown(make_task, play) -> None:
    judge, task = JudgeLrmPair(order="both"), make_task(label=None, gold={"scores": [8, 3]})
    first = await play(judge, task, ["why</think><answer>8</answer><answer>3</answer>"], view=0)
    second = await play(judge, task, ["why</think><answer>3</answer><answer>8</answer>"], view=1)
    assert total(judge, task, first, second) == pytest.approx([4.2, 4.2])
    assert first.verdict == Verdict(choice=0, scores={0: 8.0, 1: 3.0})
    assert second.verdict == Verdict(choice=0, scores={0: 8.0, 1: 3.0})
    [scores] = judge.score([Episode(task, 0, (first, replace(second, view=first.view)))], {})
    assert [(score.right, score.teaches) for score in scores] == [(True, True), (False, False)]


async def test_the_length_reward_counts_tokens_and_the_limit(make_task, play) -> None:
    judge, task = JudgeLrmPair(length=True, max_tokens=200), make_task(gold={"scores": [8, 3]})
    said = await play(judge, task, ["</think><answer>8</answer><answer>3</answer>"])
    counted = [replace(said, usage=Usage(9, tokens)) for tokens in (120, 121, 199, 200)]
    assert total(judge, task, *counted) == pytest.approx([4.2, 4.4, 4.4, 3.2])
    cut = await play(judge, task, ["why"], last=Finish.LENGTH, budget=Budget(tokens=1))
    assert cut.stop is StopReason.TOKEN_BUDGET
    assert total(judge, task, replace(cut, usage=Usage(9, 5))) == [-3.5]
    assert "number of tokens" in str(total(judge, task, said))


async def test_without_gold_scores_there_is_no_reward_but_that_of_the_relation(make_task, play) -> None:
    task = make_task(label=0)
    said = await play(JudgeLrmPair(), task, ["</think><answer>8</answer><answer>3</answer>"])
    assert total(JudgeLrmPair(), task, said) == ["the task has no gold scores, one for each response"]
    assert total(JudgeLrmPair(terms="relation-only"), task, said) == [3.0]
    [[unscored]] = JudgeLrmSingle().score([Episode(task, 0, (said,))], {})
    assert isinstance(unscored, Unscored)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (answered(8, 3), Verdict(choice=0, scores={0: 8, 1: 3})),
        (answered(3, "8.5"), Verdict(choice=1, scores={0: 3, 1: 8.5})),
        (answered(4, 4), Verdict(scores={0: 4, 1: 4}, tie=True)),
        (answered(-1, 0), Verdict(choice=1, scores={0: -1, 1: 0})),
        ("<think><answer>1</answer></think>" + answered(8, 3)[18:], Verdict(choice=0, scores={0: 8, 1: 3})),
        ("<think>", Malformed("the thinking was not closed")),
        ("<think></think>8 3", Malformed("0 <answer> elements behind the thinking, not 2")),
        (answered("eight", 3), Malformed("an <answer> that is no number")),
        (answered("٨", 3), Malformed("an <answer> that is no number")),
        (answered("1e9", 3), Malformed("an <answer> that is no number")),
        (answered("9" * 400, 3), Malformed("an <answer> that is no number")),
    ],
)
def test_pairs_are_answered_with_two_scores(text: str, verdict, make_task) -> None:
    assert JudgeLrmPair().verdict(make_task(), AB, text) == verdict


def test_a_single_response_has_one_score(make_task) -> None:
    judge, task, second = JudgeLrmSingle(), make_task(), View("1", (1,))
    assert judge.verdict(task, second, "<think>a</think><answer>7</answer>") == Verdict(scores={1: 7.0})
    assert isinstance(judge.verdict(task, second, answered(8, 3)), Malformed)
    assert [view.order for view in judge.views(task)] == [(0,), (1,)]


def test_published_transcripts_of_the_3b_model_give_the_published_verdicts(make_task) -> None:
    path = benchmark_file("judgelrm/results_judgelrm3b.json")
    judge, verdicts, differ = JudgeLrmPair(), Counter(), []
    for row in json.loads(path.read_text()):
        # The file keeps the text after the thinking. Its 0 is a tie, 1 the first response, 2 the second.
        task = make_task(row["response1"], row["response2"], id=str(row["idx"]))
        verdict = judge.verdict(task, AB, f"<think>...</think>{row['output']}")
        assert isinstance(verdict, Verdict)
        told = 0 if verdict.choice is None else verdict.choice + 1
        verdicts[told] += 1
        if told != row["result"]:
            differ.append(row["idx"])
    assert (sum(verdicts.values()), differ) == (999, [])
    assert min(verdicts.values()) > 10, "the file has ties and both wins"
