"""A row's own program becomes a dialogue of a warm-up, unless the sandbox shows that it does not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.training.stages.test_demonstrations import JUDGES, written
from tirjudge.storage.durable_files import RunFolder
from tirjudge.storage.json_lines import read_lines
from tirjudge_training.data.base import DataConfig
from tirjudge_training.data.own_rows import RowData
from tirjudge_training.model_folder import load_tokenizer
from tirjudge_training.recipe_file import BadRecipe
from tirjudge_training.rl.rollout_engine import RolloutConfig
from tirjudge_training.stages.base import Run
from tirjudge_training.stages.demonstrations import Demonstrations, DemonstrationsConfig

EACH = "for name, r in zip('ABC', responses):\n    print(name, "
COMMAS = f"{EACH}int(',' not in r), 'of 1')"
LENGTH = f"{EACH}len(r))"
PROGRAMS = {
    "of": COMMAS,
    "bare": LENGTH,
    "wrong": f"{EACH}int(',' in r), 'of 1')",
    "tie": f"{EACH}1)",
    "unread": "print('the first one')",
    "syntax": "print(",
    "error": "print(responses[7])",
    "crash": f"{COMMAS}\nimport os; os.abort()",
}
"""The first two fit their label."""


def hold(
    model: Path, folder: Path, programs: dict[str, str], domain: str = ""
) -> tuple[dict[str, Any], list[str]]:
    """Return the samples of the rows by their ids, and the lines of the stage."""
    pair = {"responses": ["long and good", "not, so"], "label": "A", "domain": domain}
    rows = [{"id": id, "prompt": id, **pair, "program": program} for id, program in programs.items()]
    rows += [{"id": f"r{n}", "prompt": f"r{n}", "responses": ["a", "b"], "label": "A"} for n in range(3)]
    folder.mkdir()
    (folder / "rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    config = DataConfig(train=folder / "rows.jsonl", demonstrations="train", formats={"tir-pointwise": 0})
    data = RowData(config, JUDGES)
    # All rows, also the rows that the split holds back.
    data._demonstrated = [one for one in (*data._train, *data._validation) if one.task.id in programs]
    said: list[str] = []
    stage = Demonstrations(
        name="demonstrations", config=DemonstrationsConfig(), rollout=RolloutConfig(max_tokens=2000)
    )
    with RunFolder(folder / "demonstrations") as own:
        stage.work(own, Run(folder, str(model), data, said.append))
    return {row["id"]: row for row in read_lines(folder / "demonstrations" / "samples.jsonl")}, said


def test_the_verdict_follows_the_counts_that_the_program_printed(roomy_model: Path, tmp_path: Path) -> None:
    samples, said = hold(roomy_model, tmp_path / "run", PROGRAMS)
    tokenizer = load_tokenizer(roomy_model)
    for id, count in (("of", "1 of 1"), ("bare", "13")):
        (sample,) = samples[id]["kept"]
        program, verdict = written(sample, tokenizer).split("|")
        assert program == f"```python\n{PROGRAMS[id]}\n```\n"
        letter = verdict[len("Response ")]
        assert verdict == f"Response {letter} keeps {count}.\n<preference>{letter}</preference>"
    assert {id for id, row in samples.items() if row["kept"]} == {"of", "bare"}
    line = said[-1]
    assert line.startswith("2 of 8 programs are learned; 3 failed (first: row ")
    for reason, row in (
        ("contradicted the label", "wrong"),
        ("did not tell the responses apart", "tie"),
        ("printed no count of each response", "unread"),
    ):
        assert f"; 1 {reason} (first: row {row})" in line
    assert "\n" not in line


def test_a_program_that_fails_is_named_with_its_error(roomy_model: Path, tmp_path: Path) -> None:
    _, said = hold(roomy_model, tmp_path / "run", {"ok": COMMAS, "error": "print(responses[7])"})
    assert said[-1] == (
        "1 of 2 programs are learned; 1 failed (first: row error: IndexError: list index out of range)"
    )


def test_a_right_program_in_a_domain_without_programs_is_not_called_wrong(
    roomy_model: Path, tmp_path: Path
) -> None:
    said = "0 of 1 programs are learned; 1 belong to a domain in which no program may run"
    with pytest.raises(BadRecipe, match=said):
        hold(roomy_model, tmp_path / "run", {"of": COMMAS}, "safety")


def test_the_training_rows_with_a_program_are_demonstrated_and_serve_rl_as_well(tmp_path: Path) -> None:
    rows = [
        {"id": f"r{n}", "prompt": f"p{n}", "responses": ["a", "b"], "label": "A"}
        | ({"program": COMMAS} if n % 3 == 0 else {})
        for n in range(30)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    data = RowData(DataConfig(train=tmp_path / "rows.jsonl", demonstrations="train", heldout=0.2), {})
    trained = {one.task.id for one in data.prompts(None, 0)}
    shown = {one.task.id for one in data.demonstrations(0)}
    assert shown == {f"r{n}" for n in range(0, 30, 3)} & trained
    assert 0 < len(shown) < 10, "held-out and validation rows are not shown"
