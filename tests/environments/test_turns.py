"""Conversations that are spread over columns, cells of tables, and responses without a prompt."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tirjudge_environments import JudgeTask, Message
from tirjudge_environments.tasks import Columns, RowError, read_task

FORMS = pytest.mark.parametrize(
    "form", [json.dumps, repr, lambda value: value], ids=["json", "python", "list"]
)
Form = Callable[[Any], Any]
USER, ASSISTANT = ({"role": role, "content": role[0]} for role in ("user", "assistant"))


def task(row: dict[str, Any], *columns: str) -> JudgeTask:
    return read_task(row, default_id="1", columns=Columns.parse(columns))


@FORMS
def test_a_single_turn_in_lists_is_a_text(form: Form) -> None:
    """The columns of Kaggle's LMSYS file, whose cells are JSON lists of turns."""
    read = task({"prompt": form(["why?"]), "response_a": form(["so"]), "response_b": form([None])})
    assert (read.prompt, read.candidates) == ((Message("user", "why?"),), ("so", ""))


@FORMS
def test_several_turns_in_lists_are_conversations(form: Form) -> None:
    read = task(
        {"prompt": form(["1?", "2?"]), "response_a": form(["1a", "2a"]), "response_b": form(["1b", "2b"])}
    )
    assert read.prompt == (Message("user", "1?"),)
    assert read.candidates == tuple(
        (Message("assistant", f"1{one}"), Message("user", "2?"), Message("assistant", f"2{one}"))
        for one in "ab"
    )


def test_lists_that_are_no_turns_stay_texts() -> None:
    """A list that only the response has is its text, whatever it holds."""
    for response in ('["x"]', '["x", "y"]', json.dumps([USER, ASSISTANT]), "[1]"):
        assert task({"prompt": "Write a list.", "response": response}).candidates == (response,)
    assert task({"prompt": '["p", "q"]', "response": '["x"]'}).candidates == ('["x"]',)
    assert task({"prompt": '["p"]', "responses": '["x", "y"]'}).candidates == ("x", "y")


@FORMS
def test_a_chat_in_a_cell(form: Form) -> None:
    read = task({"prompt": form([USER]), "response_a": "x", "response_b": form([ASSISTANT])})
    assert read.prompt == (Message("user", "u"),)
    other = form([ASSISTANT])
    # One response that is no chat makes the others texts, unless the row holds real lists.
    assert read.candidates == ("x", "a" if isinstance(other, list) else other)
    both = task({"prompt": form([USER]), "response_a": form([ASSISTANT]), "response_b": form([ASSISTANT])})
    assert both.candidates == ("a", "a")


@FORMS
def test_the_prompt_is_what_all_conversations_begin_with(form: Form) -> None:
    """Preference data without a prompt: TRL's `chosen` and `rejected`, and the arena's conversations."""
    second = [{"role": "user", "content": "more?"}, {"role": "assistant", "content": "no"}]
    read = task({"chosen": form([USER, ASSISTANT]), "rejected": form([USER, second[1]])})
    assert (read.prompt, read.candidates, read.label) == ((Message("user", "u"),), ("a", "no"), 0)
    arena = task(
        {"conversation_a": form([USER, ASSISTANT, *second]), "conversation_b": form([USER, second[1]])},
        "response_a=conversation_a",
        "response_b=conversation_b",
    )
    assert arena.prompt == (Message("user", "u"),)
    assert arena.candidates[1] == "no"
    assert [message.content for message in arena.candidates[0]] == ["a", "more?", "no"]  # type: ignore[union-attr]
    alone = task({"messages": form([USER, ASSISTANT, *second])}, "response=messages")
    assert ([one.content for one in alone.prompt], alone.candidates) == (["u", "a", "more?"], ("no",))
    with pytest.raises(RowError, match="no prompt"):
        task({"chosen": form([ASSISTANT]), "rejected": form([ASSISTANT])})


