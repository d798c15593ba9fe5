"""Held-out accuracy of a trained judge: greedy, with intervals, by format and by family."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from tirjudge.generation import Generator
from tirjudge.generation.transformers import TransformersGenerator
from tirjudge.metrics import Proportion
from tirjudge.records import failed
from tirjudge.rollout import Rollout
from tirjudge_environments import Budget, Call, Environment, Episode, Reward, Score
from tirjudge_sandbox import Execution, Sandbox, open_sandbox
from tirjudge_training.grouping import CORRECT, Draw
from tirjudge_training.miniature import open_environments
from tirjudge_training.synthesis import heldout_tasks


class HeldoutConfig(BaseModel):
    """What a held-out measurement asks."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    n: int = Field(default=500, gt=0)
    """Tasks of each format."""
    seed: int = 0
    """Which tasks; the same for every run, so that runs can be compared."""
    max_tokens: int = Field(default=320, gt=0)
    """New tokens of one trajectory, the sandbox's included."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One held-out task, judged."""

    format: str
    family: str
    correct: bool | None
    """Rc; None when the sandbox or the generator failed, which says nothing about the model."""
    reward: float | None
    verdicts: int
    """Views that ended in a verdict; `views` of them were asked for."""
    views: int
    calls: int
    """Programs asked for, over all views."""
    ran: int
    errors: int
    """Of `ran`, those that did not end by themselves with exit code 0."""


def answer(draw: Draw, episode: Episode, scores: Sequence[Score]) -> Answer:
    calls = [call for trajectory in episode.trajectories for call in trajectory.calls]
    rewards = [score for score in scores if isinstance(score, Reward)]
    scored = len(rewards) == len(scores)
    return Answer(
        format=draw.format,
        family=str(draw.task.gold.get("family", "")),
        correct=all(reward.parts[CORRECT] == 1.0 for reward in rewards) if scored else None,
        reward=sum(reward.total for reward in rewards) / len(rewards) if scored else None,
        verdicts=sum(trajectory.verdict is not None for trajectory in episode.trajectories),
        views=len(episode.trajectories),
        calls=len(calls),
        ran=sum(map(_ran, calls)),
        errors=sum(map(failed, calls)),
    )


def measure(model: Path, config: HeldoutConfig) -> dict[str, Any]:
    """The miniature in folder `model` on `n` held-out tasks of each format: a `summary` of its answers."""
    generator = TransformersGenerator.load(str(model), device="cpu")
    return asyncio.run(_measure(generator, config))


async def _measure(generator: TransformersGenerator, config: HeldoutConfig) -> dict[str, Any]:
    async with open_sandbox() as sandbox:
        answers = await asyncio.gather(
            *(
                _answers(generator, sandbox, format, environment, config)
                for format, environment in open_environments().items()
            )
        )
    await generator.close()
    return summary(one for found in answers for one in found)


async def _answers(
    generator: Generator, sandbox: Sandbox, format: str, environment: Environment, config: HeldoutConfig
) -> list[Answer]:
    rollout = Rollout(environment, generator, sandbox, budget=Budget(tokens=config.max_tokens))
    draws = [Draw(format, task) for task in heldout_tasks(format, config.n, config.seed)]
    episodes = await asyncio.gather(*(rollout.episode(draw.task) for draw in draws))
    return [
        answer(draw, episode, environment.score([episode], {})[0])
        for draw, episode in zip(draws, episodes, strict=True)
    ]


def summary(answers: Iterable[Answer]) -> dict[str, Any]:
    """Per format what a model card and a results file hold; accuracies with Wilson's 95 % interval."""
    formats: dict[str, list[Answer]] = {}
    for one in answers:
        formats.setdefault(one.format, []).append(one)
    return {name: _summary(found) | {"families": _families(found)} for name, found in formats.items()}


def _summary(answers: Sequence[Answer]) -> dict[str, Any]:
    scored = [one for one in answers if one.correct is not None]
    ran = sum(one.ran for one in scored)
    views = sum(one.views for one in scored)
    verdicts = sum(one.verdicts for one in scored)
    return {
        **_accuracy(scored),
        "unscored": len(answers) - len(scored),
        "reward": sum(one.reward or 0.0 for one in scored) / len(scored) if scored else None,
        "verdict_rate": verdicts / views if views else None,
        "calls_per_verdict": sum(one.calls for one in scored) / verdicts if verdicts else None,
        "program_errors": _proportion(Proportion(sum(one.errors for one in scored), ran)),
    }


def _families(answers: Sequence[Answer]) -> dict[str, Any]:
    names = sorted({one.family for one in answers})
    return {
        name: _accuracy([one for one in answers if one.family == name and one.correct is not None])
        for name in names
    }


def _accuracy(scored: Sequence[Answer]) -> dict[str, Any]:
    return {"accuracy": _proportion(Proportion(sum(bool(one.correct) for one in scored), len(scored)))}


def _proportion(found: Proportion) -> dict[str, Any]:
    low, high = found.interval
    return {"rate": found.rate, "low": low, "high": high, "n": found.n, "count": found.successes}


def lines(found: Mapping[str, Any]) -> list[str]:
    """A summary for people: one line a format."""
    return [
        f"{name}: {shown(one['accuracy'])}; program errors {shown(one['program_errors'])}; "
        f"{one['calls_per_verdict'] or 0:.2f} calls per verdict"
        for name, one in found.items()
    ]


def shown(proportion: Mapping[str, Any]) -> str:
    """`92.4% [89.7%, 94.4%], n = 500`."""
    return str(Proportion(proportion["count"], proportion["n"]))


def _ran(call: Call) -> bool:
    return isinstance(call.outcome, Execution)
