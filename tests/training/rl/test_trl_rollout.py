"""The public `rollout_func` inside an unmodified GRPOTrainer."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from tirjudge.generation import Sampling
from tirjudge_environments import Budget, Environment, JudgeTask, Message
from tirjudge_training.rl.rollout_engine import Engine
from tirjudge_training.rl.trl_rollout import JudgeRolloutFunc

GROUP = 4


def task(name: str) -> JudgeTask:
    return JudgeTask(id=name, prompt=(Message("user", "q"),), candidates=("good", "bad"), label=0)


def trainer(judge: JudgeRolloutFunc, model: Any, tokenizer: Any, folder: Path) -> Any:
    return GRPOTrainer(
        model=model,
        reward_funcs=judge.reward,
        rollout_func=judge,
        train_dataset=Dataset.from_list(judge.dataset()),
        processing_class=tokenizer,
        args=GRPOConfig(
            output_dir=str(folder),
            max_steps=2,
            per_device_train_batch_size=2 * GROUP,
            num_generations=GROUP,
            learning_rate=1e-3,
            logging_steps=1,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            dataloader_pin_memory=False,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        ),
    )


def test_any_grpo_trainer_trains_a_judge(
    environments: dict[str, Environment], tiny_model: Path, tmp_path: Path
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype="float32")
    with (
        warnings.catch_warnings(),
        Engine(
            model, tokenizer, environments, budget=Budget(tokens=120), sampling=Sampling(temperature=1.0)
        ) as engine,
    ):
        warnings.filterwarnings("ignore", message="You are using 'rollout_func'")
        warnings.filterwarnings("ignore", message=".*gradient_checkpointing` is deprecated")
        judge = JudgeRolloutFunc(engine, "tir-pointwise", [task("1"), task("2")])
        grpo = trainer(judge, model, tokenizer, tmp_path)
        grpo.train()
    logs = [row for row in grpo.state.log_history if "loss" in row]
    assert len(logs) == 2
    assert any(row["grad_norm"] > 0 for row in logs)
    assert all(0 <= row["reward"] <= 1 for row in logs)
