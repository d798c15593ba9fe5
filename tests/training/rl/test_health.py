"""Each cause that stops an RL run is provoked: the message names it, and the run resumes without it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.training.conftest import small_rl, train_and_save
from tests.training.train_command import train
from tirjudge.storage.json_lines import read_lines
from tirjudge_environments import Environment, Reward
from tirjudge_sandbox import Execution, Limits, Program, Status
from tirjudge_training.distributed import checkpoints
from tirjudge_training.rl import training_loop
from tirjudge_training.rl.health import Health, HealthConfig, Unhealthy
from tirjudge_training.rl.rollout_engine import Engine, TimedSandbox
from tirjudge_training.run import run

CONFIG = small_rl(steps=3, beta=0.0, health=HealthConfig(patience=1))


class BrokenSandbox:
    """A sandbox that implements the interface and fails every program."""

    capacity = 1

    async def run(self, program: Program, limits: Limits) -> Execution:
        return Execution(status=Status.SANDBOX_FAILED, detail="the worker was killed")


def poison(engine: Engine) -> None:
    with torch.no_grad():
        engine.model.model.norm.weight[0] = math.nan


def break_sandbox(engine: Engine) -> None:
    engine._sandbox = TimedSandbox(BrokenSandbox(), generating=lambda: 0.0)


def spoil_rewards(engine: Engine) -> None:
    class Spoilt:
        def __init__(self, environment: Environment) -> None:
            self._environment = environment

        def __getattr__(self, name: str) -> Any:
            return getattr(self._environment, name)

        def score(self, group: Any, answers: Any) -> Any:
            scores = self._environment.score(group, answers)
            return [
                tuple(dataclasses.replace(s, total=math.nan) if isinstance(s, Reward) else s for s in row)
                for row in scores
            ]

    engine.environments = {name: Spoilt(environment) for name, environment in engine.environments.items()}


def train_with(fault: Callable[[Engine], None], start: Path, folder: Path, line: str) -> RuntimeError:
    """Train with a fault from the second step on, and return the error that stops the run."""
    steps = []

    class Faulty(Engine):
        def __init__(self, model: Any, *args: Any, **options: Any) -> None:
            super().__init__(model, *args, **options)
            self.model = model

        def rollouts(self, seed: int) -> Any:
            steps.append(seed)
            if len(steps) == 2:
                fault(self)
            return super().rollouts(seed)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(training_loop, "Engine", Faulty)
        with pytest.raises(RuntimeError, match=line) as stopped:
            train_and_save(start, folder, CONFIG)
    assert "\n" not in str(stopped.value)
    assert checkpoints.latest(folder / "checkpoints") == folder / "checkpoints" / "checkpoint-1"
    return stopped.value


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        (poison, r"none of 16 rollouts could be scored, .*: generator_down: .* logits are NaN"),
        (spoil_rewards, r"rl stopped at step 2: the reward of task '1-0-0' is nan: check the environ"),
    ],
)
def test_an_unhealthy_run_stops(
    fault: Callable[[Engine], None], line: str, tiny_model: Path, tmp_path: Path
) -> None:
    train_with(fault, tiny_model, tmp_path, line)


@pytest.mark.slow
def test_a_stopped_run_resumes_when_the_cause_is_gone(tiny_model: Path, tmp_path: Path) -> None:
    healthy, sick = tmp_path / "healthy", tmp_path / "sick"
    train_and_save(tiny_model, healthy, CONFIG)
    line = r"rl stopped at step 2: the sandbox keeps failing: \d+% of the rollouts"
    stopped = train_with(break_sandbox, tiny_model, sick, line)
    stop = {"step": 2, "event": "stopped", "about": str(stopped)}
    assert list(read_lines(sick / "events.jsonl")) == [stop]
    train_and_save(tiny_model, sick, CONFIG)
    assert [row["step"] for row in read_lines(sick / "metrics.jsonl")] == [0, 1, 2]
    resumed, expected = (load_file(folder / "model" / "model.safetensors") for folder in (sick, healthy))
    assert all(resumed[name].equal(expected[name]) for name in expected)


def row(step: int, calls: float, **more: float) -> dict[str, float]:
    return {"step": step, "tools/calls": calls, "tools/error_rate": 0.0, **more}


def stopped(rows: list[dict[str, float]], **config: float) -> str | None:
    """Return the reason for which a run with these batches stops; None if it goes on."""
    health = Health(HealthConfig(**config))
    try:
        for one in rows:
            health.trained(one)
    except Unhealthy as error:
        return str(error)
    return None


def test_programs_that_disappear_stop_a_run_within_three_batches() -> None:
    """The calls of a run on a small model whose guesses were paid: .80, .28, .01, .00."""
    calls = [0.80, 0.28, 0.01, 0.00, 0.01]
    reason = stopped([row(step, each) for step, each in enumerate(calls)], tool_use=0.5)
    assert reason is not None
    assert reason.startswith("rl stopped at step 4: tool use has collapsed: 0.00 calls per response")
    assert stopped([row(step, each) for step, each in enumerate(calls)], tool_use=0) is None


def test_a_short_dip_in_tool_use_or_sandbox_failures_does_not_stop_a_run() -> None:
    dips = [
        row(step, 0.0 if step % 3 else 0.9, **{"stop/sandbox_down": 0.5 * (step % 2)}) for step in range(12)
    ]
    assert stopped(dips) is None


def test_errors_that_rise_stop_a_run_and_errors_of_the_start_do_not() -> None:
    def batches(*errors: float) -> list[dict[str, float]]:
        return [row(step, 1.0, **{"tools/error_rate": each}) for step, each in enumerate(errors)]

    reason = stopped(batches(0.1, 0.41, 0.5, 0.6))
    assert reason is not None
    assert "60% of the programs end with an error, up from 10%" in reason
    assert stopped(batches(0.1, 0.5, 0.39, 0.5)) is None
    assert stopped(batches(0.9, 0.8, 0.7, 0.6)) is None


def test_a_judge_that_always_names_one_place_stops_a_run() -> None:
    """The shares of a run on a small model whose batches had more labels on one side."""

    def batches(*shares: float) -> list[dict[str, float]]:
        return [row(step, 1.0, **{"verdicts/first_shown": each}) for step, each in enumerate(shares)]

    seen = 0.52, 0.37, 0.33, 0.16, 0.14, 0.15
    reason = stopped(batches(*seen))
    assert reason is not None
    assert reason.startswith(
        "rl stopped at step 6: 85% of the verdicts on pairs name the response shown second"
    )
    assert stopped(batches(*(1 - each for each in seen))) == reason.replace("second", "first")
    assert stopped(batches(*seen), position=1) is None
    assert stopped(batches(0.1, 0.14, 0.16, 0.15)) is None, "as at the start"
    assert stopped([row(step, 1.0) for step in range(5)]) is None, "few verdicts on pairs"


def test_a_policy_far_from_its_start_stops_a_run() -> None:
    reason = stopped([row(step, 1.0, kl_start=each) for step, each in enumerate((0.0, 1.1, 2.0, 3.0))])
    assert reason is not None
    assert "KL divergence from the start is 3 nats" in reason
    assert stopped([row(step, 1.0, kl_start=0.9) for step in range(5)]) is None


def test_a_resumed_run_knows_the_earlier_batches() -> None:
    """The first batch is before the interruption."""
    health = Health(HealthConfig(patience=2))
    health.earlier([row(0, 1.0), row(1, 1.0)])
    health.trained(row(2, 0.0))
    with pytest.raises(Unhealthy, match=r"stopped at step 4: .* 0\.00 calls .* down from 1\.00"):
        health.trained(row(3, 0.0))


@pytest.mark.parametrize(("name", "value"), [("grad_norm", math.nan), ("sampler_gap", math.inf)])
def test_a_metric_that_is_not_finite_is_named(name: str, value: float) -> None:
    with pytest.raises(Unhealthy, match=f"{name} is {value}"):
        Health(HealthConfig()).trained(row(0, 0.0) | {name: value})


def test_the_command_prints_the_reason_and_exits_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sick(*args: Any, **options: Any) -> None:
        Health(HealthConfig()).trained(row(6, 1.0, loss=math.nan))

    # The command imports it when it needs it.
    monkeypatch.setattr(run, "train", sick)
    result = train("--recipe", "smol", "--output", str(tmp_path))
    assert result.exit_code == 1
    assert result.stderr.startswith("tirjudge train: rl stopped at step 7: loss is nan")
    assert result.stderr.count("\n") == 1
