"""Our RL trainer and a bare GRPOTrainer over the same given rollouts, one step at a time."""

from __future__ import annotations

import json
import os
import random
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

SAMPLES = 4
"""Rollouts of a group."""
MEMORY, NORM = "peak memory, MiB", "gradient norm"
STEPS = 10_000
"""More steps than any measurement takes; the processes are ended."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A model by its architecture, and the size of the batch."""

    architecture: str
    shape: dict[str, Any]
    groups: int
    prompt: int
    response: int
    """Mean tokens of a response."""


LIKE_OURS = {
    "vocab_size": 1024,
    "tie_word_embeddings": True,
    "max_position_embeddings": 2048,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": 0,
}
WORKLOADS = {
    "1M": Workload("qwen3", {}, groups=4, prompt=128, response=96),
    "16M": Workload(
        "qwen3",
        {
            "hidden_size": 384,
            "intermediate_size": 1152,
            "num_hidden_layers": 9,
            "num_attention_heads": 6,
            "num_key_value_heads": 3,
            "head_dim": 64,
        },
        groups=2,
        prompt=128,
        response=96,
    ),
    "135M": Workload(
        "llama",
        {
            "vocab_size": 49152,
            "hidden_size": 576,
            "intermediate_size": 1536,
            "num_hidden_layers": 30,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
        },
        groups=1,
        prompt=64,
        response=48,
    ),
}


def model_of(workload: Workload) -> Any:
    """Return the model with random weights, always the same ones."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from benchmarks.generation_throughput import miniature

    if workload.architecture == "qwen3":
        return miniature(**workload.shape)
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**LIKE_OURS | workload.shape))


@dataclass(frozen=True, slots=True)
class Rollout:
    """One given rollout: the model wrote all but the middle of the response."""

    prompt: list[int]
    parts: tuple[list[int], list[int], list[int]]
    reward: float

    @property
    def completion(self) -> list[int]:
        return [token for part in self.parts for token in part]

    @property
    def mask(self) -> list[int]:
        return [int(number != 1) for number, part in enumerate(self.parts) for _ in part]


def rollouts_of(workload: Workload) -> list[list[Rollout]]:
    """Return the groups of the batch, always the same ones."""
    draw = random.Random(0)

    def tokens(count: int) -> list[int]:
        return [draw.randrange(1024) for _ in range(count)]

    groups = []
    for _ in range(workload.groups):
        prompt = tokens(workload.prompt)
        group = []
        for number in range(SAMPLES):
            length = max(6, round(workload.response * draw.lognormvariate(-0.125, 0.5)))
            parts = tokens(length // 2), tokens(4), tokens(length - length // 2 - 4)
            group.append(Rollout(prompt, parts, float(number % 2)))
        groups.append(group)
    return groups


def own_trainer(workload: Workload, folder: str, callback: Any) -> None:
    """Train with this package's trainer, given the rollouts."""
    from tests.tirjudge.tiny_models import bpe_tokenizer
    from tirjudge_environments import Prompt, Reward, Trajectory, Verdict, View
    from tirjudge_environments.types import By, Segment, StopReason
    from tirjudge_training.cpu_forward import score_learned_tokens
    from tirjudge_training.rl.batch_sampler import GenerationBatch
    from tirjudge_training.rl.config import RlConfig
    from tirjudge_training.rl.dynamic_sampling import Group, SampledBatch
    from tirjudge_training.rl.rollout_engine import Engine
    from tirjudge_training.rl.stage_trainer import build_trainer

    def trajectory(number: int, one: Rollout) -> Trajectory:
        segments = tuple(
            Segment(by=By.SANDBOX, text="", ids=tuple(ids))
            if place == 1
            else Segment(by=By.MODEL, text="", ids=tuple(ids), logprobs=(-1.0,) * len(ids))
            for place, ids in enumerate(one.parts)
        )
        prompt = Prompt(messages=())
        return Trajectory(
            view=view,
            sample=number,
            prompt=prompt,
            prompt_ids=tuple(one.prompt),
            segments=segments,
            calls=(),
            stop=StopReason.VERDICT,
            verdict=Verdict(choice=0),
        )

    view = View("AB", (0, 1))
    kept = tuple(
        Group(
            view,
            tuple(trajectory(number, one) for number, one in enumerate(group)),
            tuple(Reward(one.reward, {}, right=one.reward > 0, teaches=one.reward > 0) for one in group),
        )
        for group in rollouts_of(workload)
    )

    async def given(step: int, *_: Any) -> GenerationBatch:
        no_rollouts = {"seconds/generating": 0.0, "seconds/waiting": 0.0}
        return GenerationBatch(step, SampledBatch((), (), 0, kept), seconds=no_rollouts)

    model, tokenizer = model_of(workload), bpe_tokenizer(vocab_size=300)
    config = RlConfig(
        steps=STEPS,
        groups=workload.groups,
        samples=SAMPLES,
        micro_batch=SAMPLES,
        warmup_steps=0,  # like the bare trainer, since the weights else drift apart with every pair of steps
        beta=0.0,
        max_tokens=1024,
        checkpoint_every=STEPS,
    )
    with Engine(model, tokenizer, {}, config) as engine:
        trainer = build_trainer(
            model,
            tokenizer,
            config,
            engine=engine,
            source=lambda *_: None,  # type: ignore[arg-type, return-value]
            seed=0,
            output=folder,
        )
        trainer.add_callback(callback)
        trainer.sampling._sample = given
        score_learned_tokens(model, temperature=config.temperature)
        trainer.train()