def test_chats_with_other_names_of_roles_and_fields() -> None:
    """ShareGPT's `from` and `value`, OpenAssistant's `prompter`, Gemini's `model`."""
    share = [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "ho"}]
    assert task({"conversations": share}, "response=conversations").candidates == ("ho",)
    prompt = [{"role": "prompter", "content": "1"}, {"role": "model", "content": "2"},
              {"role": "Human", "content": "3"}]  # fmt: skip
    assert [one.role for one in task({"prompt": prompt, "response": "x"}).prompt] == [
        "user", "assistant", "user",
    ]  # fmt: skip
    assert task({"prompt": "p", "chosen": ASSISTANT, "rejected": ASSISTANT}).candidates == ("a", "a")


@pytest.mark.parametrize(
    ("cell", "responses"),
    [
        ("['x', 'it\\'s \"y\"']", ("x", 'it\'s "y"')),
        (str(np.array(["x", "y\nz"])), ("x", "y\nz")),
        (str(["x", None]), None),
        (str(np.array([str(n) for n in range(2000)])), None),
        ("['x', 'y'", None),
        ("[" * 100_000, None),
        ('{"gpt": "x", "claude": "y"}', ("x", "y")),
    ],
)
def test_lists_as_python_and_numpy_print_them(cell: str, responses: tuple[str, ...] | None) -> None:
    row = {"prompt": "p", "responses": cell}
    if responses is None:
        with pytest.raises(RowError, match=r"^response"):
            task(row)
    else:
        assert task(row).candidates == responses


def test_an_object_of_responses_names_their_sources() -> None:
    read = task({"prompt": "p", "responses": {"gpt": "x", "claude": "y"}, "label": "claude"})
    assert (read.candidates, read.sources, read.label) == (("x", "y"), ("gpt", "claude"), 1)


def test_values_of_pandas_and_numpy() -> None:
    frame = pd.DataFrame(
        {
            "id": pd.array([1, 2], dtype="Int64"),
            "prompt": pd.array(["p", "q"], dtype="string"),
            "responses": [np.array(["x", "y"]), ("x", "y")],
            "label": pd.array([1, pd.NA], dtype="Int64"),
            "domain": [pd.NA, np.str_("math")],
            "gold_scores": [np.array([1, 2]), pd.NaT],
        }
    )
    read = [task(row) for row in frame.to_dict("records")]
    assert [(one.id, one.label, one.domain) for one in read] == [("1", 1, ""), ("2", None, "math")]
    assert read[0].gold == {"scores": (1.0, 2.0)}
    with pytest.raises(RowError, match="response B is missing, not a text"):
        task({"prompt": "p", "response_a": "x", "response_b": pd.NA})


def test_several_references_and_a_criterion_as_a_text() -> None:
    row = {"prompt": "p", "response": "x"}
    assert task(row | {"reference": ["1789", "in 1789"]}).reference == "1789\nin 1789"
    assert task(row | {"reference": '["1789", "in 1789"]'}).reference == "1789\nin 1789"
    assert task(row | {"reference": "[1, 2, 3]"}).reference == "[1, 2, 3]"
    assert task(row | {"reference": np.array([])}).reference == ""
    for criteria in ("It is polite.", ["It is polite."], "['It is polite.']", '"It is polite."',
                     {"text": "It is polite."}, '{"text": "It is polite."}'):  # fmt: skip
        assert [one.text for one in task(row | {"criteria": criteria}).criteria] == ["It is polite."]
    assert task(row | {"criteria": " "}).criteria == ()


def test_columns_are_found_whatever_their_capitals_and_spaces() -> None:
    row = {"ID ": "7", " Prompt": "p", "Response A": "x", "response-B": "y", "LABEL": "B"}
    read = task(row)
    assert (read.id, read.candidates, read.label) == ("7", ("x", "y"), 1)
    assert task({"User Question": "p", "response": "x"}, "prompt=user_question").prompt
    # Two columns that differ only so are not guessed between; the exact name is taken.
    assert task({"Prompt": "P", "prompt": "p", "response": "x"}).prompt[0].content == "p"
    with pytest.raises(RowError, match="no prompt"):
        task({"Prompt": "P", "PROMPT": "p", "response": "x"})
