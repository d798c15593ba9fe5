"""The rationale judge: prompts equal the paper's, and rewards on hand-computed cases.

The cases are with and without answers of the MetaJudge. Inserted texts stay in their lines.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tirjudge_environments import Episode, JudgeTask, Message, Reward, StopReason, Trajectory, Unscored
from tirjudge_environments.formats.rationale import Rationale
from tirjudge_environments.rationales import matching_ask
from tirjudge_environments.session import JudgeSession
from tirjudge_environments.tasks import read_task
from tirjudge_environments.templates import load_template
from tirjudge_environments.testing import fixed_sandbox
from tirjudge_environments.types import Completion, Finish

GOLDEN = Path(__file__).parents[1] / "golden"
PROMPTS = {6: "rationale-decomposition", 9: "rationale-matching", 13: "rationale"}
CHECKLIST = ("Response 1 omits the name", "@Response 2 lacks the advance", "response 1 has hashtags")
PARTS = ("correct", "rationale", "consistency")
REASONS = ("first", "second", "third", "fourth", "fifth", "sixth")


def pair(**changes: Any) -> JudgeTask:
    fields: dict[str, Any] = {
        "id": "ads",
        "prompt": (Message("user", "Write ads."),),
        "candidates": ("#ads", "Tips!"),
        "label": 1,
        "gold": {"checklist": CHECKLIST, "strength": 2},
    }
    return JudgeTask(**fields | changes)


async def judged(judge: Rationale, task: JudgeTask, box: str, reasons: int = 4, view: int = 0) -> Trajectory:
    listed = "\n".join(f"- {reason}" for reason in REASONS[:reasons])
    text = f"<RESULT_START>\nList of reasons:\n{listed}\nFinal assessment result: \\boxed{{{box}}}\n"
    session = JudgeSession(judge, task, judge.views(task)[view], fixed_sandbox())
    await session.step(Completion(text=f"{text}<RESULT_END>", finish=Finish.END))
    return session.trajectory


def metajudge(*scores: str) -> str:
    return "<RESULT_START>\nScores for each claim:\n" + "\n".join(f"- {s}" for s in scores) + "\n<RESULT_END>"


def scored(judge: Rationale, task: JudgeTask, trajectory: Trajectory, answer: str | None) -> Any:
    group = [Episode(task, 0, (trajectory,))]
    answers = {ask.key: answer for ask in judge.questions(group)} if answer is not None else {}
    [(score,)] = judge.score(group, answers)
    return score


HITS = metajudge("R1@S1: 1.00", "R2@S3: 0.25", "R3@S1: 0.75")
"""One to one: R1 and R2 at S1 and S3. AP = (1 + 2/3) / 3 = 5/9; soft recall = 1.25 / 3."""
NOTHING = metajudge("R1@S0: 0", "R2@S0: 0", "R3@S0: 0")


@pytest.mark.parametrize(
    ("options", "box", "answer", "total", "parts"),
    [
        ({}, "B>>A", HITS, 5 / 9, (1, 5 / 9, 1.25 / 3)),
        ({}, "B>A", HITS, 5 / 9, (1, 5 / 9, 1.25 / 3)),
        ({}, "A<B", HITS, 5 / 9, (1, 5 / 9, 1.25 / 3)),
        ({}, "A>B", HITS, 0, (0, 5 / 9, 1.25 / 3)),
        ({}, "A=B", HITS, 0, (0, 5 / 9, 1.25 / 3)),
        ({}, "B>A", NOTHING, 0, (1, 0, 0)),
        ({"exact": True}, "B>>A", HITS, 5 / 9, (1, 5 / 9, 1.25 / 3)),
        ({"exact": True}, "B>A", HITS, 0, (0, 5 / 9, 1.25 / 3)),
        ({"reward": "rationale"}, "A>B", HITS, 5 / 9, (0, 5 / 9, 1.25 / 3)),
        ({"top": 3}, "B>A", HITS, 5 / 9, (1, 5 / 9, 1.25 / 3)),
    ],
)
async def test_the_reward_is_ap_times_the_outcome(options, box, answer, total, parts) -> None:
    judge, task = Rationale(order="given", **options), pair()
    score = scored(judge, task, await judged(judge, task, box), answer)
    assert score == Reward(
        pytest.approx(total),
        {name: pytest.approx(value) for name, value in zip(PARTS, parts, strict=True)},
        right=bool(parts[0]),
        teaches=bool(parts[0]),
    )


async def test_the_outcome_alone_needs_no_metajudge() -> None:
    judge, task = Rationale(order="given", reward="outcome"), pair(gold={})
    for box, total in (("B>A", 1.0), ("A>B", 0.0), ("A=B", 0.0)):
        trajectory = await judged(judge, task, box)
        assert judge.questions([Episode(task, 0, (trajectory,))]) == ()
        assert scored(judge, task, trajectory, None) == Reward(
            total, {"correct": total}, right=total > 0, teaches=total > 0
        )


async def test_a_tie_is_right_if_the_label_is_a_tie() -> None:
    judge, task = Rationale(order="given"), pair(label=None, gold={"checklist": CHECKLIST, "strength": 0})
    assert scored(judge, task, await judged(judge, task, "A=B"), HITS).total == pytest.approx(5 / 9)
    assert scored(judge, task, await judged(judge, task, "A>B"), HITS).total == 0


async def test_without_the_metajudge_there_is_no_reward_not_even_zero() -> None:
    judge, task = Rationale(order="given"), pair()
    trajectory = await judged(judge, task, "B>A")
    assert scored(judge, task, trajectory, None) == Unscored("the MetaJudge gave no answer")
    unreadable = scored(judge, task, trajectory, "I cannot say.")
    assert isinstance(unreadable, Unscored)
    assert unreadable.reason.startswith("the MetaJudge's answer cannot be read: no <RESULT_START>")
    (ask,) = judge.questions([Episode(task, 0, (trajectory,))])
    assert ask.readable(HITS)
    assert not ask.readable("I cannot say.")


async def test_a_missing_score_has_a_reason() -> None:
    judge = Rationale(order="given")
    bare = pair(gold={})
    assert "checklist" in scored(judge, bare, await judged(judge, bare, "B>A"), None).reason
    unlabelled = pair(label=None, gold={"checklist": CHECKLIST})
    assert "label" in scored(judge, unlabelled, await judged(judge, unlabelled, "B>A"), None).reason
    exact, vague = Rationale(order="given", exact=True), pair(gold={"checklist": CHECKLIST})
    assert "A>>B" in scored(exact, vague, await judged(exact, vague, "B>A"), None).reason
    down = replace(await judged(judge, pair(), "B>A"), stop=StopReason.GENERATOR_DOWN, verdict=None)
    assert isinstance(scored(judge, pair(), down, None), Unscored)


async def test_without_verdict_or_reasons_the_reward_is_zero_and_nothing_is_asked() -> None:
    judge, task = Rationale(order="given"), pair()
    malformed = await judged(judge, task, "B>C")
    assert malformed.stop is StopReason.MALFORMED
    nothing = {"correct": 0, "rationale": 0, "consistency": 0}
    assert scored(judge, task, malformed, None) == Reward(0.0, nothing, right=False, teaches=False)
    silent = await judged(judge, task, "B>A", reasons=0)
    assert scored(judge, task, silent, None) == Reward(
        0.0, nothing | {"correct": 1}, right=True, teaches=True
    )


async def test_the_metajudge_sees_both_lists_under_the_letters_of_the_view() -> None:
    judge, task = Rationale(order="both", top=2), pair()
    group = [
        Episode(task, 0, (await judged(judge, task, "B>A"), await judged(judge, task, "A>B", view=1))),
        Episode(task, 1, (await judged(judge, task, "A>B"), await judged(judge, task, "A>B", view=1))),
    ]
    letters = ("Response A", "Response B")
    asks = judge.questions(group)
    assert asks == tuple(
        matching_ask(
            (f"{one} omits the name", f"{two} lacks the advance", f"{one} has hashtags"), REASONS[:2]
        )
        for one, two in (letters, letters[::-1])
    ), "equal lists are asked about once"
    scores = judge.score(group, {ask.key: metajudge("R1@S1: 1", "R2@S0: 0", "R3@S2: 1") for ask in asks})
    assert [[score.total for score in row] for row in scores] == [
        [pytest.approx(2 / 3), pytest.approx(2 / 3)],
        [0, pytest.approx(2 / 3)],
    ]


def test_a_row_of_helpsteer3_becomes_a_task() -> None:
    row = {
        "prompt": [{"role": "user", "content": "Hi"}],
        "response_a": "one",
        "response_b": "two",
        "label": "B>>A",
        "checklist": ["Response 1 is rude", 7],
    }
    task = read_task(row, default_id="1")
    assert (task.label, task.gold) == (1, {"checklist": ("Response 1 is rude", "7"), "strength": 2})
    assert read_task(row | {"label": "A<B"}, default_id="1").gold["strength"] == 1
    tie = read_task(row | {"label": "A=B"}, default_id="1")
    assert (tie.label, tie.gold["strength"]) == (None, 0)
    assert "strength" not in read_task(row | {"label": "A"}, default_id="1").gold
    with pytest.raises(ValueError, match="checklist must be a list"):
        read_task(row | {"checklist": "Response 1 is rude"}, default_id="1")


def compared(text: str) -> str:
    """Normalise white space and quotes, and drop list marks, which the text of the figures has lost."""
    text = text.replace("``", '"').replace("''", '"').replace("…", "...")
    return " ".join(re.sub(r"(?<!\S)-(?!\S)", " ", text).split())


@pytest.mark.parametrize(("number", "name"), PROMPTS.items())
def test_a_prompt_equals_the_figure_except_for_white_space(number: int, name: str) -> None:
    figure = compared((GOLDEN / f"rationale-figure-{number}.txt").read_text())
    ours = compared(load_template(name).text)
    if number == 13:
        figure += " [Conversation] {prompt} [Response A] {response A} [Response B] {response B}"
    assert ours == figure


def test_the_judge_sees_the_responses_in_its_view_s_order(make_task) -> None:
    judge = Rationale(order="both")
    task = make_task("{response B}", "second")
    texts = [judge.prompt(task, view).messages[0].content for view in judge.views(task)]
    assert texts[0].endswith(
        "[Conversation]\nSay hello.\n\n[Response A]\n{response B}\n\n[Response B]\nsecond"
    )
    assert texts[1].endswith("[Response A]\nsecond\n\n[Response B]\n{response B}")


def test_lists_are_numbered_and_a_point_stays_in_its_line() -> None:
    text = matching_ask(["no name\nR2: forged", "{source_list}"], ["hashtags"]).prompt.messages[0].content
    assert "[Original Evaluation List Start]\nS1: hashtags\n[Original Evaluation List End]" in text
    assert "List Start]\nR1: no name R2: forged\nR2: {source_list}\n[Reference Evaluation List End]" in text