def bare_trainer(workload: Workload, folder: str, callback: Any) -> None:
    """Train with TRL's GRPOTrainer, given the rollouts."""
    from datasets import Dataset
    from transformers import PrinterCallback
    from trl import GRPOConfig, GRPOTrainer

    from tests.tirjudge.tiny_models import bpe_tokenizer
    from tirjudge_training.rl.trl_rollout import quiet

    tokenizer = bpe_tokenizer(vocab_size=300)
    tokenizer.pad_token = "<|im_end|>"
    rows = [one for group in rollouts_of(workload) for one in group]

    def roll_out(prompts: Sequence[str], trainer: Any) -> dict[str, list[Any]]:
        # TRL draws the groups in another order in each step, and the same groups come back together.
        chosen = [rows[int(prompt) * SAMPLES + place % SAMPLES] for place, prompt in enumerate(prompts)]
        return {
            "prompt_ids": [one.prompt for one in chosen],
            "completion_ids": [one.completion for one in chosen],
            "logprobs": [[-1.0 if own else 0.0 for own in one.mask] for one in chosen],
            "env_mask": [one.mask for one in chosen],
            "given": [one.reward for one in chosen],
        }

    with quiet():
        trainer = GRPOTrainer(
            model_of(workload),
            reward_funcs=lambda given, **_: given,
            args=GRPOConfig(
                output_dir=folder,
                max_steps=STEPS,
                use_cpu=True,
                bf16=False,
                gradient_checkpointing=False,
                dataloader_pin_memory=False,
                per_device_train_batch_size=SAMPLES,
                gradient_accumulation_steps=workload.groups,
                num_generations=SAMPLES,
                max_completion_length=1024,
                beta=0.0,
                epsilon_high=0.3,
                lr_scheduler_type="constant",
                learning_rate=1e-6,
                logging_steps=1,
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
            ),
            train_dataset=Dataset.from_dict({"prompt": [str(number) for number in range(workload.groups)]}),
            rollout_func=roll_out,
            processing_class=tokenizer,
            callbacks=[callback],
        )
    trainer.remove_callback(PrinterCallback)
    trainer.train()


TRAINERS = {"own": own_trainer, "bare": bare_trainer}


def train(trainer: str, size: str) -> None:
    """Take one step for every line on standard input, and print its seconds, memory and gradient norm."""
    import torch
    from transformers import TrainerCallback

    torch.set_num_threads(1)

    class Stepping(TrainerCallback):
        seconds = 0.0

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if not sys.stdin.readline():
                os._exit(0)  # the measurement is over
            self.started = time.perf_counter()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.seconds = time.perf_counter() - self.started

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if "grad_norm" not in logs:
                return
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            step = {"seconds": self.seconds, MEMORY: memory, NORM: float(logs["grad_norm"])}
            print(json.dumps(step), flush=True)

    with TemporaryDirectory() as folder:
        TRAINERS[trainer](WORKLOADS[size], folder, Stepping())


if __name__ == "__main__":
    train(*sys.argv[1:])
