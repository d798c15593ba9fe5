"""Sampling one step ahead: which weights sampled a batch, its loss, the overlap, and a run that is killed."""

from __future__ import annotations

import asyncio
import math
import signal
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.training.conftest import train_and_save
from tests.training.forked import in_two_processes, killed
from tirjudge.generation.local.loading import quiet_peft
from tirjudge.storage.json_lines import read_lines
from tirjudge_environments import JudgeTask, Message, Reward, View
from tirjudge_environments.types import Unscored
from tirjudge_sandbox import Execution, Limits, Program, Sandbox, open_sandbox
from tirjudge_training.distributed.processes import ALONE, Processes
from tirjudge_training.model_folder import network
from tirjudge_training.rl import rollout_engine
from tirjudge_training.rl.batch_sampler import GenerationBatch, decoded, encoded
from tirjudge_training.rl.config import RlConfig
from tirjudge_training.rl.dynamic_sampling import FormattedTask, Group, SampledBatch, ScoredRollouts
from tirjudge_training.rl.stream import STREAM, RowStream
from tirjudge_training.weight_sync.same_process import CopyPolicy

STEPS, CAP, PATIENCE = 4, 1.5, 100
CONFIG = RlConfig(
    steps=STEPS,
    groups=4,
    samples=4,
    micro_batch=16,
    beta=0.0,
    learning_rate=3e-3,
    max_tokens=60,
    filter="reward",
    replacement_rounds=1,
    off_policy=True,
    importance_cap=CAP,
    checkpoint_every=1,
    keep_checkpoints=STEPS,
)


def row(position: int) -> FormattedTask:
    made = JudgeTask(id=f"r{position}", prompt=(Message("user", "q"),), candidates=("good", "bad"), label=0)
    return FormattedTask("tir-pairwise", made)


class Held:
    """The real sandbox, whose programs wait until every step is trained that was begun before them."""

    def __init__(self, inner: Sandbox, trained: list[str]) -> None:
        self._inner, self._trained, self.capacity = inner, trained, inner.capacity
        self.begun = 0

    async def __aenter__(self) -> Held:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._inner.__aexit__(*error)

    async def run(self, program: Program, limits: Limits = Limits()) -> Execution:
        end = time.monotonic() + PATIENCE
        while len(self._trained) < self.begun:
            assert time.monotonic() < end, "the step was not trained while the next batch was sampled"
            await asyncio.sleep(0.01)
        return await self._inner.run(program, limits)


