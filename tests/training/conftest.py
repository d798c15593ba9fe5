"""Fixtures for training: a tiny Qwen3 that half knows the dialogue, its judges and its tasks."""

from __future__ import annotations

import gc
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
import trl
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from tests.tirjudge.endpoint_server import EndpointServer, serving
from tests.tirjudge.tiny_models import CHAT
from tests.training.fitting import fit
from tirjudge_environments import Environment, JudgeTask, Message, Prompt, View
from tirjudge_environments.formats.tir_comparison import TirPairwise
from tirjudge_environments.formats.tir_pointwise import TirPointwise
from tirjudge_environments.tokenization import ChatEncoder
from tirjudge_training.distributed.processes import ALONE, Processes
from tirjudge_training.rl.config import RlConfig
from tirjudge_training.rl.dynamic_sampling import FormattedTask
from tirjudge_training.rl.stream import TaskSource
from tirjudge_training.rl.training_loop import train_rl

# Every stage ends with a garbage collection, which would walk through all of torch and TRL each time. That
# takes a fifth of a small run's CPU seconds. TRL must be loaded before gc.freeze, which exempts loaded
# objects from collection; the environment of verl has an old TRL, which is never used.
with suppress(ImportError, RuntimeError):
    assert trl.GRPOTrainer
gc.collect()
gc.freeze()

PROGRAM = "```python\nprint(len(responses))\n```\n"
BROKEN = "```python\nprint(1/0)\n```\n"
OUTPUT = "```output\n2\n```\n"
VERDICTS = ("<preference>A</preference>", "<preference>B</preference>")
SCORES = ("<score>3</score>", "<score>7</score>")
"""Each of these is one token, so that a model of a few thousand weights can write it."""


@pytest.fixture(scope="session", autouse=True)
def our_tests_first() -> Iterator[None]:
    """Test files that are launched as scripts import these tests; ppi-python installs a `tests` as well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        yield


@pytest.fixture(scope="module")
def running() -> Iterator[EndpointServer]:
    """A model server for the tests of one file; each test sets a script and clears the recorded requests."""
    with serving() as server:
        yield server


class ShortPairwise(TirPairwise):
    """The paper's pairwise judge with a prompt of a few bytes."""

    def prompt(self, task: JudgeTask, view: View) -> Prompt:
        shown = " ".join(task.candidates[index] for index in view.order)
        return Prompt(messages=(Message("user", shown),), stop=super().prompt(task, view).stop)


class ShortPointwise(TirPointwise):
    def prompt(self, task: JudgeTask, view: View) -> Prompt:
        shown = task.candidates[view.order[0]]
        return Prompt(messages=(Message("user", shown),), stop=super().prompt(task, view).stop)


ENVIRONMENTS = {"tir-pairwise": ShortPairwise(order="given"), "tir-pointwise": ShortPointwise()}


def small_rl(**settings: Any) -> RlConfig:
    """Return the settings of a small run with a checkpoint after each step, and others as given."""
    small = {
        "steps": 2,
        "groups": 4,
        "samples": 4,
        "micro_batch": 8,
        "max_tokens": 120,
        "checkpoint_every": 1,
    }
    return RlConfig(**small | {"beta": 0.01, "learning_rate": 1e-3} | settings)


def source(step: int, round_number: int, position: int) -> FormattedTask:
    """Return a pair, or a single response at every third position; a function of its arguments alone."""
    name = f"{step}-{round_number}-{position}"
    domain = ("even", "odd")[position % 2]
    task = JudgeTask(
        id=name, prompt=(Message("user", "q"),), candidates=("good", "bad"), label=0, domain=domain
    )
    return FormattedTask("tir-pointwise" if position % 3 == 2 else "tir-pairwise", task)


def train_and_save(
    start: Path,
    folder: Path,
    config: RlConfig,
    *,
    tasks: TaskSource = source,
    say: Callable[[str], None] = lambda line: None,
    processes: Processes = ALONE,
) -> None:
    """Train by RL with seed 1; the model is in the subfolder `model`."""
    with processes.folder(folder) as run:
        model = train_rl(
            start, run, config, environments=ENVIRONMENTS, source=tasks, seed=1, say=say, processes=processes
        )
        if processes.rank == 0:
            model.save_pretrained(folder / "model")


WORDS = (PROGRAM, BROKEN, *VERDICTS, *SCORES)


def tokenizer_of_words(turns: Sequence[str] = WORDS) -> PreTrainedTokenizerFast:
    """Return a tokenizer of bytes and of one token per possible turn, to which text is never encoded."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    words = [level.pre_tokenize_str(word)[0][0] for word in turns]
    tokenizer = Tokenizer(models.BPE(vocab={entry: i for i, entry in enumerate(alphabet + words)}, merges=[]))
    tokenizer.pre_tokenizer, tokenizer.decoder = level, decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
    )
    fast.chat_template = CHAT
    return fast


def tiny_qwen(
    tokenizer: PreTrainedTokenizerFast, positions: int = 512, head_dim: int = 16
) -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=head_dim,
            max_position_embeddings=positions,
            tie_word_embeddings=True,
            initializer_range=0.2,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder (safetensors, config, tokenizer) that runs programs, some broken, and guesses."""
    folder, tokenizer = tmp_path_factory.mktemp("tiny"), tokenizer_of_words()
    model, encoder = tiny_qwen(tokenizer), ChatEncoder(tokenizer)
    word = {text: 256 + i for i, text in enumerate(WORDS)}
    assert all(tokenizer.decode([i]) == text for text, i in word.items())
    dialogues = []
    for format, answers in (("tir-pairwise", VERDICTS), ("tir-pointwise", SCORES)):
        formatted = source(0, 0, 2 if format == "tir-pointwise" else 0)
        for view in ENVIRONMENTS[format].views(formatted.task):
            start = encoder.prompt(ENVIRONMENTS[format].prompt(formatted.task, view))
            for answer in answers:
                end = [word[answer], tokenizer.eos_token_id]
                dialogues += [(start, [word[PROGRAM], *encoder.text(OUTPUT), *end]), (start, end)]
                error = encoder.text("```output\nZeroDivisionError: division by zero\n```\n")
                dialogues.append((start, [word[BROKEN], *error, *end]))
    fit(model, dialogues, tokenizer.pad_token_id)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def environments() -> dict[str, Environment]:
    return dict(ENVIRONMENTS)


@pytest.fixture(scope="session")
def roomy_model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with enough positions for a paper's prompt, each byte of which is a token."""
    folder = tmp_path_factory.mktemp("roomy") / "model"
    shutil.copytree(tiny_model, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 8192}))
    return folder
