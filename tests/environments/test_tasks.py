"""Accepted rows, and the messages for rows that are not tasks."""

import datetime
import json
from decimal import Decimal
from typing import Any

import pytest

from tests.tirjudge.benchmark_data import benchmark_file
from tirjudge_environments import JudgeTask, Message
from tirjudge_environments.tasks import Columns, RowError, read_task


def task(row: dict[str, Any], *columns: str, labels: dict[str, str] | None = None) -> JudgeTask:
    return read_task(row, default_id="line-1", columns=Columns.parse(columns), labels=labels)


def test_a_full_row() -> None:
    row = {
        "id": 7,
        "prompt": "Say hi.",
        "responses": ["hi", "ho", "ha"],
        "label": "C",
        "domain": "chat",
        "tags": ["short", "easy"],
    }
    assert task(row) == JudgeTask(
        id="7",
        prompt=(Message("user", "Say hi."),),
        candidates=("hi", "ho", "ha"),
        label=2,
        domain="chat",
        tags=("short", "easy"),
    )


@pytest.mark.parametrize(
    ("row", "candidates", "label"),
    [
        ({"response": "a"}, ("a",), None),
        ({"responses": ["a"]}, ("a",), None),
        ({"responses": '["a", "b"]'}, ("a", "b"), None),
        ({"response_a": "a", "response_b": ""}, ("a", ""), None),
        ({"chosen": "a", "rejected": "b"}, ("a", "b"), 0),
        ({"chosen": "a", "rejected": ["b", "c"]}, ("a", "b", "c"), 0),
        ({"responses": [1, 2.5, True]}, ("1", "2.5", "True"), None),
        (
            {
                "chosen": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "a"}],
                "rejected": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "b"}],
            },
            ("a", "b"),
            0,
        ),
    ],
)
def test_every_shape_of_responses(
    row: dict[str, Any], candidates: tuple[str, ...], label: int | None
) -> None:
    read = task({"prompt": "p", **row})
    assert (read.candidates, read.label) == (candidates, label)


@pytest.mark.parametrize(
    ("label", "index"),
    [
        (0, 0), (1, 1), ("1", 1), (1.0, 1), ("1.0", 1), ("A", 0), ("b", 1), ("A>B", 0), ("B>A", 1),
        ("B>>A", 1), ("A<B", 1), ("tie", None), ("A=B", None), (None, None), ("", None),
    ],
)  # fmt: skip
def test_every_spelling_of_a_label(label: Any, index: int | None) -> None:
    assert task({"prompt": "p", "responses": ["x", "y"], "label": label}).label == index


def test_a_datasets_own_labels_are_translated() -> None:
    row = {"prompt": "p", "responses": ["x", "y"], "label": 2}
    labels = {"0": "tie", "1": "A", "2": "B"}
    assert task(row, labels=labels).label == 1
    assert task({**row, "label": 0}, labels=labels).label is None
    assert task({**row, "label": 2.0}, labels=labels).label == 1
    assert task({**row, "label": -1.0}, labels={"-1": "A"}).label == 0
    assert task({**row, "label": 2.0}, labels={"2": "A", "2.0": "B"}).label == 1
    with pytest.raises(RowError, match="label '3' is none of 0, 1, 2"):
        task({**row, "label": 3}, labels=labels)


def test_a_conversation_keeps_its_turns_and_the_text_of_its_parts() -> None:
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]},
    ]
    assert task({"prompt": turns, "response": "x"}).prompt == (
        Message("system", "Be brief."),
        Message("user", "Hello"),
    )


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"prompt": "p", "responses": "a"}, "responses must be a list"),
        ({"prompt": "p", "responses": ["a", None]}, "response B is missing, not a text"),
        ({"prompt": "p", "response_a": "a"}, "response B is missing"),
        ({"prompt": "p", "response": "a", "id": ["x"]}, "id is a list, not a text"),
        ({"prompt": "p", "response": "a", "id": datetime.date.min}, "id is of the type date, not a text"),
        (
            {"prompt": "p", "responses": ["a", Decimal("1.5")]},
            "response B is of the type Decimal, not a text",
        ),
        ({"prompt": b"p", "response": "a"}, "prompt is of the type bytes, not a text"),
        (
            {"prompt": "p", "response": "a", "tools": [{"name": "f", "parameters": "{}"}]},
            "tool 1, parameters: a text, not a JSON schema",
        ),
        ({"prompt": "p", "responses": ["a", "b"], "label": 2}, "label '2' is no index"),
        ({"prompt": "p", "responses": ["a", "b"], "label": "A>C"}, "label 'A>C' is no index"),
        ({"prompt": "p", "responses": ["a", "b"], "label": "A>A"}, "label 'A>A' is no index"),
        ({"prompt": "p", "responses": ["a", "b"], "label": "C=D"}, "label 'C=D' is no index"),
        ({"prompt": "p", "responses": ["a", "b"], "label": "A=A"}, "label 'A=A' is no index"),
    ],
)
def test_a_bad_row_is_reported_in_one_line(row: dict[str, Any], reason: str) -> None:
    with pytest.raises(RowError) as raised:
        task(row)
    assert str(raised.value).startswith(reason)
    assert "\n" not in str(raised.value)


