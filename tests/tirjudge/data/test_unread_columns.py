"""Columns beside the prompt and the responses: system messages are shown, and what is not read is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.data.test_inspection import inspected, written
from tirjudge_environments import Message
from tirjudge_environments.messages import conversation_text
from tirjudge_environments.tasks import Columns, RowError, read_task

PAIR: dict[str, Any] = {"prompt": "Greet.", "responses": ["Hi.", "Ho."]}
SHOWN = (Message("system", "Be brief."), Message("user", "Greet."))


@pytest.mark.parametrize(
    ("further", "columns"),
    [
        ({"system": "Be brief."}, []),
        ({"system_prompt": "Be brief."}, []),
        ({"System Message": "Be brief."}, []),
        ({"rules": "Be brief."}, ["system=rules"]),
        ({"meta": {"system": "Be brief."}}, ["system=meta.system"]),
        ({"system": {"role": "system", "content": "Be brief."}}, []),
        ({"system": "Be brief.", "prompt": [{"role": "user", "content": "Greet."}]}, []),
        ({"system": "Be brief.", "prompt": [{"role": "system", "content": "Be brief."},
                                            {"role": "user", "content": "Greet."}]}, []),
    ],
)  # fmt: skip
def test_a_system_message_in_a_column_of_its_own_is_shown(
    further: dict[str, Any], columns: list[str], tmp_path: Path
) -> None:
    task = read_task({**PAIR, **further}, default_id="1", columns=Columns.parse(columns))
    assert task.prompt == SHOWN
    assert conversation_text(task.prompt) == "System: Be brief.\n\nUser: Greet."
    assert inspected(written(tmp_path, [{**PAIR, **further}]), *columns)[0] == []


@pytest.mark.parametrize("value", [None, "", " ", float("nan")])
def test_no_system_message_changes_no_prompt(value: Any) -> None:
    assert read_task({**PAIR, "system": value}, default_id="1").prompt == SHOWN[1:]
    left_out = Columns.parse(["system="])
    assert read_task({**PAIR, "system": "Be brief."}, default_id="1", columns=left_out).prompt == SHOWN[1:]
    with pytest.raises(RowError, match=r"no column 'rules' \(named as system\)"):
        read_task(PAIR, default_id="1", columns=Columns.parse(["system=rules"]))


@pytest.mark.parametrize(
    ("rows", "columns", "note"),
    [
        ([PAIR | {"model": "m"}, PAIR | {"seed": 1}], [],
         "model, seed; add --column PART=COLUMN to use them"),
        ([PAIR | {"ground_truth": "Hi.", "rubric": "It is brief."}], [],
         "ground_truth, rubric; add --column reference=ground_truth --column "
         "criteria=rubric to use them"),
        ([{"q": "Greet.", "a": "Hi.", "b": "Ho.", "c": "x"}], ["prompt=q", "responses=a,b"], "c; add"),
        ([{"q": "Greet.", "i": "x", "a": {"t": "Hi."}, "chosen": "y"}], ["prompt=q+i", "response=a.t"],
         "chosen; add"),
        ([PAIR | {"system": "Be brief."}], ["system="], "system; add"),
        ([{"prompt": "p", "response_a": "x", "response_b": "y", "winner_a": 1, "winner_b": 0}], [], None),
        ([PAIR | {"id": "1", "label": "A", "tags": ["t"], "domain": "d", "reference": "r"}], [], None),
    ],
)  # fmt: skip
def test_columns_that_no_part_of_the_judge_reads_are_named_once(
    rows: list[Any], columns: list[str], note: str | None, tmp_path: Path
) -> None:
    notes, _ = inspected(written(tmp_path, rows), *columns)
    said = [one for one in notes if "the judge does not use" in one]
    assert len(said) == (note is not None)
    assert note is None or f"rows.jsonl: the judge does not use the columns {note}" in said[0]