def train(
    start: Path,
    folder: Path,
    say: Callable[[str], None] = lambda line: None,
    *,
    every: int = 2,
    processes: Processes = ALONE,
) -> None:
    config = CONFIG.model_copy(update={"checkpoint_every": every, "micro_batch": 16 // processes.world})
    rows = RowStream(row, per_pass=99)
    train_and_save(start, folder, config, tasks=rows, say=say, processes=processes)


def launched(start: Path, folder: Path) -> None:
    train(start, folder, processes=Processes.launched())


@pytest.fixture(scope="module")
def whole(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with all checkpoints, in which the programs of a batch wait for the training of the one before.

    A run that sampled and trained in turn would not come to an end.
    """
    folder, trained = tmp_path_factory.mktemp("whole"), list[str]()
    boxes: list[Held] = []

    def opened(name: str, **options: Any) -> Held:
        boxes.append(Held(open_sandbox(name, **options), trained))
        return boxes[-1]

    def say(line: str) -> None:
        if ": mean reward" in line:
            trained.append(line)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rollout_engine, "open_sandbox", opened)
        begin = rollout_engine.Engine.start

        def start(self: rollout_engine.Engine, work: Any) -> Any:
            boxes[0].begun += 1
            return begin(self, work)

        patch.setattr(rollout_engine.Engine, "start", start)
        train(tiny_model, folder, say, every=1)
    assert boxes[0].begun == STEPS - 1
    return folder


def rollouts(folder: Path, step: int) -> list[dict[str, Any]]:
    return pq.read_table(folder / "rollouts" / f"step-{step:06}.parquet").to_pylist()


def metrics(folder: Path) -> list[dict[str, Any]]:
    return list(read_lines(folder / "metrics.jsonl"))


def weights(step: int, folder: Path, start: Path) -> Any:
    """Return the model before a step of training."""
    path = start if step == 0 else folder / "checkpoints" / f"checkpoint-{step}"
    return AutoModelForCausalLM.from_pretrained(path, dtype="float32")


def logprobs(model: Any, one: dict[str, Any]) -> Any:
    """Return the logprobs of the completion by a plain forward pass."""
    prompt = len(one["prompt_ids"])
    ids = torch.tensor([*one["prompt_ids"], *one["completion_ids"]])
    every = model(ids[None]).logits[0].float().log_softmax(-1)
    return every[:-1].gather(1, ids[1:, None])[prompt - 1 :, 0]


@torch.no_grad()
def gap(model: Any, batch: list[dict[str, Any]]) -> float:
    """Return the largest difference to the sampler's logprobs."""
    return max(
        ((logprobs(model, one) - torch.tensor(one["logprobs"])).abs() * torch.tensor(one["mask"]))
        .max()
        .item()
        for one in batch
    )


@pytest.mark.slow
def test_each_batch_was_sampled_by_the_weights_of_one_step_before(whole: Path, tiny_model: Path) -> None:
    assert [one["staleness"] for one in metrics(whole)] == [0, 1, 1, 1]
    for step in range(1, STEPS):
        batch = rollouts(whole, step)
        assert gap(weights(step - 1, whole, tiny_model), batch) < 1e-5
        assert gap(weights(step, whole, tiny_model), batch) > 1e-2
    assert gap(weights(0, whole, tiny_model), rollouts(whole, 0)) < 1e-5


def test_loss_and_gradient_equal_those_of_a_plain_computation(whole: Path, tiny_model: Path) -> None:
    """DAPO's token mean of -w A log p, where w is the current over the sampler's probability, at most CAP."""
    capped = 0
    for step in range(1, STEPS):
        model = weights(step, whole, tiny_model)
        groups: dict[str, list[dict[str, Any]]] = {}
        for one in rollouts(whole, step):
            groups.setdefault(one["id"], []).append(one)
        taught = [group for group in groups.values() if len({one["reward"] for one in group}) > 1]
        assert len(taught) == metrics(whole)[step]["groups/in_loss"]
        value, objective, tokens = 0.0, torch.zeros(()), 0
        for group in taught:
            rewards = [one["reward"] for one in group]
            mean, deviation = statistics.fmean(rewards), statistics.stdev(rewards)
            for one in group:
                written = torch.tensor(one["mask"])
                current = logprobs(model, one)
                ratio = (current.detach() - torch.tensor(one["logprobs"])).exp()
                capped += int(((ratio > CAP) * written).sum())
                weighted = ratio.clamp(max=CAP) * (one["reward"] - mean) / deviation * written
                value -= weighted.sum().item()
                objective = objective - (weighted * current).sum()
                tokens += int(written.sum())
        (objective / tokens).backward()
        norm = math.sqrt(sum(float(p.grad.pow(2).sum()) for p in model.parameters() if p.grad is not None))
        assert metrics(whole)[step]["loss"] == pytest.approx(value / tokens, abs=1e-4)
        assert metrics(whole)[step]["grad_norm"] == pytest.approx(norm, rel=1e-3)
    assert capped, "no weight reached the cap"


@pytest.mark.slow
def test_a_killed_run_trains_on_the_batches_of_an_uninterrupted_one(
    whole: Path, tiny_model: Path, tmp_path: Path
) -> None:
    """The checkpoint after two steps holds the batch that the weights after one step sampled."""
    assert killed(train, tiny_model, tmp_path, "step 3 of 4: mean") == -signal.SIGKILL
    assert len(metrics(tmp_path)) == 3
    before = rollouts(tmp_path, 2), metrics(tmp_path)[2]["loss"], metrics(tmp_path)[2]["grad_norm"]
    train(tiny_model, tmp_path)
    assert before == (rollouts(tmp_path, 2), metrics(tmp_path)[2]["loss"], metrics(tmp_path)[2]["grad_norm"])
    assert list(read_lines(tmp_path / STREAM)) == list(read_lines(whole / STREAM))
    assert [one["staleness"] for one in metrics(tmp_path)] == [0, 1, 1, 1]
    for step in range(STEPS):
        # Last bits of logprobs depend on which rows were decoded together.
        tokens = [
            [(one["id"], one["sample"], one["completion_ids"]) for one in rollouts(folder, step)]
            for folder in (tmp_path, whole)
        ]
        assert tokens[0] == tokens[1]
    resumed, uninterrupted = (
        load_file(folder / "model" / "model.safetensors") for folder in (tmp_path, whole)
    )
    for name, weight in uninterrupted.items():
        assert torch.allclose(resumed[name], weight, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "said",
    [
        {"properties": {"total": {"type": "number"}, "parts": {"type": "object"}}},
        {"total": 3, "parts": ["a"]},
        {"total": 1.0, "parts": {"correct": 1.0}},
    ],
    ids=["the schema of a tool", "a list of parts", "an object like a reward"],
)
def test_what_a_row_says_is_no_reward(said: dict[str, Any]) -> None:
    task = JudgeTask(
        id="t", prompt=(Message("user", "q"),), candidates=("good", "bad"), label=0, gold={"said": said}
    )
    view = View(name="given", order=(0, 1))
    reward = Reward(1.0, {"correct": 1.0}, right=True, teaches=True)
    rollouts = ScoredRollouts(FormattedTask("tir-pairwise", task), (), ((reward, Unscored("down")),), 0)
    batch = SampledBatch((rollouts,), (rollouts,), 1, (Group(view, (), (reward, Unscored("down"))),))
    text = encoded(GenerationBatch(3, batch))
    assert decoded(text)[0].batch == batch


@pytest.mark.slow
def test_two_processes_sample_ahead_as_one_does(whole: Path, tiny_model: Path, tmp_path: Path) -> None:
    in_two_processes(launched, tiny_model, tmp_path, folder=tmp_path)
    for found, expected in zip(metrics(tmp_path), metrics(whole), strict=True):
        for name in ("loss", "grad_norm", "staleness", "rows/seen", "tokens/generated"):
            assert found[name] == pytest.approx(expected[name], abs=1e-4), name


async def test_a_stage_that_goes_on_with_an_adapter_samples_from_merged_weights(tiny_model: Path) -> None:
    from peft import LoraConfig, get_peft_model

    plain = AutoModelForCausalLM.from_pretrained(tiny_model, dtype="float32")
    with quiet_peft():
        adapted = get_peft_model(plain, LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM"))
    policy = CopyPolicy(network(adapted), AutoTokenizer.from_pretrained(tiny_model), "policy")
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    ids = torch.arange(256, 262)[None]
    with torch.no_grad():
        trained, stale = adapted(ids).logits, policy._copy(ids).logits
        await policy.refresh()
        assert torch.allclose(policy._copy(ids).logits, trained, atol=1e-4)
        assert not torch.allclose(stale, trained, atol=1e-2)
    await policy.close()
