"""Rows with files in every stage of a recipe: learned from, sampled, measured, killed and resumed."""

from __future__ import annotations

import json
import tarfile
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from benchmarks import kill_cycles
from tests.training.conftest import VERDICTS, tiny_qwen, tokenizer_of_words
from tests.training.fitting import fit
from tests.training.forked import Forked, tirjudge
from tirjudge.storage.json_lines import read_lines
from tirjudge_environments import ChatEncoder
from tirjudge_environments.formats.tir_comparison import TirPairwise
from tirjudge_environments.tasks import read_task
from tirjudge_training.data.base import DataConfig, EnvironmentConfig
from tirjudge_training.data.own_rows import RowData
from tirjudge_training.model_folder import load_tokenizer

SOURCE = """
def text(folder, path):
    with open(f"{folder}/{path}") as file:
        return file.read()
wanted = text(prompt_files, "wanted.txt")
for name, folder in zip("AB", files):
    print(text(folder, "note.txt"))
    print(name, int(text(folder, "out/sum.txt") == wanted), "of 1")
"""
PROGRAM = f"```python{SOURCE}```\n"
NOTE = "a word from a file"
"""The output of the programs about every row's files; no model writes it."""
RECIPE = """
method = "iterative"
[environments.pairs]
name = "tir-pairwise"
options = { prompts = "mini" }
[iterate]
rounds = 1
"""
SETTINGS: dict[str, Any] = {
    "data.demonstrations": "train",
    "data.heldout": 0.2,
    "warmup.sft.batch": 4,
    "warmup.sft.micro_batch": 4,
    "warmup.sft.max_tokens": 4000,
    "warmup.sft.checkpoint_every": 1,
    "rl.steps": 2,
    "rl.groups": 2,
    "rl.samples": 4,
    "rl.micro_batch": 8,
    "rl.temperature": 0.3,
    "rl.max_tokens": 200,
    "rl.learning_rate": 1e-4,
    "rl.filter": "none",
    "rl.entropy_bonus": 0.1,
    "rl.replacement_rounds": 0,
    "rl.checkpoint_every": 1,
    "rl.generator": "transformers",
    "rejection.prompts": 8,
    "sft.batch": 4,
    "sft.micro_batch": 4,
    "sft.checkpoint_every": 1,
    "validation.n": 2,
    "heldout.n": 2,
    "heldout.max_tokens": 200,
}


