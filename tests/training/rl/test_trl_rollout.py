"""The public `rollout_func` inside an unmodified GRPOTrainer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from tests.tirjudge.tiny_models import tiny_qwen3
from tirjudge.generation import GeneratorFailed, Sampling
from tirjudge_environments import Budget, Environment, JudgeTask, Message, open_environment
from tirjudge_sandbox import Execution, Limits, Program, Sandbox, Status
from tirjudge_training.rl.rollout_engine import Engine
from tirjudge_training.rl.trl_rollout import JudgeRolloutFunc

pytestmark = [
    pytest.mark.filterwarnings("ignore:You are using 'rollout_func'"),
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing` is deprecated"),
]

GROUP = 4


def task(name: str, first: str = "good") -> JudgeTask:
    return JudgeTask(id=name, prompt=(Message("user", "q"),), candidates=(first, "bad"), label=0)


def trainer(judge: JudgeRolloutFunc, model: Any, tokenizer: Any, folder: Path, **changes: Any) -> Any:
    options = {
        "output_dir": str(folder),
        "max_steps": 2,
        "per_device_train_batch_size": 2 * GROUP,
        "num_generations": GROUP,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "dataloader_pin_memory": False,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
    }
    return GRPOTrainer(
        model=model,
        reward_funcs=judge.reward,
        rollout_func=judge,
        train_dataset=Dataset.from_list(judge.dataset()),
        processing_class=tokenizer,
        args=GRPOConfig(**options | changes),
    )


@contextmanager
def judging(
    tiny_model: Path,
    environments: dict[str, Environment],
    folder: Path,
    tasks: tuple[JudgeTask, ...] = (task("1"), task("2")),
    sampling: Sampling = Sampling(temperature=1.0),
    **changes: Any,
) -> Iterator[tuple[Engine, Any]]:
    """Yield an engine, and a trainer whose rollouts are the engine's."""
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype="float32")
    with Engine(model, tokenizer, environments, budget=Budget(tokens=120), sampling=sampling) as engine:
        judge = JudgeRolloutFunc(engine, "tir-pointwise", tasks)
        yield engine, trainer(judge, model, tokenizer, folder, **changes)


def logs(grpo: Any) -> list[dict[str, float]]:
    return [row for row in grpo.state.log_history if "loss" in row]


def test_any_grpo_trainer_trains_a_judge(
    environments: dict[str, Environment], tiny_model: Path, tmp_path: Path
) -> None:
    with judging(tiny_model, environments, tmp_path) as (_, grpo):
        grpo.train()
    assert len(logs(grpo)) == 2
    assert any(row["grad_norm"] > 0 for row in logs(grpo))
    assert all(0 <= row["reward"] <= 1 for row in logs(grpo))


def test_rollouts_whose_prompt_is_too_long_are_left_out_of_their_batch(
    environments: dict[str, Environment], tiny_model: Path, tmp_path: Path
) -> None:
    """The model has 512 positions. The other task's rollouts are trained as if they were alone."""
    tasks = task("1"), task("long", "good " * 200)
    message = r"[48] of 8 rollouts are left out \(first: 'long .*': .*512"
    with (
        judging(tiny_model, environments, tmp_path, tasks) as (_, grpo),
        pytest.warns(UserWarning, match=message),
    ):
        grpo.train()
    assert len(logs(grpo)) == 2
    assert all(math.isfinite(row["loss"]) for row in logs(grpo))
    assert any(row["grad_norm"] > 0 for row in logs(grpo))


@pytest.mark.slow
def test_responses_that_a_judge_sees_after_its_check_are_in_no_prompt_and_no_loss(
    tiny_model: Path, tmp_path: Path
) -> None:
    """The rollouts of the other task have no room for its responses, and end before their first turn."""
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    model = tiny_qwen3(len(tokenizer), max_position_embeddings=8192)
    environments = {"checks": open_environment("checks-pairwise", order="given")}
    tasks, sampling = (
        (task("1", "the first response"), task("long", "good " * 200)),
        Sampling(temperature=1.0),
    )
    with Engine(model, tokenizer, environments, budget=Budget(tokens=700), sampling=sampling) as engine:
        grpo = trainer(JudgeRolloutFunc(engine, "checks", tasks), model, tokenizer, tmp_path, max_steps=1)
        rows = [{"prompt": row["prompt"]} for row in grpo.train_dataset for _ in range(GROUP)]
        made = grpo._generate_and_score_completions(rows)
        grpo.train()
    mask, counted = made["tool_mask"].bool(), made["completion_mask"].bool()
    for ids, in_loss, real in zip(made["completion_ids"][:GROUP], mask, counted, strict=False):
        assert "the first response" in tokenizer.decode(ids[real & ~in_loss])
        assert "the first response" not in tokenizer.decode(ids[real & in_loss])
    assert not any("the first response" in tokenizer.decode(ids) for ids in made["prompt_ids"])
    assert not (mask & counted)[GROUP:].any()
    (row,) = logs(grpo)
    assert math.isfinite(row["loss"])


