"""RM-R1's prompts equal the figures or the authors' code, in both orders and for conversations."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tirjudge_environments import JudgeTask, Message, View
from tirjudge_environments.formats.rm_r1 import RmR1
from tirjudge_environments.templates import load_template

GOLDEN = Path(__file__).parents[1] / "golden"
BA = View("BA", (1, 0))
TASK = JudgeTask(id="t", prompt=(Message("user", "Q"),), candidates=("one", "two"))
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


def test_every_prompt_file_belongs_to_a_style() -> None:
    wordings = [
        RmR1(style=style, variant=variant).wording
        for style in ("instruct", "reasoning", "no-categories", "no-rubrics", "answer-only")
        for variant in ("paper", "released")
    ]
    names = {name for one in wordings for name in (one.user, one.system) if name}
    assert len(names) == 8
    assert all(load_template(name).text for name in names)
