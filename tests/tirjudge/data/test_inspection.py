"""Inspection of rows before they are judged: each finding is reported once, with the option that helps."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tirjudge.data.inspection import InspectedRows
from tirjudge.data.rows import Row, RowFile
from tirjudge_environments.tasks import Columns, read_task

PAIR = {"prompt": "p", "responses": ["x", "y"]}


def inspected(
    path: Path, *columns: str, labels: Mapping[str, str] | None = None
) -> tuple[list[str], list[Row]]:
    """Return the notes on a file without its folder, and its rows."""
    rows = InspectedRows(RowFile(str(path), name=path.name), Columns.parse(columns), labels)
    notes = list(rows.inspect())
    return notes, [row for row in rows if isinstance(row, Row)]


def written(folder: Path, rows: list[Any]) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("row", "found", "options"),
    [
        ({"prompt": "q", "candidates": ["x", "y"]}, "prompt, candidates", "--column responses=candidates"),
        ({"text": "q", "one": "x"}, "text, one", "--column prompt=COLUMN --column responses=COLUMN,COLUMN"),
    ],
)  # fmt: skip
def test_unmapped_columns_are_named_with_the_options_that_map_them(
    tmp_path: Path, row: dict[str, Any], found: str, options: str
) -> None:
    path = written(tmp_path, [row, row])
    with pytest.raises(ValueError, match=r"^rows\.jsonl: no row has") as raised:
        inspected(path)
    assert found in str(raised.value)
    assert str(raised.value).endswith(f"map them with {options}")


@pytest.mark.parametrize(
    ("labels", "unread"), [((0, 1, 1), 0), ((0, 1, 2), 3), ((1, 1), 0), (("A", 2), 2), ((1, None), 0)]
)
def test_other_labels_are_left_alone(tmp_path: Path, labels: tuple[object, ...], unread: int) -> None:
    """A few labels that name no response are reported; `unread` is the line of the first."""
    notes = inspected(written(tmp_path, [PAIR | {"label": label} for label in labels]))[0]
    about = "inspected rows has a label that names no response; such rows fail (first: rows.jsonl:"
    assert [note.partition(" of ")[2].partition(" ")[2] for note in notes] == [
        f"{about}{unread})" for _ in range(bool(unread))
    ]


@pytest.mark.parametrize(
    ("labels", "option"),
    [
        ((-1, 0, 1), "-1=LETTER,0=LETTER,1=LETTER"),
        ((1.0, 0.0, 0.5, 1.0), "1.0=LETTER,0.0=LETTER,0.5=LETTER"),
        ((1.0, 1.0, 1.0, 2.0, 1.5), "1.0=LETTER,2.0=LETTER,1.5=LETTER"),
        ((0, 1, 2) * 3, "0=LETTER,1=LETTER,2=LETTER"),
    ],
)
def test_numbers_of_which_some_are_no_index_are_refused(
    tmp_path: Path, labels: tuple[object, ...], option: str
) -> None:
    """The others would be read as indices: 0 as A, which is a tie or a defeat of A in these files."""
    path = written(tmp_path, [PAIR | {"label": label} for label in labels])
    with pytest.raises(ValueError, match=r"some are no index of a response") as raised:
        inspected(path)
    assert f"--labels {option}, where" in str(raised.value)
    meanings = {word.partition("=")[0]: "A" for word in option.split(",")}
    assert inspected(path, labels=meanings)[0] == []
    few = written(tmp_path, [PAIR | {"label": label} for label in (*[0, 1] * 30, 2, 2)])
    assert len(inspected(few)[0]) == 1


def test_options_for_responses_in_objects_and_for_preferred_outputs(tmp_path: Path) -> None:
    """Each object of a list is a response, as in Nectar; OpenAI's files of preferences name two outputs."""
    message = [{"role": "assistant", "content": "4"}]
    rows = {
        "--column responses=answers.0.answer,answers.1.answer$": {
            "prompt": "p",
            "answers": [{"answer": "x", "rank": 1}, {"answer": "y", "rank": 2}],
        },
        "--column prompt=input --column chosen=preferred_output --column rejected=non_preferred_output$": {
            "input": {"messages": [{"role": "user", "content": "2+2?"}]},
            "preferred_output": message,
            "non_preferred_output": message,
        },
    }
    for options, row in rows.items():
        with pytest.raises(ValueError, match=options):
            inspected(written(tmp_path, [row]))


