"""The miniature: a Qwen3 network, by default of 0.92 M parameters, and its tokenizer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from examples.miniature.constraints import CHECKABLE, Shown
from examples.miniature.synthesis import CANDIDATES, train_task
from tirjudge.storage.durable_files import write_atomically
from tirjudge_environments import open_environment

ENVIRONMENT = {"prompts": "mini"}
"""Options of the environments that the miniature is trained and used with."""

NOTE = (
    "demonstration model: {millions:.1f} M parameters, trained from random weights on generated data; it "
    "knows 25 kinds of simple constraints and little else"
)
START, END, PAD = "<|im_start|>", "<|im_end|>", "<|pad|>"
VOCABULARY = 1024

_WHOLE = r"```python|```output|```|</?preference>|</?score>"
"""Texts that are split off before merging, so that each becomes one ordinary token."""
_PIECE = r"\d| ?[\p{L}_]+| ?[^\s\p{L}\d_]+|\n+|\s+"
"""The pieces that no merge crosses: a digit, a name, a run of punctuation, line ends."""
_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] }}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_TEXTS = 3000
"""Number of training tasks that the tokenizer's merges are learned from."""


class ShapeConfig(BaseModel):
    """The shape of the network, in the names of transformers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hidden_size: int = Field(default=128, gt=0)
    num_hidden_layers: int = Field(default=4, gt=0)
    num_attention_heads: int = Field(default=4, gt=0)
    num_key_value_heads: int = Field(default=2, gt=0)
    head_dim: int = Field(default=32, gt=0, multiple_of=2)
    intermediate_size: int = Field(default=384, gt=0)

    @model_validator(mode="after")
    def _heads_divide_evenly(self) -> Self:
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError("num_attention_heads must be a multiple of num_key_value_heads")
        return self

    @property
    def parameters(self) -> int:
        """Number of parameters: the embedding (also the output layer), the layers, and the last norm."""
        hidden, heads = self.hidden_size, self.head_dim * self.num_attention_heads
        keys_and_values = 2 * self.head_dim * self.num_key_value_heads
        matrices = hidden * (2 * heads + keys_and_values + 3 * self.intermediate_size)
        norms = 2 * hidden + 2 * self.head_dim
        return VOCABULARY * hidden + self.num_hidden_layers * (matrices + norms) + hidden


MINIATURE = ShapeConfig()


def build_model(seed: int, shape: ShapeConfig = MINIATURE) -> tuple[Any, Any]:
    """Return the model with random weights and its tokenizer, both functions of the seed."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = build_tokenizer(seed)
    config = Qwen3Config(
        **shape.model_dump(),
        vocab_size=VOCABULARY,
        max_position_embeddings=32768,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    # The fork leaves the global random state of the process as it was.
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
    return model, tokenizer


def build_tokenizer(seed: int) -> Any:
    """Learn a byte-level BPE of 1,024 entries, with single digits, from training tasks and their programs."""
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
    """Write a model folder: safetensors, tokenizer, and `tirjudge.json`, which says what the model is."""
    model.config.use_cache = True  # trainers turn it off
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    note = NOTE.format(millions=model.num_parameters() / 1e6)
    write_atomically(folder / "tirjudge.json", json.dumps({**ENVIRONMENT, "note": note}, indent=2) + "\n")


def open_environments() -> dict[str, Any]:
    """Open the three TIR formats, by name, with the miniature's prompts."""
    return {format: open_environment(format, **ENVIRONMENT) for format in CANDIDATES}


def _texts(seed: int) -> Iterator[str]:
    """Yield prompts as the formats render them, each followed by the parts of a judge's answer."""
    environments = open_environments()
    for index in range(_TEXTS):
        formatted = train_task(index, seed)
        environment = environments[formatted.format]
        view = environment.views(formatted.task)[0]
        yield from (message.content for message in environment.prompt(formatted.task, view).messages)
        yield from _answers(index)


def _answers(index: int) -> Iterable[str]:
    """Return programs, an output and a tagged answer, so that the tokenizer learns merges for them."""
    family = CHECKABLE[index % len(CHECKABLE)]
    programs = [f"```python\n{family.program(shown)}\n```\n" for shown in get_args(Shown)]
    answer = "<preference>A</preference>" if index % 2 else "<score>9</score>"
    return (*programs, "```output\nTrue\nFalse\n```\n", answer)
