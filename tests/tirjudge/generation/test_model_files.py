"""Model folders: a LoRA adapter in place of a model, and the errors if it cannot be used."""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.tiny_models import bpe_tokenizer
from tirjudge.generation import GeneratorFailed
from tirjudge.generation.local.transformers import TransformersGenerator
from tirjudge.generation.model_files import load_encoder

LORA = {"peft_type": "LORA", "base_model_name_or_path": "runs/gone/model", "r": 4}


def adapter(folder: Path, config: dict[str, Any]) -> str:
    bpe_tokenizer("print").save_pretrained(folder)
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return str(folder)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (
            LORA,
            "is a LoRA adapter of the model 'runs/gone/model', but there is no such folder: "
            "start in the folder",
        ),
        (
            LORA | {"base_model_name_or_path": "./model"},
            "is a LoRA adapter of the model './model', but there is no",
        ),
        (
            {"peft_type": "IA3"},
            "adapter_config.json describes no plain LoRA adapter: peft_type: Input should be 'LORA'",
        ),
    ],
)
def test_an_adapter_without_its_model_is_one_line(config: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(GeneratorFailed, match=f"^[^\n]*{re.escape(told)}[^\n]*$"):
        TransformersGenerator.load(adapter(tmp_path, config))


@pytest.mark.parametrize(
    "hostile",
    [
        {"base_model_name_or_path": None},
        {"base_model_name_or_path": ["owner/model"]},
        {"base_model_name_or_path": "/" + "a" * 100_000},
        {"base_model_name_or_path": "owner/\x00"},
        {"peft_type": "XLORA", "adapters": {"1": "owner/other"}},
        {"peft_type": "PROMPT_TUNING", "num_virtual_tokens": 1_000_000_000},
        {"r": 0},
        {"r": True},
        {"r": "4"},
        {"r": math.inf},
        {"r": 1_000_000_000},
        {"rank_pattern": {"q_proj": 1_000_000_000}},
        {"rank_pattern": {"([a-z0-9_.]+)+!": 4}},
        {"alpha_pattern": {"([a-z0-9_.]+)+!": 4}},
        {"lora_alpha": math.nan},
        {"lora_alpha": "x"},
        {"modules_to_save": ["([a-z0-9_.]+)+!"]},
        {"layers_pattern": "([a-z0-9_.]+)+!"},
        {"layer_replication": [[0, 2]] * 100_000},
        {"megatron_config": {"a": 1}, "megatron_core": "antigravity"},
    ],
    ids=lambda hostile: str(hostile)[:40],
)
def test_a_config_that_takes_for_ever_or_all_memory_is_one_line(
    hostile: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(GeneratorFailed) as raised:
        TransformersGenerator.load(adapter(tmp_path, LORA | {"base_model_name_or_path": "o/model"} | hostile))
    assert len(str(raised.value)) < 1000
    assert str(raised.value).isprintable()


def test_an_adapter_ends_its_turns_as_its_base(tmp_path: Path) -> None:
    """The adapter has a tokenizer of its own, and its base a generation config."""
    base = tmp_path / "base"
    bpe_tokenizer("print").save_pretrained(base)
    (base / "generation_config.json").write_text('{"eos_token_id": [301, 7]}')
    folder = adapter(tmp_path / "adapter", LORA | {"base_model_name_or_path": str(base)})
    ends = load_encoder(folder).end_of_turn
    assert ends == load_encoder(str(base)).end_of_turn
    assert {301, 7} < ends
    shutil.rmtree(base)
    assert load_encoder(folder).end_of_turn == ends - {301, 7}


def test_the_error_names_the_missing_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(GeneratorFailed, match=r"needs peft: pip install 'tirjudge\[local\]'"):
        TransformersGenerator.load(adapter(tmp_path, LORA | {"base_model_name_or_path": "owner/model"}))
