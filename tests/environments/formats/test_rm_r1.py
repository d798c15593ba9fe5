"""RM-R1: its prompts equal the figures or the authors' code; its reader, and its rewards on cases by hand.

The reader is tried on the authors' transcripts, the paper's answers, and any text. The rewards are Eq. 8 and
11, and the authors' code.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.tirjudge.benchmark_data import benchmark_file
from tirjudge_environments import (
    Completion,
    Episode,
    Finish,
    JudgeTask,
    Malformed,
    Message,
    StopReason,
    Unscored,
    Verdict,
    View,
)
from tirjudge_environments.formats.rm_r1 import RmR1

GOLDEN = Path(__file__).parents[1] / "golden"
AB, BA = View("AB", (0, 1)), View("BA", (1, 0))
TASK = JudgeTask(id="t", prompt=(Message("user", "Q"),), candidates=("one", "two"), label=0)
EVAL = "<eval><quote_A>x</quote_A><summary_B>y</summary_B></eval>"
RUBRIC = "<rubric>Wit (100%)<justify>j</justify></rubric>"
CHAT = f"<type>Chat</type>{RUBRIC}"
REASONING = "<type> Reasoning </type><solution>4</solution>"
A, B = "<answer>[[A]]</answer>", "<answer>[[B]]</answer>"


def read(text: str, style: str = "instruct", view: View = AB) -> Verdict | Malformed:
    reading = RmR1(style=style).read(TASK, view, Completion(text=text, finish=Finish.END))
    assert isinstance(reading, Verdict | Malformed)
    return reading


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        (A, 0),
        (f"thoughts</think>\n\n{B}", 1),
        (f"<think>{A}</think>{B}", 1),
        (f"{A} no, {B} after all", 1),
        ("<answer>\n[[A]]\n</answer>", 0),
        (f"<quote_A>{B}</quote_A> is what A says. {A}", 0),
        (f"{CHAT}{EVAL}{B}", 1),
    ],
)
def test_the_last_answer_after_the_thinking_counts(text: str, chosen: int) -> None:
    assert read(text).choice == chosen
    assert read(text, view=BA).choice == 1 - chosen


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no complete <answer>"),
        ("<answer>[[A]]", "no complete <answer>"),
        ("[[A]]", "no complete <answer>"),
        (f"<think>so {A}", "the thinking was not closed"),
        (f"<eval><quote_B>{A}</quote_B></eval>", "the last <answer> stands inside a quotation"),
        (f"<summary_A>They say {B}</summary_A>", "the last <answer> stands inside a quotation"),
        ("<answer>A</answer>", "the last <answer> is neither [[A]] nor [[B]]"),
        ("<answer>[[C]]</answer>", "the last <answer> is neither [[A]] nor [[B]]"),
        ("<answer>[[A]] or [[B]]</answer>", "the last <answer> is neither [[A]] nor [[B]]"),
        (f"{A}<answer>[[A/B]]</answer>", "the last <answer> is neither [[A]] nor [[B]]"),
    ],
)
def test_anything_but_an_answer_is_malformed(text: str, reason: str) -> None:
    assert read(text) == Malformed(reason)


@pytest.mark.parametrize(("text", "chosen"), [("A", 0), (' "B"\n', 1), ("<think>x</think>\nA", 0)])
def test_an_answer_may_be_the_letter_alone(text: str, chosen: int) -> None:
    assert read(text, "answer-only").choice == chosen


@pytest.mark.parametrize(
    ("number", "chosen", "weights", "quotes"),
    [(10, 0, [40, 30, 30], (1, 1)), (11, 1, [40, 30, 20, 10], (1, 1))],
)
def test_the_answers_in_the_paper_are_read(
    number: int, chosen: int, weights: list[float], quotes: tuple[int, int]
) -> None:
    text = (GOLDEN / f"rm-r1-table-{number}.txt").read_text()
    verdict = read(text)
    assert verdict.choice == chosen
    parsed = verdict.parsed
    assert parsed["type"] == "Chat"
    assert parsed["weights"] == weights
    assert tuple(len(parsed["quotes"][candidate]) for candidate in ("0", "1")) == quotes
    assert parsed["quotes"]["0"][0].startswith("1. Painful red or yellow skin lesions")
    assert "justify" not in parsed["rubric"]
    assert parsed["justify"].startswith(("The question specifically asks", "These criteria focus"))
    assert "solution" not in parsed
    assert RmR1(reward="cold-start").well_formed(text)


def test_quotations_belong_to_the_candidate_as_shown() -> None:
    text = f"{REASONING}<eval><quote_A> q </quote_A><quote_A>r</quote_A><summary_B>s</summary_B></eval>{A}"
    assert read(text, view=BA) == Verdict(
        choice=1,
        parsed={"type": "Reasoning", "solution": "4", "quotes": {"1": ["q", "r"]}, "summaries": {"0": ["s"]}},
    )


def test_weights_are_the_rubric_s_percentages() -> None:
    rubric = "<rubric>Wit (12.5 %), 7.25%, 1000%, %<justify>90% of jokes</justify> Tact: 30%</rubric>"
    assert read(rubric + A).parsed == {
        "rubric": "Wit (12.5 %), 7.25%, 1000%, %\nTact: 30%",
        "weights": [12.5, 7.25, 30.0],
        "justify": "90% of jokes",
    }


def test_thoughts_and_missing_parts_are_left_out() -> None:
    assert read(f"<think>{CHAT}</think>{A}").parsed == {}
    assert read(f"<rubric></rubric><type> </type><quote_A></quote_A>{A}").parsed == {}


@pytest.mark.parametrize("name", ["rmb-bon-harmlessness", "rmb-pairwise-helpfulness"])
def test_published_transcripts_are_read_as_their_authors_read_them(name: str) -> None:
    path = benchmark_file(f"rm-r1/deepseek-distilled-qwen-32b/{name}-transcripts.json")
    for row in json.loads(path.read_text()):
        chosen, rejected = row["text_chosen"][-1]["content"], row["text_rejected"][-1]["content"]
        task = JudgeTask(id="t", prompt=(Message("user", "Q"),), candidates=(chosen, rejected), label=0)
        view = BA if row["Is_Chosen_Answer_Shuffled_toPositionB"] else AB
        reading = RmR1(style="reasoning").read(task, view, Completion(text=row["answers"], finish=Finish.END))
        assert isinstance(reading, Verdict)
        assert int(reading.choice == task.label) == row["results"]


PAIR = (
    "[Client Question]\nQ\n\n[The Start of Chatbot A's Response]\ntwo\n[The End of Chatbot A's Response]\n\n"
    "[The Start of Chatbot B's Response]\none\n[The End of Chatbot B's Response]"
)


def golden(number: int) -> str:
    """Return a figure of the paper (arXiv 2505.02387) with straight quotes and without its title."""
    text = (GOLDEN / f"rm-r1-figure-{number}.txt").read_text().replace("’", "'")
    return flat(text[text.index("Please act") :])


def asked(style: str, variant: str = "released", task: JudgeTask = TASK) -> list[str]:
    return [message.content for message in RmR1(style=style, variant=variant).prompt(task, BA).messages]


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(("style", "number"), [("instruct", 3), ("no-categories", 6)])
def test_a_system_message_equals_the_figure_except_for_white_space(style: str, number: int) -> None:
    system, user = asked(style, "paper")
    assert flat(system) == golden(number)
    assert user == PAIR


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_the_prompt_without_rubrics_is_figure_7_with_its_bracket_closed(variant: str) -> None:
    system, user = asked("no-rubrics", variant)
    assert flat(system) == golden(7).replace("[[B]</answer>", "[[B]]</answer>")
    assert user == PAIR


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_a_reasoning_model_is_asked_by_figure_5_alone(variant: str) -> None:
    (user,) = asked("reasoning", variant)
    assert flat(user) == golden(5).replace("… [Pairwise Input Content] …", flat(PAIR))


def test_the_authors_message_is_figure_3_with_notes_and_an_outline() -> None:
    """The authors' code has `<type>Chat</type>` and `...` where the figure has spaces and an ellipsis."""
    system, user = asked("instruct", "released")
    figure = re.sub(r"<type> (\w+) </type>", r"<type>\1</type>", golden(3))
    head, notes, tail = system.partition("\n\nImportant Notes:\n")
    assert flat(head) == re.sub(" ?… ?", "...", figure)
    assert notes + tail == (
        "\n\nImportant Notes:\n"
        "- Be objective and base your evaluation only on the content of the responses.\n"
        "- Do not let response order, length, or Chatbot names affect your judgment.\n"
        "- Follow the response format strictly depending on the task type.\n\n"
        "Your output must follow one of the two formats below:\n\n"
        "For Reasoning:\n<type>Reasoning</type>\n\n"
        "<solution> your own solution for the problem </solution>\n\n"
        "<eval>\n  include direct comparisons supported by <quote_A>...</quote_A> or "
        "<summary_A>...</summary_A>, and <quote_B>...</quote_B>, or <summary_B>...</summary_B>\n</eval>\n\n"
        "<answer>[[A/B]]</answer>\n\n"
        "For Chat:\n<type>Chat</type>\n\n"
        "<rubric>\n  detailed rubric items\n  <justify> justification for the rubric </justify>\n"
        "</rubric>\n\n"
        "<eval>\n  include direct comparisons supported by <quote_A>...</quote_A> or "
        "<summary_A>...</summary_A>, and <quote_B>...</quote_B>, or <summary_B>...</summary_B> tags\n"
        "</eval>\n\n<answer>[[A/B]]</answer>"
    )
    assert user == PAIR


