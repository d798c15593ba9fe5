"""The rationale judge's prompts equal the paper's, and inserted texts stay on one line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tirjudge_environments import Message
from tirjudge_environments.formats.rationale import Rationale
from tirjudge_environments.rationales import FLAWS, Grounding, decomposition_ask, flaws_ask, matching_ask
from tirjudge_environments.templates import load_template

GOLDEN = Path(__file__).parents[1] / "golden"
PROMPTS = {6: "rationale-decomposition", 9: "rationale-matching", 13: "rationale"}


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


def test_the_same_question_has_the_same_key_and_another_one_another() -> None:
    keys = [
        ask.key
        for ask in (matching_ask(["a"], ["b"]), matching_ask(["a"], ["b"]), matching_ask(["b"], ["a"]))
    ]
    assert keys[0] == keys[1] != keys[2]
    assert matching_ask(["a"], ["b"]) == matching_ask(["a"], ["b"])


def test_a_decomposition_shows_history_and_query_separately() -> None:
    turns = [Message("user", "Hi"), Message("assistant", "Hello."), Message("user", "Who?")]
    text = decomposition_ask(turns, ["one", "{query}"], summary="1 is wrong", evaluation="dull").prompt
    shown = text.messages[0].content
    assert "<history>User: Hi\n\nAssistant: Hello.</history>\n<query>Who?</query>" in shown
    assert "<response 1>one</response 1>\n<response 2>{query}</response 2>" in shown
    assert "[Brief Evaluation Summary]1 is wrong\n[Evaluation Content]dull\n<INPUT END>" in shown
    single = decomposition_ask([Message("user", "Who?")], ["one", "two"], summary="", evaluation="")
    assert "<history></history>\n<query>Who?</query>" in single.prompt.messages[0].content
    with pytest.raises(ValueError, match="two responses"):
        decomposition_ask(turns, ["one"], summary="", evaluation="")


def test_every_label_is_explained_to_the_model_that_gives_it() -> None:
    text = flaws_ask([Message("user", "Q")], ["a", "b"], ["first", "second"]).prompt.messages[0].content
    assert "\nS1: first\nS2: second\n" in text
    for flaw, name in FLAWS.items():
        assert f"- {flaw}, {name}: " in text
    for kind in Grounding:
        assert f"- {kind.value}, " in text
