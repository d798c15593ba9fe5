"""A small policy trained by TRL's GRPOTrainer on a judge's comparisons, and verified without a judge."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from random import Random
from typing import Any

import torch
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from examples.miniature.constraints import FAMILIES, TRAIN, Constraint
from examples.miniature.model import ShapeConfig, build_model
from tirjudge import Judge
from tirjudge.selection.tournaments import open_tournament
from tirjudge.serve.trl import JudgeGroupReward

TAUGHT = ("upper", "lower", "question", "quoted")
"""Families of constraints that the policy is asked to keep."""
GOOD = 0.4
"""Share of the texts of the warm-up that keep their constraint."""
TOKENS = 32
SHAPE = ShapeConfig(
    hidden_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, intermediate_size=192
)
EVALUATION_SEED = 10_000
"""Added to the seed for the prompts of the verifier, which no training sees."""


@dataclass(frozen=True)
class Plan:
    """One training run."""

    method: str
    seed: int
    calls: int
    """Judge calls of the whole training."""
    group_size: int = 8
    groups: int = 2
    """Prompts of a step."""
    both_orders: bool = False
    learning_rate: float = 5e-4
    warm_up_steps: int = 150
    evaluations: int = 2
    """Times that the policy is verified, the end included, the start not."""
    prompts: int = 200
    """Prompts of the verifier, with one sampled completion each."""

    @property
    def calls_per_step(self) -> int:
        each = 1 if self.method == "listwise" else open_tournament(self.method).comparisons(self.group_size)
        return each * self.groups * (2 if self.both_orders else 1)

    @property
    def steps(self) -> int:
        return max(1, self.calls // self.calls_per_step)


@dataclass(frozen=True)
class Task:
    """A prompt with the constraint that the verifier checks."""

    messages: list[dict[str, str]]
    constraint: Constraint


def tasks(seed: int) -> Iterator[Task]:
    """Yield prompts without end, the families in turn."""
    rng = Random(seed)
    for number in count():
        constraint = FAMILIES[TAUGHT[number % len(TAUGHT)]].draw(rng, TRAIN)
        text = f"Write about the {TRAIN.word(rng)}. {constraint.text}"
        yield Task([{"role": "user", "content": text}], constraint)


def first(number: int, found: Iterator[Task]) -> list[Task]:
    return [task for task, _ in zip(found, range(number), strict=False)]


def warm_policy(seed: int, steps: int) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return a network of 0.2 M parameters that writes texts of which some keep their constraint."""
    model, tokenizer = build_model(seed, SHAPE)
    rng, batch = Random(seed), 32
    drawn = tasks(seed + 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    model.train()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * (1 - step / steps)
        rows = [_taught(task, rng, tokenizer) for task in first(batch, drawn)]
        longest = max(len(ids) for ids, _ in rows)
        ids = torch.tensor([one + [tokenizer.pad_token_id] * (longest - len(one)) for one, _ in rows])
        labels = torch.tensor(
            [[-100] * start + one[start:] + [-100] * (longest - len(one)) for one, start in rows]
        )
        model(input_ids=ids, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return model.eval(), tokenizer


def _taught(task: Task, rng: Random, tokenizer: Any) -> tuple[list[int], int]:
    """Return the ids of a dialogue, and where the answer begins."""
    text = task.constraint.write(rng, TRAIN, good=rng.random() < GOOD)
    prompt = tokenizer.apply_chat_template(task.messages, tokenize=False, add_generation_prompt=True)
    ids = tokenizer.encode(prompt)
    return [*ids, *tokenizer.encode(text), tokenizer.eos_token_id], len(ids)


@torch.no_grad()
def verified(model: Any, tokenizer: Any, asked: Sequence[Task], seed: int) -> list[bool]:
    """Return, for one completion of each prompt, whether the constraint's own check in code holds."""
    was_training = model.training
    model.eval()
    held: list[bool] = []
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        for start in range(0, len(asked), 100):
            batch = asked[start : start + 100]
            prompts = [
                tokenizer.apply_chat_template(task.messages, tokenize=False, add_generation_prompt=True)
                for task in batch
            ]
            inputs = tokenizer(prompts, return_tensors="pt", padding=True, padding_side="left")
            written = model.generate(
                input_ids=inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                do_sample=True,
                max_new_tokens=TOKENS,
            )
            texts = tokenizer.batch_decode(
                written[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True
            )
            held += [task.constraint.holds(text) for task, text in zip(batch, texts, strict=True)]
    model.train(was_training)
    return held


class _Verifier(TrainerCallback):
    """Measures the policy at equal distances in judge calls."""

    def __init__(self, plan: Plan, tokenizer: Any, curve: list[dict[str, float]]) -> None:
        self._plan, self._tokenizer, self._curve = plan, tokenizer, curve
        asked = tasks(plan.seed + EVALUATION_SEED)
        self._asked = first(plan.prompts, asked)

    def measure(self, model: Any, step: int) -> None:
        held = verified(model, self._tokenizer, self._asked, self._plan.seed)
        self._curve.append({"calls": step * self._plan.calls_per_step, "kept": sum(held) / len(held)})

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        plan, step = self._plan, state.global_step
        if step * plan.evaluations // plan.steps > (step - 1) * plan.evaluations // plan.steps:
            self.measure(more["model"], step)


def run(plan: Plan, judge: Judge | str, *, policy: tuple[Any, Any] | None = None) -> dict[str, Any]:
    """Train a policy with the judge as the only reward; return the plan, the curve and the last metrics."""
    started = time.monotonic()
    model, tokenizer = policy or warm_policy(plan.seed, plan.warm_up_steps)
    curve: list[dict[str, float]] = []
    verifier = _Verifier(plan, tokenizer, curve)
    verifier.measure(model, 0)
    asked = first(plan.groups * plan.steps, tasks(plan.seed + 2))
    batch = plan.groups * plan.group_size
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=model,
            processing_class=tokenizer,
            reward_funcs=JudgeGroupReward(
                judge,
                plan.method,
                both_orders=plan.both_orders,
                seed=plan.seed,
                group_size=plan.group_size,
            ),
            train_dataset=Dataset.from_list([{"prompt": task.messages} for task in asked]),
            callbacks=[verifier],
            args=GRPOConfig(
                output_dir=folder,
                max_steps=plan.steps,
                per_device_train_batch_size=batch,
                num_generations=plan.group_size,
                max_completion_length=TOKENS,
                learning_rate=plan.learning_rate,
                lr_scheduler_type="constant",
                logging_steps=1,
                save_strategy="no",
                use_cpu=True,
                bf16=False,
                report_to=[],
                seed=plan.seed,
                disable_tqdm=True,
            ),
        )
        trainer.train()
    logs = [log for log in trainer.state.log_history if "judge_group" in " ".join(log) or "reward" in log]
    return {
        **asdict(plan),
        "steps": plan.steps,
        "curve": curve,
        "metrics": {name: [log[name] for log in logs] for name in logs[0] if name.startswith("judge/")},
        "seconds": time.monotonic() - started,
    }