def test_a_longer_conversation_is_shown_once_for_each_chatbot() -> None:
    task = JudgeTask(
        id="t",
        prompt=(Message("user", "Hi"), Message("assistant", "Hello."), Message("user", "{prompt}?")),
        candidates=("one", "{response A}"),
    )
    told = (
        "[The Start of the Conversation between Chatbot A and the Client]\n"
        "User: Hi\nChatbot A: Hello.\nUser: {prompt}?\nChatbot A: {response A}\n"
        "[The End of the Conversation between Chatbot A and the Client]\n\n"
        "[The Start of the Conversation between Chatbot B and the Client]\n"
        "User: Hi\nChatbot B: Hello.\nUser: {prompt}?\nChatbot B: one\n"
        "[The End of the Conversation between Chatbot B and the Client]"
    )
    system, user = asked("instruct", task=task)
    assert user == told
    (reasoning,) = asked("reasoning", task=task)
    assert told in reasoning
    assert reasoning.startswith("Please act")
    assert system == asked("instruct")[0]


async def reward(play, text: str, *, view: int = 0, last: Finish = Finish.END, **options: object):
    judge = RmR1(order="both", **options)
    trajectory = await play(judge, TASK, [text], view=view, last=last)
    [(score,)] = judge.score([Episode(TASK, 0, (trajectory,))], {})
    return score


