"""A tiny policy with random weights that TRL's GRPOTrainer trains on a few prompts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from tests.tirjudge.tiny_models import TRL_ON_CPU, bpe_tokenizer, tiny_qwen3

STEPS, BATCH = 8, 16


def trainer(reward: Any, prompts: Sequence[str], folder: Path) -> GRPOTrainer:
    """Return a trainer whose every batch has one group for each prompt."""
    tokenizer = bpe_tokenizer(" ".join(prompts))
    samples = BATCH // len(prompts)
    return GRPOTrainer(
        model=tiny_qwen3(len(tokenizer)),
        reward_funcs=reward,
        train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in prompts] * samples),
        processing_class=tokenizer,
        args=GRPOConfig(
            output_dir=str(folder),
            max_steps=STEPS,
            per_device_train_batch_size=BATCH,
            num_generations=samples,
            max_completion_length=8,
            learning_rate=1e-2,
            lr_scheduler_type="constant",
            logging_steps=1,
            save_strategy="no",
            **TRL_ON_CPU,
            seed=0,
        ),
    )