class FailingSandbox:
    """A sandbox that fails for all programs of every second dialogue, as a lost Docker engine does."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox, self.capacity = sandbox, sandbox.capacity
        self.seeds: list[int] = []

    async def run(self, program: Program, limits: Limits = Limits()) -> Execution:
        if program.seed not in self.seeds:
            self.seeds.append(program.seed)
        if self.seeds.index(program.seed) % 2:
            return Execution(status=Status.SANDBOX_FAILED, detail="the engine is gone")
        return await self.sandbox.run(program, limits)


def test_a_rollout_whose_sandbox_failed_has_no_advantage_and_shifts_no_baseline(
    environments: dict[str, Environment], tiny_model: Path, tmp_path: Path
) -> None:
    size = 16
    changes = {"num_generations": size, "per_device_train_batch_size": size}
    with judging(tiny_model, environments, tmp_path, **changes) as (engine, grpo):
        engine._sandbox = FailingSandbox(engine._sandbox)  # type: ignore[assignment]
        found: list[float | None] = []
        grpo.reward_funcs = [lambda reward, **_: found.extend(reward) or reward]
        rows = [{"prompt": row["prompt"]} for row in grpo.train_dataset for _ in range(size)]
        with pytest.warns(UserWarning, match=r"left out .*the engine is gone") as warned:
            made = grpo._generate_and_score_completions(rows)
        in_loss = (made["completion_mask"] * made["tool_mask"]).sum(dim=1).tolist()
    assert f"{found.count(None)} of 64 rollouts" in str(warned[0].message)
    groups = [found[start : start + size] for start in range(0, len(rows), size)]
    assert any(None in group and len(set(group)) > 2 for group in groups)
    for start, group in zip(range(0, len(rows), size), groups, strict=True):
        scored = [reward for reward in group if reward is not None]
        spread = stdev(scored) if len(scored) > 1 else 0.0
        for number, reward in enumerate(group, start):
            advantage = made["advantages"][number].item()
            if reward is None:
                assert (advantage, in_loss[number]) == (0, 0)
            else:
                # Group-relative (DeepSeekMath, arXiv 2402.03300, section 4.1.2), with TRL's 1e-4.
                assert advantage == pytest.approx((reward - fmean(scored)) / (spread + 1e-4), abs=1e-5)


def test_a_sandbox_that_stays_down_ends_the_run_with_its_reason(
    environments: dict[str, Environment], tiny_model: Path, tmp_path: Path
) -> None:
    with judging(tiny_model, environments, tmp_path, max_steps=9) as (engine, grpo):
        engine.generator.generate = _broken  # type: ignore[method-assign]
        message = r"all rollouts of 3 batches in a row failed: .*out of order"
        with pytest.warns(UserWarning, match="8 of 8"), pytest.raises(RuntimeError, match=message):
            grpo.train()


async def _broken(*_: object) -> None:
    raise GeneratorFailed("out of order")


@pytest.mark.parametrize(
    ("sampling", "changes", "message"),
    [
        (Sampling(temperature=1.6), {}, "samples with temperature = 1.6, and TRL trains with 1: .*"),
        (Sampling(temperature=1.0), {"temperature": 0.7}, r"GRPOConfig\(temperature=1\)"),
        pytest.param(
            Sampling(temperature=1.0, top_p=0.9),
            {},
            "samples with top_p = 0.9, and TRL trains with 1",
            marks=pytest.mark.slow,
        ),
        (Sampling(temperature=1.0), {"top_k": 20}, r"GRPOConfig\(top_k=20\) has no effect"),
        (Sampling(), {}, "samples with temperature = 0, and TRL trains with 1"),
    ],
)
def test_two_distributions_are_refused_before_the_first_batch(
    sampling: Sampling,
    changes: dict[str, Any],
    message: str,
    environments: dict[str, Environment],
    tiny_model: Path,
    tmp_path: Path,
) -> None:
    with (
        judging(tiny_model, environments, tmp_path, sampling=sampling, **changes) as (_, grpo),
        pytest.raises(ValueError, match=message),
    ):
        grpo.train()
    assert grpo.state.global_step == 0
