"""The demonstration model: its size, its tokenizer and its folder."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from examples.miniature.constraints import HELD_OUT, TRAIN
from examples.miniature.model import END, PAD, START, ShapeConfig, build_model, save
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


def test_digits_are_single_tokens_and_text_round_trips(built: tuple[Any, Any]) -> None:
    encoder = ChatEncoder(built[1])
    assert [
        text for text in built[1].get_vocab() if re.search("[0-9]{2}|[0-9][^0-9]|[^0-9][0-9]", text)
    ] == []
    assert len(encoder.text("2048")) == 4
    for text in ("a <b> `c`\n\n\td 'é' 😀 ", "```python\nprint(1)\n```\n", "<|im_end|>"):
        assert encoder.decode(encoder.text(text)) == text


def test_only_chat_markers_are_special_and_one_ends_the_turn(built: tuple[Any, Any]) -> None:
    _, tokenizer = built
    added = {token.content for token in tokenizer.added_tokens_decoder.values()}
    assert added == {START, END, PAD}
    assert tokenizer.eos_token == END
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    assert ChatEncoder(tokenizer).end_of_turn == {tokenizer.eos_token_id}


def test_merges_are_learned_from_training_words_only(built: tuple[Any, Any]) -> None:
    whole = {text.strip("Ġ").lower() for text in built[1].get_vocab()}
    assert whole & set(TRAIN.words)
    assert not whole & set(HELD_OUT.words)


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
