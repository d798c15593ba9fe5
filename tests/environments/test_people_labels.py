"""Labels as people and annotation tools write them, for several responses and for a single one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tirjudge_environments.tasks import Columns, RowError, read_task

PAIR = {"prompt": "p", "response_a": "x", "response_b": "y"}
A, B, TIE, NONE = (0, None), (1, None), (None, 0), (None, None)
"""The best response and the strength of a preference."""


def label(row: dict[str, Any], *columns: str, labels: dict[str, str] | None = None) -> tuple[Any, Any]:
    task = read_task(row, default_id="1", columns=Columns.parse(columns), labels=labels)
    return task.label, task.gold.get("strength")


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("response_a", A), ("response_b", B), ("Response B", B), ("model_a", A), ("model_b", B),
        ("Assistant A", A), ("output B", B), ("left", A), ("right", B), ("First", A), ("second", B),
        ("tie (bothbad)", TIE), ("draw", TIE), ("both", TIE), ("Both Good", TIE), ("neither", TIE),
        ("NaN", NONE), ("N/A", NONE), ("<NA>", NONE), ("  ", NONE),
        ([1, 0], A), ([0, 1, 0], B), ([False, False, True], TIE), ([0, 0, 0], NONE), ([1, 1], TIE),
        ("[0, 1]", B), (["A"], A), (["B", "B"], B), ([], NONE),
        ({"selected": "left"}, A), ([{"value": "B", "user_id": 7, "status": "submitted"}], B),
        ({"choices": ["tie"]}, TIE), (np.int64(1), B), (np.str_("A>>B"), (0, 2)),
    ],
)  # fmt: skip
def test_every_name_of_a_preference(value: object, found: tuple[Any, Any]) -> None:
    assert label(PAIR | {"label": value}) == found


def test_a_label_that_names_a_column_is_that_column() -> None:
    row = {"prompt": "p", "gpt answer": "x", "claude": "y", "winner": "claude"}
    columns = ("response_a=gpt answer", "response_b=claude", "label=winner")
    assert label(row, *columns) == B
    assert label(row | {"winner": "GPT Answer"}, *columns) == A
    assert label(row, "responses=claude,gpt answer", "label=winner") == A
    # The columns' names come before letters and indices.
    crossed = {"prompt": "p", "B": "x", "A": "y", "label": "A"}
    assert label(crossed, "responses=B,A") == B
    named = PAIR | {"model_a": "gpt-5", "model_b": "llama", "label": "gpt-5"}
    assert label(named, "sources=model_a,model_b") == A
    assert label(named | {"label": "tie"}, "sources=model_a,model_b") == TIE


def test_one_hot_columns_are_a_label() -> None:
    kaggle = PAIR | {"winner_model_a": "0", "winner_model_b": "1", "winner_tie": "0"}
    assert label(kaggle) == B
    assert label(PAIR | {"winner_tie": 1, "winner_model_a": 0, "winner_model_b": 0}) == TIE
    assert label(kaggle, "label=winner_model_b,winner_model_a,winner_tie") == A
    assert label(kaggle | {"label": "A"}) == A
    # Two columns of texts that begin alike are no flags.
    assert label(PAIR | {"winner_model_a": "gpt", "winner_model_b": "llama"}) == NONE


def test_a_list_of_ratings_prefers_the_highest() -> None:
    task = read_task(PAIR | {"label": [2, 4.5]}, default_id="1")
    assert (task.label, task.gold) == (1, {"scores": (2.0, 4.5)})
    for value in (["A", "B"], [1, 2, 3], [0, 1, 1]):
        with pytest.raises(RowError, match=r"^label "):
            label(PAIR | {"label": value})


@pytest.mark.parametrize(
    "text",
    [
        "1,000",
        "12,500 points",
        "1,000/5,000",
        "3-4",
        "3 – 4",
        "3—4",
        "4:3",
        "2024-01-05",
        "4/5/2024",
        "1,234,567",
    ],
)
def test_a_number_that_may_be_another_one_is_no_rating(text: str) -> None:
    with pytest.raises(RowError, match="label") as refused:
        read_task({"prompt": "q", "response": "x", "label": text}, default_id="1")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "rating"),
    [
        *(("4,25", 4.25), ("0,125", 0.125), ("3.125", 3.125), ("1000", 1000.0), ("-2", -2.0)),
        *(("4/5", 4.0), ("4,5 / 5", 4.5), ("8 out of 10", 8.0), ("4 - 'very good'", 4.0)),
        *(("4: good, 3 flaws", 4.0), ("4 (3-5)", 4.0)),
    ],
)
def test_a_number_is_read_as_people_write_it(text: str, rating: float) -> None:
    task = read_task({"prompt": "q", "response": "x", "label": text}, default_id="1")
    assert task.gold["rating"] == rating


@pytest.mark.parametrize(
    ("value", "rating"),
    [
        (4, 4.0), ("4", 4.0), ("4.5", 4.5), ("4,5", 4.5), ("4/5", 4.0), ("4 - very good", 4.0), (0, 0.0),
        ("10", 10.0), ("-1", -1.0), ("pass", True), ("FAIL", False), ("Yes", True), ("no", False),
        ("true", True), (False, False), ("incorrect", False), ("👍", True), (np.True_, True), ("", None),
        (float("nan"), None), ("NA", None), (None, None), ({"rating": 3}, 3.0), ([True], True),
    ],
)  # fmt: skip
def test_a_single_response_has_a_rating_and_no_preference(value: object, rating: object) -> None:
    task = read_task({"prompt": "p", "response": "x", "label": value}, default_id="1")
    assert task.label is None
    assert task.gold.get("rating") == rating
    assert type(task.gold.get("rating")) is type(rating)


def test_other_labels_of_a_single_response_are_refused_and_can_be_translated() -> None:
    row = {"prompt": "p", "response": "x", "label": "so-so"}
    with pytest.raises(RowError, match="label 'so-so' of a single response is neither a number nor pass"):
        read_task(row, default_id="1")
    assert read_task(row, default_id="1", labels={"so-so": "3"}).gold == {"rating": 3.0}
    assert read_task(row, default_id="1", labels={"so-so": "fail"}).gold == {"rating": False}


def test_labels_leave_values_out_and_keep_ties() -> None:
    labels = {"1": "A", "2": "B", "-1": ""}
    assert [label(PAIR | {"label": one}, labels=labels) for one in (1, "2", -1, "tie", "draw", "NaN")] == [
        A, B, NONE, TIE, TIE, NONE,
    ]  # fmt: skip
    assert label(PAIR | {"label": "tie"}, labels={"tie": "B"}) == B
    assert label(PAIR | {"label": "TRUE"}, labels={"true": "A", "false": "B"}) == A
    with pytest.raises(RowError, match="label '3' is none of 1, 2, -1"):
        label(PAIR | {"label": 3}, labels=labels)
    # A translation that only leaves values out keeps all others.
    row = {"prompt": "p", "response": "x"}
    ratings = [read_task(row | {"label": one}, default_id="1", labels={"-1": ""}).gold for one in (-1, 4)]
    assert ratings == [{}, {"rating": 4.0}]
