"""RM-R1's reader: the authors' transcripts, the paper's answers, and any text in linear time."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.environments.counting import lines_run
from tirjudge_environments import Completion, Finish, JudgeTask, Malformed, Message, Verdict, View
from tirjudge_environments.formats.rm_r1 import RmR1
from tirjudge_environments.formats.rm_r1_rubrics import ChainOfRubrics

GOLDEN = Path(__file__).parents[1] / "golden"
DATA = Path(
    os.environ.get("TIRJUDGE_BENCHMARK_DATA", Path(__file__).parents[3] / ".." / "shared" / "benchmarks")
)
AB, BA = View("AB", (0, 1)), View("BA", (1, 0))
TASK = JudgeTask(id="t", prompt=(Message("user", "Q"),), candidates=("one", "two"), label=0)
EVAL = "<eval><quote_A>x</quote_A><summary_B>y</summary_B></eval>"
CHAT = "<type>Chat</type><rubric>Wit (100%)<justify>j</justify></rubric>"
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


@pytest.mark.parametrize("text", ["", "C", "A.", "A or B", "AB", A])
def test_one_letter_among_others_is_no_answer(text: str) -> None:
    assert read(text, "answer-only") == Malformed("neither A nor B, and nothing else")


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
        parsed={
            "type": "Reasoning",
            "solution": "4",
            "quotes": {"1": ["q", "r"]},
            "summaries": {"0": ["s"]},
        },
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
    path = DATA / "rm-r1" / "deepseek-distilled-qwen-32b" / f"{name}-transcripts.json"
    if not path.is_file():
        pytest.skip(f"no benchmark data at {path}; set TIRJUDGE_BENCHMARK_DATA")
    for row in json.loads(path.read_text()):
        chosen, rejected = row["text_chosen"][-1]["content"], row["text_rejected"][-1]["content"]
        task = JudgeTask(id="t", prompt=(Message("user", "Q"),), candidates=(chosen, rejected), label=0)
        view = BA if row["Is_Chosen_Answer_Shuffled_toPositionB"] else AB
        reading = RmR1(style="reasoning").read(task, view, Completion(text=row["answers"], finish=Finish.END))
        assert isinstance(reading, Verdict)
        assert int(reading.choice == task.label) == row["results"]


PIECES = st.sampled_from(
    [
        *("<answer>", "</answer>", "[[A]]", "[[B]]", A, B, "<think>", "</think>", "x", "\n", "40%"),
        *("<type>", "</type>", "Chat", "<rubric>", "</rubric>", "<justify>", "</justify>", "<solution>"),
        *("</solution>", "<eval>", "</eval>", "<quote_A>", "</quote_A>", "<summary_B>", "</summary_B>"),
    ]
)
STYLES = st.sampled_from(["instruct", "reasoning", "no-categories", "no-rubrics", "answer-only"])


@settings(max_examples=300, deadline=None, derandomize=True)
@given(text=st.one_of(st.text(), st.lists(PIECES, max_size=60).map("".join)), style=STYLES)
@example(text="\ud800<answer>[[A]]</answer>\x00", style="instruct")
def test_any_text_is_a_verdict_or_malformed_with_a_reason(text: str, style: str) -> None:
    reading = read(text, style)
    judge = RmR1(style=style)
    assert judge.well_formed(text) in (True, False)
    if isinstance(reading, Verdict):
        assert reading.choice in (0, 1)
        json.dumps(dict(reading.parsed), ensure_ascii=True)
        return
    assert reading.reason
    assert "\n" not in reading.reason
    assert not judge.well_formed(text)


HOSTILE = {
    "opened": "<answer>",
    "closed": "</quote_A>",
    "nested": "<rubric><justify><eval><quote_A>",
    "answers": A,
    "quoted answers": f"<quote_A>{A}</quote_A>",
    "rubrics": "<type>Chat</type><rubric>9%<justify>j</justify></rubric>",
    "percent": "7 %",
    "digits": "7",
    "spaces": " ",
    "brackets": "<",
}


@pytest.mark.parametrize("unit", HOSTILE.values(), ids=HOSTILE)
def test_the_work_grows_linearly_with_the_text(unit: str) -> None:
    """The work is counted in lines of Python; `test_conformance` covers a slow call of `re`."""

    def work(size: int) -> int:
        text = (unit * size)[: 8 * size]
        answer, whole = f"{text}{A}", f"{CHAT}{EVAL}{text}{A}"
        rubric = f"<rubric>{text}</rubric>"
        return lines_run(
            lambda: (read(answer), RmR1().well_formed(whole), ChainOfRubrics(rubric).parsed((0, 1)))
        )

    assert work(2000) <= 2.2 * work(1000) + 200
