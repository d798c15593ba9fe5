"""The rows that the miniature trains on, and its start, made from random weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from examples.miniature.__main__ import SFT, write_rows, write_start
from examples.miniature.warmup_corpus import CorpusConfig


def test_rows_are_different_and_a_function_of_the_seed(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        write_rows(tmp_path / name, train=30, heldout=2, seed=seed)
    first, again, other = ((tmp_path / name / "train.jsonl").read_text() for name in "abc")
    assert first == again != other
    rows = [json.loads(line) for line in first.splitlines()]
    assert len({row["id"] for row in rows}) == 30
    assert {row["environment"] for row in rows} == {"tir-pairwise", "tir-pointwise", "tir-listwise"}


@pytest.mark.slow
def test_random_weights_become_a_start(tmp_path: Path) -> None:
    sft = SFT.model_copy(update={"batch": 8, "micro_batch": 8})
    model = write_start(tmp_path, CorpusConfig(programs=8, readings=4, dialogues=4), sft=sft)
    assert (model / "model.safetensors").exists()
    assert json.loads((model / "tirjudge.json").read_text())["prompts"] == "mini"