def test_columns_are_named_reached_into_and_joined() -> None:
    row = {
        "instruction": "Rewrite.",
        "input": "Some text.",
        "empty": "",
        "meta": {"uid": "x1", "a.b": "dots"},
        "answers": [{"text": "one"}, {"text": "two"}],
        "odd,name+here": "three",
    }
    read = task(
        row,
        "id=meta.uid",
        "prompt=instruction+empty+input",
        "responses=answers.0.text,answers.-1.text",
        "domain=meta.uid",
    )
    assert read.id == "x1"
    assert read.prompt == (Message("user", "Rewrite.\n\nSome text."),)
    assert read.candidates == ("one", "two")
    assert task(row, "prompt=instruction", "response=odd,name+here").candidates == ("three",)


@pytest.mark.parametrize("column", ["label=lable", "domain=meta.topic", "response=answers.1", "id=answers.x"])
def test_a_named_column_must_be_there(column: str) -> None:
    row = {"prompt": "p", "response": "a", "meta": {}, "answers": ["a"]}
    with pytest.raises(RowError, match=f"no column '{column.split('=')[1]}'"):
        task(row, column)


@pytest.mark.parametrize("assignment", ["prompt", "prompt=", "promt=x", "=x"])
def test_an_invalid_mapping_is_refused(assignment: str) -> None:
    with pytest.raises(ValueError, match="write PART=COLUMN"):
        Columns.parse([assignment])


def rows_of(name: str) -> list[dict[str, Any]]:
    text = benchmark_file(name).read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = (
        json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.splitlines()]
    )
    return rows


def test_published_files_are_read_as_they_are() -> None:
    """The counts come from fields of the files: PandaLM's annotator 1, JudgeBench's labels."""
    ifbench = [
        task(row, "prompt=text_chosen.0.content", "chosen=text_chosen", "rejected=text_rejected")
        for row in rows_of("ifbench/agentrm-ifbench-444.json")
    ]
    assert len({one.id for one in ifbench}) == 444
    columns = ("id=idx", "prompt=instruction+input", "responses=response1,response2", "label=annotator1")
    labels = {"0": "tie", "1": "A", "2": "B"}
    pandalm = [task(row, *columns, labels=labels).label for row in rows_of("pandalm/testset-v1.json")]
    assert [pandalm.count(label) for label in (0, 1, None)] == [427, 475, 97]
    columns = ("id=pair_id", "prompt=question", "responses=response_A,response_B")
    judgebench = [task(row, *columns).label for row in rows_of("judgebench/pairs-gpt-4o.jsonl")]
    assert [judgebench.count(label) for label in (0, 1)] == [193, 157]


def test_lists_in_the_cells_of_a_table_are_json() -> None:
    row = {"prompt": "p", "responses": '["a", "b"]', "gold_scores": "[3, 8.5]", "checklist": '["B is kind"]'}
    task = read_task(row, default_id="x")
    assert (task.label, task.gold) == (1, {"scores": (3.0, 8.5), "checklist": ("B is kind",)})
    empty = read_task(row | {"gold_scores": "", "checklist": "", "label": "A"}, default_id="x")
    assert empty.gold == {}
    with pytest.raises(RowError, match="checklist must be a list of texts"):
        read_task(row | {"checklist": "B is kind"}, default_id="x")


def test_gold_scores_are_kept_and_give_a_missing_label() -> None:
    row = {"prompt": "p", "responses": ["a", "b"]}
    task = read_task(row | {"gold_scores": [3, 8.5]}, default_id="x")
    assert (task.gold["scores"], task.label) == ((3.0, 8.5), 1)
    assert read_task(row | {"gold_scores": [3, 8], "label": "A"}, default_id="x").label == 0
    tie = read_task(row | {"gold_scores": [5, 5]}, default_id="x")
    assert (tie.label, tie.gold["scores"]) == (None, (5.0, 5.0))
    named = read_task(row | {"score": [1, 2]}, default_id="x", columns=Columns(gold_scores="score"))
    assert named.gold["scores"] == (1.0, 2.0)
    assert "scores" not in read_task(row, default_id="x").gold


@pytest.mark.parametrize(
    "scores", [[1], [1, 2, 3], ["1", "2"], [True, False], [float("nan"), 1], [10**400, 1], 5, "8 3", {}]
)
def test_invalid_gold_scores_are_reported(scores: object) -> None:
    row = {"prompt": "p", "responses": ["a", "b"], "gold_scores": scores}
    with pytest.raises(RowError, match="gold_scores must be a list of 2 numbers, one for each response"):
        read_task(row, default_id="x")