@pytest.mark.parametrize(
    ("text", "view", "total"),
    [
        (A, 0, 1.0),
        (B, 0, -1.0),
        (A, 1, -1.0),
        (B, 1, 1.0),
        ("", 0, -1.0),
        ("no answer", 0, -1.0),
        (f"<think>{A}", 0, -1.0),
        (f"{A} and then much more " + "x" * 80, 0, 1.0),
    ],
)
async def test_the_label_earns_one_and_anything_else_minus_one(
    play, text: str, view: int, total: float
) -> None:
    score = await reward(play, text, view=view)
    assert (score.total, score.parts) == (total, {"correct": float(total > 0)})
    assert score.right is score.teaches is (total > 0)


async def test_a_truncated_turn_is_wrong(play) -> None:
    assert (await reward(play, "x" * 40_000, last=Finish.LENGTH)).total == -1.0


@pytest.mark.parametrize(
    ("style", "text", "correct", "form"),
    [
        ("no-rubrics", A, 1, 1),
        ("no-rubrics", f"I compare. {A}\n", 1, 1),
        ("no-rubrics", B, 0, 1),
        ("no-rubrics", f"{A} It is A.", 1, 0),
        ("no-rubrics", f"{A}{A}", 1, 0),
        ("no-rubrics", "[[A]]", 0, 0),
        ("reasoning", f"<think>{B}</think>{A}", 1, 1),
        ("reasoning", f"<think>{A}", 0, 0),
        ("no-categories", f"{RUBRIC}{EVAL}{A}", 1, 1),
        ("no-categories", f"<rubric>r</rubric>{EVAL}{A}", 1, 0),
        ("no-categories", f"<rubric>r<justify></justify></rubric>{EVAL}{A}", 1, 0),
        ("no-categories", f"{EVAL}{RUBRIC}{A}", 1, 0),
        ("no-categories", f"{RUBRIC}<eval>better</eval>{A}", 1, 0),
        ("no-categories", f"{RUBRIC}{A}", 1, 0),
        ("instruct", f"{CHAT}{EVAL}{A}", 1, 1),
        ("instruct", f"{CHAT}{EVAL}{B}", 0, 1),
        ("instruct", f"{REASONING}{EVAL}{A}", 1, 1),
        ("instruct", f"<type>Reasoning</type>{RUBRIC}{EVAL}{A}", 1, 0),
        ("instruct", f"<type>Chat</type><solution>4</solution>{EVAL}{A}", 1, 0),
        ("instruct", f"<type>Other</type><solution>4</solution>{EVAL}{A}", 1, 0),
        ("instruct", f"{CHAT}<eval><quote_A>x</quote_A></eval>{A}", 1, 0),
        ("instruct", f"{CHAT}{A}{EVAL}", 1, 0),
        ("instruct", A, 1, 0),
        ("answer-only", "A", 1, 1),
        ("answer-only", "A!", 0, 0),
    ],
)
async def test_cold_start_adds_answer_and_format(
    play, style: str, text: str, correct: float, form: float
) -> None:
    score = await reward(play, text, style=style, reward="cold-start")
    assert score.total == correct + form
    assert score.parts == {"correct": correct, "format": form}


@pytest.mark.parametrize(
    ("text", "total"),
    [
        (A, 1.0),
        (B, -1.0),
        (f"{B}{A}", -1.0),
        (f"{A}" + "x" * (80 - len(A)), 1.0),
        (f"{A}" + "x" * (81 - len(A)), -1.0),
        (f"{B}" + "x" * 80 + A, 1.0),
        ("<answer> [[A]] </answer>", -1.0),
        (f"<think>{A}", 1.0),
    ],
)
async def test_the_authors_code_looks_at_the_last_eighty_characters(play, text: str, total: float) -> None:
    assert (await reward(play, text, reward="released")).total == total


async def test_a_failure_or_a_missing_label_gives_no_score(play) -> None:
    judge = RmR1(order="given")
    trajectory = await play(judge, TASK, [A])
    unlabelled = JudgeTask(id="t", prompt=TASK.prompt, candidates=TASK.candidates)
    assert judge.score([Episode(unlabelled, 0, (trajectory,))], {}) == [(Unscored("the task has no label"),)]
    assert trajectory.stop is StopReason.VERDICT