@pytest.mark.parametrize(
    ("values", "labels", "found"),
    [
        (
            ["gpt", "claude", "gpt", "tie"],
            None,
            "3 of 4 labels name no response; the labels are 'gpt' (2), 'claude' (1), 'tie' (1): say "
            "what each means with --labels gpt=LETTER,claude=LETTER,tie=tie, where LETTER is",
        ),
        (
            ["x", "y", 1],
            {"1": "A"},
            "2 of 3 labels name no response; the labels are 'x' (1), 'y' (1), '1' (1)",
        ),
        ([1, 2], {"1": "A", "2": "C"}, None),
        ([1, 2], {"1": "C", "2": "D"}, "2 of 2 labels name no response; the labels are '1' (1), '2' (1)"),
    ],
)
def test_unknown_labels_are_listed_with_the_option_that_maps_them(
    tmp_path: Path, values: list[object], labels: Mapping[str, str] | None, found: str | None
) -> None:
    path = written(tmp_path, [PAIR | {"label": value} for value in values])
    if found is None:
        assert len(inspected(path, labels=labels)[0]) == 1
        return
    with pytest.raises(ValueError, match=r"^rows\.jsonl: ") as raised:
        inspected(path, labels=labels)
    assert found in str(raised.value)


def test_unusual_responses_are_counted_once(tmp_path: Path) -> None:
    nan = float("nan")
    responses = [["x", "y"], ["x", nan], ["x", ""], [" ", "y"], ["x", "nan"], ["x", "x"], ["x", "x", "y"]]
    rows = [{"prompt": "p", "responses": each} for each in responses]
    notes, read = inspected(written(tmp_path, rows))
    assert notes == [
        "rows.jsonl: 1 of 7 inspected rows has a response that is NaN, a missing value; such rows fail "
        "(first: rows.jsonl:2)",
        "rows.jsonl: 2 of 7 inspected rows have an empty response (first: rows.jsonl:3)",
        "rows.jsonl: 1 of 7 inspected rows has a response that reads like a missing value (nan, None, null) "
        "(first: rows.jsonl:5)",
        "rows.jsonl: 2 of 7 inspected rows have identical responses, between which no judge can choose "
        "(first: rows.jsonl:6)",
    ]
    assert len(read) == 7


def test_nan_is_an_error_in_a_text_and_absent_elsewhere() -> None:
    nan = float("nan")
    for row in (PAIR | {"prompt": nan}, {"prompt": "p", "response_a": "x", "response_b": nan}):
        with pytest.raises(ValueError, match=r"^(the )?(prompt|response B) is NaN, a missing value$"):
            read_task(row, default_id="1")
    task = read_task(PAIR | {"label": nan, "id": nan, "domain": nan, "tags": nan}, default_id="1")
    assert (task.id, task.label, task.domain, task.tags) == ("1", None, "", ())


ROWS = [{"id": str(n), "prompt": "p\n\u2028", "responses": ["x", "y"]} for n in range(3)]


@pytest.mark.parametrize(
    ("name", "content", "note"),
    [
        ("r.json", json.dumps({"data": ROWS}), "the rows are the list of 3 under 'data'"),
        ("r.json", json.dumps({"version": 2, "rows": ROWS}, indent=2),
         "the rows are the list of 3 under 'rows'"),
        ("r.jsonl", "\n".join(json.dumps(row, indent=4) for row in ROWS),
         "pretty-printed JSON is read as 3 rows"),
        ("r.json", "\ufeff" + json.dumps(ROWS[0], indent=1), "pretty-printed JSON is read as 1 row"),
    ],
)  # fmt: skip
def test_json_in_other_shapes_is_read_and_reported(
    tmp_path: Path, name: str, content: str, note: str
) -> None:
    path = tmp_path / name
    path.write_text(content)
    notes, rows = inspected(path)
    assert notes == [f"{name}: {note}; columns: id, prompt, responses"]
    assert [row.fields for row in rows] == ROWS[: len(rows)]
    assert len(rows) == (1 if "1 row" in note else 3)


def test_json_lines_that_begin_like_a_wrapped_list_stay_rows(tmp_path: Path) -> None:
    rows = [{"items": [{"a": 1}], "prompt": "p", "responses": ["x", "y"]} for _ in range(2)]
    notes, read = inspected(written(tmp_path, rows))
    (note,) = notes
    assert note.startswith("rows.jsonl: the judge does not use the columns items")
    assert [row.fields for row in read] == rows
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{\n"prompt": \n' + json.dumps(PAIR) + "\n")
    assert [row.fields for row in RowFile(str(broken)) if isinstance(row, Row)] == [PAIR]


def test_a_pipe_is_inspected_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    rows_of_pipe = [PAIR | {"label": 1}, {"prompt": "p", "responses": ["x", ""], "label": 2}]
    text = "".join(json.dumps(row) + "\n" for row in rows_of_pipe)
    writer = threading.Thread(target=path.write_text, args=(text,))
    writer.start()
    rows = InspectedRows(RowFile(str(path), name="pipe"), Columns(), None, empty_loses=True)
    assert (list(rows.inspect()), rows.count()) == ([], None)
    assert len(list(rows)) == 2
    writer.join()
    fault, note = rows.left()
    assert fault.endswith("give --labels 1=A,2=B")
    lost = "an empty response, which loses (--judge-empty judges it)"
    assert note == f"pipe: 1 of 2 inspected rows has {lost} (first: pipe:2)"
