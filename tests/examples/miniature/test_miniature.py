"""The demonstration model: its size, tokenizer and folder, the rows that it trains on, its start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from examples.miniature.__main__ import SFT, write_rows, write_start
from examples.miniature.model import ShapeConfig, build_model, save
from examples.miniature.warmup_corpus import CorpusConfig
from tirjudge_environments import ChatEncoder


@pytest.fixture(scope="module")
def built() -> tuple[Any, Any]:
    return build_model(0)


def test_the_model_has_the_documented_size(built: tuple[Any, Any]) -> None:
    model, tokenizer = built
    assert sum(weight.numel() for weight in model.parameters()) == ShapeConfig().parameters == 918_912
    assert len(tokenizer) == 1024
    assert model.config.max_position_embeddings == 32768
    assert model.config.tie_word_embeddings


@pytest.mark.parametrize(
    "text", ["```python", "```output", "```", "<preference>", "</preference>", "<score>", "</score>", "True"]
)
def test_each_marker_of_the_dialogue_is_one_ordinary_token(built: tuple[Any, Any], text: str) -> None:
    encoder = ChatEncoder(built[1])
    assert len(encoder.text(f"\n{text}\n")) == 3
    assert len(encoder.text(text)) == 1
    assert encoder.text(text)[0] not in built[1].added_tokens_decoder


@pytest.mark.slow
def test_the_same_seed_gives_the_same_model_folder(built: tuple[Any, Any], tmp_path: Path) -> None:
    model, tokenizer = built
    torch.rand(3)
    again, _ = build_model(0)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    save(tmp_path, model, tokenizer)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, use_safetensors=True)
    assert torch.equal(loaded.lm_head.weight, model.lm_head.weight)
    assert AutoTokenizer.from_pretrained(tmp_path).get_vocab() == tokenizer.get_vocab()
    card = json.loads((tmp_path / "tirjudge.json").read_text())
    assert card["prompts"] == "mini"
    assert card["note"].startswith("demonstration model")


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
