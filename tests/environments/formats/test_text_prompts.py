"""The prompts and the message roles of the text-only judges equal those of their papers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tirjudge_environments import Environment, JudgeTask, Message, Prompt
from tirjudge_environments.formats.j1 import J1PaS, J1PaV, J1PaVS, J1PoS
from tirjudge_environments.formats.judgelrm import JudgeLrmPair, JudgeLrmSingle

GOLDEN = Path(__file__).parents[1] / "golden"
PAIR = JudgeTask(
    id="pair", prompt=(Message("user", "{instruction}"),), candidates=("{response A}", "{response B}")
)
ONE = JudgeTask(id="one", prompt=PAIR.prompt, candidates=("{response}",))
ASKED = [
    ("j1-figure-7", J1PaV(), PAIR),
    ("j1-figure-8", J1PaV(seed_prompt="plan"), PAIR),
    ("j1-figure-9", J1PaS(), PAIR),
    ("j1-figure-10", J1PaVS(), PAIR),
    ("j1-figure-11", J1PoS(), ONE),
]
CHAT = [
    ("judgelrm-figure-2", JudgeLrmPair(), ["{question}", "{answer_1}", "{answer_2}"]),
    ("judgelrm-figure-4", JudgeLrmSingle(), ["{question}", "{answer}"]),
]


def figure(name: str) -> str:
    """Return the text of a figure with straight apostrophes."""
    return words((GOLDEN / f"{name}.txt").read_text().replace("’", "'"))


def words(text: str) -> str:
    return " ".join(text.split())


def first_prompt(environment: Environment, task: JudgeTask) -> Prompt:
    return environment.prompt(task, environment.views(task)[0])


@pytest.mark.parametrize(("name", "environment", "task"), ASKED)
def test_a_prompt_equals_the_papers_except_for_white_space(name: str, environment, task: JudgeTask) -> None:
    prompt = first_prompt(environment, task)
    assert [message.role for message in prompt.messages] == ["user"]
    assert words(prompt.messages[0].content) == figure(name)
    assert (prompt.prefill, prompt.stop, prompt.tools) == ("", (), ())


@pytest.mark.parametrize(("name", "environment", "slots"), CHAT)
def test_a_figure_with_chat_markup_is_rendered_with_it(name: str, environment, slots: list[str]) -> None:
    question, *responses = slots
    task = JudgeTask(id="task", prompt=(Message("user", question),), candidates=tuple(responses))
    prompt = first_prompt(environment, task)
    rendered = "".join(f"<|im_start|>{m.role}\n{m.content}\n<|im_end|>\n" for m in prompt.messages)
    assert words(f"{rendered}<|im_start|>assistant\n{prompt.prefill}\n") == figure(name)
