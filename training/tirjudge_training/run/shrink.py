"""A recipe shrunk until two CPU cores can run it, to try it out before it goes to a cluster."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tirjudge.storage.durable_files import write_atomically
from tirjudge_training.data.base import data_path
from tirjudge_training.recipe import Recipe
from tirjudge_training.run.model_size import config_of, model_errors

FOLDER = "shrunk"
"""The subfolder of the run folder with the model and the rows that are made for it."""
ROWS = 40
"""Generated rows per number of responses."""

LISTWISE = "tir-listwise"
"""The judge that takes more than two responses; rows for the others are pairs."""

SIZE = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 32768,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}


RL_ALONE = {"method": "rl", "method_options": None}
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] }}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SMALL_SFT = {"batch": 2, "micro_batch": 1, "epochs": 1}


@dataclass(frozen=True, slots=True)
class Architecture:
    """The properties of a model that its two-layer version keeps."""

    kind: str
    """The model_type of transformers."""
    tied: bool = False
    """True if the output layer shares its weights with the embedding."""


# The first prefix that matches wins, so that longer prefixes come before shorter ones.
KNOWN = {
    "smol": Architecture("llama", tied=True),
    "tirjudge-smol": Architecture("llama", tied=True),
    "Qwen/Qwen2.5-3B": Architecture("qwen2", tied=True),
    "Qwen/Qwen2.5-": Architecture("qwen2"),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-": Architecture("qwen2"),
    "Qwen/Qwen3-4B": Architecture("qwen3", tied=True),
    "Qwen/Qwen3-30B-A3B": Architecture("qwen3_moe"),
    "Qwen/Qwen3-": Architecture("qwen3"),
    "meta-llama/Llama-3": Architecture("llama"),
    "runs/rm-r1-instruct-": Architecture("qwen2"),
}
"""Architectures by the prefix of a model name, for the models of the papers and for those that other recipes
train first, so that neither a network connection nor such a run is needed."""


def shrunk(recipe: Recipe, folder: Path) -> Recipe:
    """Return the recipe with two generation batches of two groups of two, two layers and made-up rows.

    Architecture, judges, loss and sandbox stay the same; sampling does not use vLLM. Groups without a
    learning signal are trained on, since a model with random weights has no others. The method becomes RL
    alone, but for `answers`: such a model has no right dialogues to learn from. Rows of `data.train` are used
    if they exist. Raises BadRecipe for a model of unknown architecture.
    """
    # Inside the run folder, so that deleting the run deletes model and rows as well.
    made = folder / FOLDER
    changes: dict[str, Any] = {
        **({"answers": {"prompts": 4}} if recipe.method == "answers" else RL_ALONE),
        # Without kernels that only a GPU has.
        "model": {
            "base": str(_model(recipe, made / "model")),
            "liger": False,
            **({} if recipe.model.attn_implementation == "eager" else {"attn_implementation": "sdpa"}),
        },
        "rl": {
            "trainer": "trl",
            "steps": 2,
            "epochs": None,
            "groups": 2,
            "samples": 2,
            "optimizer_steps": 1,
            "micro_batch": 1,
            "max_tokens": 32,
            "generator": "transformers",
            "vllm": {},
            "server": None,
            "filter": "none",
            # For the same reason no row would pass a screening.
            "screen": None,
            "checkpoint_every": 1,
        },
        "sft": SMALL_SFT,
        # Every byte is a token here, so that dialogues are longer than the recipe's limit allows for.
        "warmup": {"sft": recipe.warmup.sft.model_dump() | SMALL_SFT | {"max_tokens": 8192}},
        "demonstrations": {"rows": 4},
        "validation": {"n": 1, "every": 1},
        "heldout": {"n": 1, "max_tokens": 32},
    }
    # Without a limit of prompts, for the same reason.
    changes["data"] = {"train": _rows(recipe, made / "rows.jsonl"), "max_prompt_tokens": None, "reserved": 0}
    if isinstance(recipe.data.validation, Path):
        changes["data"]["validation"] = 0.5
    shown = recipe.data.demonstrations
    if isinstance(shown, Path) and not data_path(shown).exists():
        changes["data"]["demonstrations"] = None
    # Validated again as a whole, so that a shrunk recipe obeys the same rules as any other.
    values = recipe.model_dump()
    return Recipe.model_validate(
        values
        | {key: {**values[key], **new} if isinstance(new, dict) else new for key, new in changes.items()}
    )


def _model(recipe: Recipe, folder: Path) -> Path:
    """Write a model with random weights, always the same, and a tokenizer of single bytes."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    architecture = _architecture(recipe.model.base)
    tokenizer = _tokenizer()
    config = AutoConfig.for_model(
        architecture.kind,
        **SIZE,
        **(EXPERTS if architecture.kind.endswith("_moe") else {}),
        vocab_size=len(tokenizer),
        tie_word_embeddings=architecture.tied,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    # The same weights every time, so that a shrunk run can be resumed.
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _tokenizer() -> Any:
    """Return a tokenizer of bytes, with the chat template and special tokens of Qwen."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {byte: number for number, byte in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def _architecture(base: str) -> Architecture:
    for start, architecture in KNOWN.items():
        if base.startswith(start):
            return architecture
    with model_errors(base):
        config = config_of(base).get_text_config()
    return Architecture(config.model_type, bool(config.tie_word_embeddings))


def _rows(recipe: Recipe, path: Path) -> Path:
    """Return the recipe's own rows if they exist, else a file of made-up rows for every kind of judge."""
    if data_path(recipe.data.train).exists():
        return recipe.data.train
    lists = any(judge.name == LISTWISE for judge in recipe.environments.values())
    counts = (2, 3) if lists else (2,)
    lines = (json.dumps(_row(n, count)) + "\n" for n in range(ROWS) for count in counts)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "".join(lines))
    return path


def _row(number: int, responses: int) -> dict[str, Any]:
    return {
        "prompt": f"How much is {number} and {responses}?",
        "responses": [str(number + responses + wrong) for wrong in range(responses)],
        "label": "A",
        "gold_scores": [9, *[3] * (responses - 1)],
        "checklist": ["The first response has the right sum"],
    }