def rows(folder: Path, count: int = 12) -> Path:
    """Write rows on one prompt text, each with files of its own in another form."""
    made = []
    for number in range(count):
        (folder / f"work-{number}" / "out").mkdir(parents=True)
        (folder / f"work-{number}" / "out" / "sum.txt").write_text(str(number))
        (folder / f"work-{number}" / "note.txt").write_text(NOTE)
        with tarfile.open(folder / f"work-{number}.tgz", "w:gz") as archive:
            archive.add(folder / f"work-{number}", ".")
        wrong = {"note.txt": {"text": NOTE}, "out/sum.txt": {"diff": "@@ -1,1 +1,1 @@\n-old\n+other\n"}}
        right = f"work-{number}{'.tgz' * (number % 3 == 0)}"
        made.append(
            {
                "id": f"r{number}",
                "prompt": "Add up.",
                "responses": ["done", "done"],
                "files": [wrong, right] if number % 2 else [right, wrong],
                "prompt_files": {"wanted.txt": {"text": str(number)}, "out/sum.txt": {"text": "old\n"}},
                "label": number % 2,
                "program": SOURCE,
            }
        )
    (folder / "rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in made))
    return folder / "rows.jsonl"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A tiny model that runs the program, and then guesses."""
    words = (PROGRAM, *VERDICTS)
    tokenizer = tokenizer_of_words(words)
    network, encoder = tiny_qwen(tokenizer, positions=4096), ChatEncoder(tokenizer)
    program, *verdicts = range(256, 256 + len(words))
    (tmp_path / "fit").mkdir()
    judge = TirPairwise(order="given", prompts="mini")
    end = tokenizer.eos_token_id
    # With several rows and outputs, and at the low temperature above, each completion runs the program once.
    dialogues = []
    for line, verdict in product(rows(tmp_path / "fit", 6).read_text().splitlines(), verdicts):
        task = read_task(json.loads(line), default_id="x", beside=tmp_path / "fit")
        start = encoder.prompt(judge.prompt(task, judge.views(task)[0]))
        printed = "".join(f"{NOTE}\n{name} {int(task.label == at)} of 1\n" for at, name in enumerate("AB"))
        output = encoder.text(f"```output\n{printed}```\n")
        dialogues.append((start, [program, *output, verdict, end]))
    fit(network, dialogues, tokenizer.pad_token_id)
    folder = tmp_path / "model"
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def start(folder: Path, log: Path) -> Forked:
    return tirjudge(*kill_cycles.words(folder), stderr=log)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_rows_with_files_train_the_same_model_after_kills(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "recipe.toml").write_text(RECIPE)
    (tmp_path / "data").mkdir()
    data = {"model.base": model, "data.train": rows(tmp_path / "data")}
    monkeypatch.setattr(kill_cycles, "SETTINGS", data | SETTINGS)
    monkeypatch.setattr(kill_cycles, "RECIPE", [str(tmp_path / "recipe.toml")])
    monkeypatch.setattr(kill_cycles, "start", start)
    whole, resumed, log = tmp_path / "whole", tmp_path / "resumed", tmp_path / "log"
    assert start(whole, tmp_path / "whole.log").wait() == 0, (tmp_path / "whole.log").read_text()
    order = kill_cycles.places(tmp_path / "whole.log")
    for place in ("warmup: ", "rl-0: step 1 of 2", "rejection-1: "):
        number = next(i for i, line in enumerate(order) if line.startswith(place))
        assert kill_cycles.killed(resumed, log, order, number, delay=0.0) is not None
    assert start(resumed, log).wait() == 0, log.read_text()
    assert kill_cycles.differences(whole, resumed) == []

    shown = list(read_lines(whole / "demonstrations" / "samples.jsonl"))
    assert len(shown) == 9
    assert all(row["kept"] for row in shown), "every demonstrated program found its row's files"
    tokenizer = load_tokenizer(whole / "warmup" / "model")
    for sample in (one for row in shown for one in row["kept"]):
        check_mask(tokenizer, sample["ids"], [label != -100 for label in sample["labels"]])
    shards = sorted(whole.glob("rl-*/rollouts/*.parquet"))
    rollouts = [row for shard in shards for row in pq.read_table(shard).to_pylist()]
    assert len(rollouts) == 2 * 2 * 2 * 4, "stages, steps, groups and samples"
    for row in rollouts:
        assert row["calls"] == 1
        check_mask(tokenizer, row["completion_ids"], row["mask"])
    for path in whole.glob("heldout-*/answers.jsonl"):
        assert [(one["ran"], one["errors"]) for one in read_lines(path)] == [(1, 0)] * 2


def check_mask(tokenizer: Any, ids: list[int], trained: list[Any]) -> None:
    """Assert that the program and the verdict are trained on, and nothing that the sandbox wrote."""
    own = tokenizer.decode([id for id, is_trained in zip(ids, trained, strict=True) if is_trained])
    others = tokenizer.decode([id for id, is_trained in zip(ids, trained, strict=True) if not is_trained])
    assert "out/sum.txt" in own
    assert "<preference>" in own
    assert NOTE not in own
    _, _, output = others.partition("```output\n")
    assert output.count(NOTE) == output.count(" of 1\n") == 2


def test_a_prompt_is_its_text_and_its_files(tmp_path: Path) -> None:
    """Rows on one text with other files are on sides of their own; with equal files they share a side."""
    path = rows(tmp_path)
    given = [json.loads(line) for line in path.read_text().splitlines()]
    copies = [one | {"id": f"{one['id']}-again", "responses": ["x", "y"]} for one in given]
    path.write_text("".join(json.dumps(one) + "\n" for one in [*given, *copies]))
    judges = {"pairs": EnvironmentConfig(name="tir-pairwise")}
    data = RowData(DataConfig(train=path, validation=0.25), judges)
    assert data.split.startswith("24 rows of 12 prompts: 6 rows of 3 prompts held back")
    chosen = {one.task.id for one in data.validation(100)}
    assert {f"{one}-again" for one in chosen if "again" not in one} | {
        one.removesuffix("-again") for one in chosen
    } == chosen


def test_rows_of_one_prompt_differ_by_their_files(tmp_path: Path) -> None:
    """The words of an agent are often the same: what it left behind is the response."""
    path = rows(tmp_path)
    one_prompt = [json.loads(line) | {"prompt_files": None} for line in path.read_text().splitlines()]
    for number, row in enumerate(one_prompt):
        row["files"] = [{"sum.txt": {"text": str(number)}}, {}]
    path.write_text("".join(json.dumps(one) + "\n" for one in one_prompt))
    data = RowData(DataConfig(train=path, validation=0.25), {"pairs": EnvironmentConfig(name="tir-pairwise")})
    assert data.split.startswith("12 rows with one prompt, split by row: 3 rows")
