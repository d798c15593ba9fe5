"""The demonstration model: a Qwen3-shaped network of 0.92 M parameters with a tokenizer of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

from tirjudge.run_folder import write_atomically
from tirjudge_environments import open_environment
from tirjudge_environments.constraints import CHECKABLE, Shown
from tirjudge_training.synthesis import CANDIDATES, train_draw

ENVIRONMENT = {"prompts": "mini"}
"""Options of every format that the miniature is trained and used with."""

NOTE = (
    "demonstration model: 0.9 M parameters, trained on a CPU from random weights on generated data; it knows "
    "25 kinds of simple constraints and little else"
)
START, END, PAD = "<|im_start|>", "<|im_end|>", "<|pad|>"
VOCABULARY = 1024
PARAMETERS = 918_912

_WHOLE = r"```python|```output|```|</?preference>|</?score>"
"""Cut out before merging, so that each becomes one ordinary token."""
_PIECE = r"\d| ?[\p{L}_]+| ?[^\s\p{L}\d_]+|\n+|\s+"
"""What no merge reaches across: a digit, a name, a run of signs, line ends."""
_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] }}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_TEXTS = 3000
"""Training tasks that the tokenizer's merges are learned from."""


def build_model(seed: int) -> tuple[Any, Any]:
    """(model with random weights, tokenizer); both are the same for the same seed."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = build_tokenizer(seed)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        intermediate_size=384,
        max_position_embeddings=32768,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
    return model, tokenizer


def build_tokenizer(seed: int) -> Any:
    """Byte-level BPE of 1,024 entries with single digits, learned from training tasks and their programs."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WHOLE), "isolated"),
            pre_tokenizers.Split(Regex(f"{_WHOLE}|{_PIECE}"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[AddedToken(text, special=True, normalized=False) for text in (START, END, PAD)],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(_texts(seed), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=END,
        pad_token=PAD,
        chat_template=_TEMPLATE,
        model_max_length=32768,
        clean_up_tokenization_spaces=False,
    )


def save(folder: Path, model: Any, tokenizer: Any) -> None:
    """A model folder: safetensors, tokenizer, and the `tirjudge.json` that says what the model is."""
    model.config.use_cache = True  # trainers turn it off
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    write_atomically(folder / "tirjudge.json", json.dumps({**ENVIRONMENT, "note": NOTE}, indent=2) + "\n")


def open_environments() -> dict[str, Any]:
    """The three TIR formats by name, with the miniature's prompts."""
    return {format: open_environment(format, **ENVIRONMENT) for format in CANDIDATES}


def _texts(seed: int) -> Iterator[str]:
    """Prompts as the formats render them, and for each the pieces of a judge's answer."""
    environments = open_environments()
    for index in range(_TEXTS):
        draw = train_draw(index, seed)
        environment = environments[draw.format]
        view = environment.views(draw.task)[0]
        yield from (message.content for message in environment.prompt(draw.task, view).messages)
        yield from _answers(index)


def _answers(index: int) -> Iterable[str]:
    family = CHECKABLE[index % len(CHECKABLE)]
    programs = [f"```python\n{family.program(shown)}\n```\n" for shown in get_args(Shown)]
    answer = "<preference>A</preference>" if index % 2 else "<score>9</score>"
    return (*programs, "```output\nTrue\nFalse\n```\n", answer)
