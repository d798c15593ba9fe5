"""The prompts equal the paper's, and inserted texts are never parsed as slots."""

from __future__ import annotations

from pathlib import Path

import pytest

from tirjudge_environments import Message, TirPairwise
from tirjudge_environments.templates import Template, load_template

GOLDEN = Path(__file__).parent / "golden"
RESPONSES = {
    "pointwise": ["{response}"],
    "pairwise": ["{response A}", "{response B}"],
    "listwise": ["{response A}", "{response B}", "{response C}", "{response D}"],
}
FIGURES = {
    7: "pointwise",
    8: "pairwise",
    9: "listwise",
    10: "pointwise-no-tools",
    11: "pairwise-no-tools",
    12: "listwise-no-tools",
}


def figure(number: int) -> str:
    """Return a figure from the paper's text (arXiv 2510.23038), with straight quotes and real fences."""
    text = (GOLDEN / f"tir-figure-{number}.txt").read_text()
    return " ".join(text.replace("“‘", "```").replace("’", "'").split())


def filled(name: str) -> str:
    return " ".join(load_template(f"tir-{name}").fill("{prompt}", RESPONSES[name.split("-")[0]]).split())


@pytest.mark.parametrize(("number", "name"), FIGURES.items())
def test_a_prompt_equals_the_papers_except_for_white_space(number: int, name: str) -> None:
    assert filled(name) == figure(number)


@pytest.mark.parametrize("number", [7, 8, 9])
def test_native_calls_change_only_how_a_program_is_written(number: int) -> None:
    by_fence = (
        "by writing the code between the ```python and ``` tags following with ```output. "
        "Each program between ```python and ``` tags are independent program."
    )
    by_call = "by calling the tool run_python. Each call runs an independent program."
    assert by_fence in figure(number)
    assert filled(f"{FIGURES[number]}-calls") == figure(number).replace(by_fence, by_call)


def test_judged_texts_have_their_own_lines() -> None:
    text = load_template("tir-listwise").fill("P", ["one", "two", "three"])
    middle = (
        "\n\nInstruction:\nP\n\nResponse A:\none\n\nResponse B:\ntwo\n\nResponse C:\nthree\n\nGuidelines:\n"
    )
    assert middle in text


def test_slots_in_a_candidate_stay_text(make_task) -> None:
    candidates = ("{response B} {prompt} {0} {", "{each}{letter}{/each} }} %s \\1")
    task = make_task(*candidates, prompt=(Message("user", "{response A} {nothing}"),))
    environment = TirPairwise(order="given")
    text = environment.prompt(task, environment.views(task)[0]).messages[0].content
    assert f"Response A:\n{candidates[0]}\n\nResponse B:\n{candidates[1]}\n" in text
    assert "Instruction:\n{response A} {nothing}\n" in text


def test_a_template_may_loop_over_the_responses_more_than_once() -> None:
    template = Template("{each}{letter}, {/each}{prompt}: {each}{letter}={response};{/each}")
    assert template.fill("P", ["x", "{letter}"]) == "A, B, P: A=x;B={letter};"
