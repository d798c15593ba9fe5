"""A user's file is split into rows to train on, to choose a step with and to measure; one line says how."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tirjudge import Judge
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge_environments import Context
from tirjudge_sandbox import open_sandbox
from tirjudge_training.data.base import DataConfig, EnvironmentConfig, prompt_seed
from tirjudge_training.data.own_rows import RowData
from tirjudge_training.rl.dynamic_sampling import FormattedTask

PAIRS = {
    "tir-pairwise": EnvironmentConfig(name="tir-pairwise", options={"prompts": "smol", "shown_chars": 64})
}
SINGLE = {**PAIRS, "tir-pointwise": EnvironmentConfig(name="tir-pointwise")}


def row(number: int, **more: Any) -> dict[str, Any]:
    pair = {"responses": [f"good {number}", f"bad {number}"], "label": "A"}
    return {"id": f"r{number}", "prompt": f"p{number}", **pair, **more}


def opened(path: Path, rows: Sequence[Any], judges: Any = PAIRS, **config: Any) -> RowData:
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return RowData(DataConfig(train=path, **config), judges)


def parts(data: RowData) -> list[list[FormattedTask]]:
    """Return the rows to train on, to choose the step with and to measure."""
    return [data.prompts(None, 0), data.validation(1000), data.heldout(1000, 0)]


def test_three_parts_share_no_prompt_and_are_counted(tmp_path: Path) -> None:
    rows = [row(n, prompt=f"p{n % 30}") for n in range(40)] + [row(40, label="tie")]
    data = opened(tmp_path / "rows.jsonl", rows, heldout=0.2, validation=0.1)
    prompts = [{prompt_seed(one.task) for one in part} for part in parts(data)]
    assert [len(part) for part in prompts] == [22, 2, 6]
    assert len(set().union(*prompts)) == 30
    train, chosen, measured = map(len, parts(data))
    assert train + chosen + measured == 40
    assert data.split == (
        f"40 rows of 30 prompts: {measured} rows of 6 prompts held out to measure the judge, "
        f"{chosen} rows of 2 prompts held back to choose the step, 1 tie left out"
    )


def test_a_judge_or_a_domain_that_is_not_there_is_named(tmp_path: Path) -> None:
    rows = [row(n, domain="math") for n in range(20)]
    data = opened(tmp_path / "rows.jsonl", rows, weights={"maths": 0, "math": 1})
    assert data.split.endswith(", data.weights names domains that no row has: maths")
    with pytest.raises(ValueError, match=r"^data.formats: no judge 'tir-pairwize'; there are tir-pairwise$"):
        opened(tmp_path / "rows.jsonl", rows, formats={"tir-pairwize": 0})
    for named in (["tir-pairwise"], {"name": "tir-pairwise"}):
        with pytest.raises(ValueError, match=r"rows.jsonl:1: no judge .*; there are tir-pairwise$"):
            opened(tmp_path / "rows.jsonl", [row(0, environment=named)])


def test_rows_on_one_prompt_are_split_by_row(tmp_path: Path) -> None:
    rows = [row(n, prompt="p") for n in range(20)]
    # The same two responses in the other order are the same question.
    rows += [{**row(n, prompt="p", label="B"), "id": f"x{n}"} for n in range(20)]
    for one in rows[20:]:
        one["responses"].reverse()
    data = opened(tmp_path / "rows.jsonl", rows, heldout=0.2, validation=0.1)
    pairs = [{frozenset(one.task.candidates) for one in part} for part in parts(data)]
    assert [len(part) for part in pairs] == [14, 2, 4]
    assert len(set().union(*pairs)) == 20
    assert data.split.startswith("40 rows with one prompt, split by row: 8 rows held out to measure")


def test_rows_that_share_a_prompt_with_the_held_out_file_are_counted(tmp_path: Path) -> None:
    other = tmp_path / "test.jsonl"
    other.write_text(json.dumps(row(7)) + "\n")
    data = opened(tmp_path / "rows.jsonl", [row(n) for n in range(20)], heldout=other)
    assert "1 row of 1 prompt left out that share a prompt with data.heldout" in data.split
    assert "r7" not in {one.task.id for one in data.prompts(None, 0)}


def test_too_few_rows_on_one_prompt_say_how_many_are_needed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 3 different rows on their one prompt are needed"):
        opened(tmp_path / "rows.jsonl", [row(0, prompt="p"), row(1, prompt="p")], heldout=0.2)


@pytest.mark.parametrize(
    ("bad", "line"),
    [
        ({"program": ["print(1)"]}, "program must be a text, a Python program"),
        ({"demonstration": '{"kept": [1, 0]}'}, 'demonstration must be an object, such as {"program"'),
        ({"demonstration": {"program": 1}}, "demonstration.program must be a text, a Python program"),
        ({"demonstration": {"first": 1}}, "demonstration.first must be a text, a Python program"),
        ({"demonstration": {"first": "x = 1"}}, "demonstration.first runs before a `program` or the call of"),
        ({"demonstration": {"kept": [1]}}, "kept must be one number for each of the 2 responses"),
        ({"demonstration": {"kept": [math.nan, 1]}}, "kept must be one number for each of the 2 responses"),
        ({"demonstration": {"kept": [1, 0], "of": "2"}}, "demonstration.of must be a number"),
        ({"families": 3}, "families must be a list of texts, or a text with commas"),
        ({"criteria": ["One.", "Two."]}, "2 criteria and one label: write a row for each criterion"),
        ({"responses": ["alone"], "label": 1}, "a labelled row has two responses or more"),
    ],
)
def test_a_row_that_cannot_be_learned_from_is_named(tmp_path: Path, bad: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match=f"rows.jsonl:6: .*{line}"):
        opened(tmp_path / "rows.jsonl", [*map(row, range(5)), row(5, **bad)], demonstrations="train")


def test_a_table_has_the_families_of_a_row_in_one_text(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    families = ["length", "length, case", "case", ""] * 4
    lines = [f'p{n},good,bad,A,"{value}"' for n, value in enumerate(families)]
    file.write_text("\n".join(["prompt,response_a,response_b,label,families", *lines]) + "\n")
    columns = {"responses": "response_a,response_b"}
    data = RowData(DataConfig(train=file, columns=columns, without_families=("case",)), PAIRS)
    left = [one.task for one in (*data.prompts(None, 0), *data.validation(100))]
    assert sorted({str(task.gold.get("families")) for task in left}) == ["None", "['length']"]
    assert "8 of other families left out" in data.split


def test_families_without_a_row_are_named_among_the_reasons(tmp_path: Path) -> None:
    rows = [row(n, families=["length"]) for n in range(20)]
    with pytest.raises(ValueError, match=r"no rows are left to train on; .* families, "):
        opened(tmp_path / "rows.jsonl", rows, families=("lenght",))


@pytest.mark.parametrize("own_file", [False, True])
def test_a_row_without_a_label_demonstrates_no_verdict(tmp_path: Path, own_file: bool) -> None:
    tie = row(40, label="tie", gold_scores=[5, 5], program="print(1)")
    rows = [*(row(n, program="print(1)") for n in range(5)), tie, *map(row, range(5, 40))]
    file = tmp_path / "rows.jsonl"
    opened(file, rows)
    other = tmp_path / "others.jsonl"
    shown = {"demonstrations": file if own_file else "train", "validation": 0.01}
    data = opened(other, [row(99), row(98)] if own_file else rows, **shown)
    found = {one.task.id for one in data.demonstrations(0)}
    assert "r1" in found
    assert "r40" not in found


def test_an_empty_cell_of_a_table_names_no_judge(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    lines = [f"p{n},good,bad,A,{'tir-pointwise' if n == 3 else ''}" for n in range(30)]
    file.write_text("\n".join(["prompt,response_a,response_b,label,environment", *lines]) + "\n")
    data = RowData(DataConfig(train=file, formats={"tir-pointwise": 0}), SINGLE)
    formats = [one.format for one in (*data.prompts(None, 0), *data.validation(100))]
    assert sorted(formats) == ["tir-pairwise"] * 29 + ["tir-pointwise"]


def test_training_on_a_criterion_shows_the_prompt_of_judging(tmp_path: Path) -> None:
    rows = [
        row(
            n,
            criteria=[{"text": f"It is rule {n}.", "polarity": ("positive", "negative")[n % 2]}],
            reference="the answer",
        )
        for n in range(9)
    ]
    data = opened(tmp_path / "rows.jsonl", rows)
    trained = {}
    for one in [*data.prompts(None, 0), *data.validation(9)]:
        judge = data.environments[one.format]
        (view,) = judge.views(one.task)
        trained[one.task.id] = judge.prompt(one.task, view).messages
    judged = set()

    def script(context: Context) -> str:
        judged.add(context.prompt.messages)
        return "<preference>A</preference>"

    sandbox = open_sandbox("local", capacity=1, preload=[])
    options = {"prompts": "smol", "shown_chars": 64, "name_variables": False}
    with Judge(generator=ScriptedGenerator(script), sandbox=sandbox, **options) as judging:
        assert len(judging.batch(rows).judgments) == 9
    assert len(judged) == 9
    assert judged == set(trained.values())


def test_a_file_of_its_own_chooses_the_step_and_its_prompts_are_never_trained_on(tmp_path: Path) -> None:
    for name, numbers in (("rows", range(10)), ("others", (3, 20, 21))):
        lines = (json.dumps(row(number)) + "\n" for number in numbers)
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    config = DataConfig(train=tmp_path / "rows.jsonl", validation=tmp_path / "others.jsonl")
    data = RowData(config, PAIRS)
    assert {one.task.id for one in data.validation(9)} == {"r3", "r20", "r21"}
    assert {one.task.id for one in data.prompts(None, 0)} == {f"r{number}" for number in range(10)} - {"r3"}
    assert data.split == (
        "10 rows of 10 prompts: 3 rows of 3 prompts to choose the step, "
        "1 row of 1 prompt left out that share a prompt with data.heldout or data.validation"
    )
