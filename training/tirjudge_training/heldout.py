"""Held-out accuracy of a trained judge: greedy, with intervals, by format and by family."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tirjudge.metrics import Proportion
from tirjudge.records import failed
from tirjudge_environments import Call, Episode, Reward, Score
from tirjudge_sandbox import Execution
from tirjudge_training.engine import Engine
from tirjudge_training.grouping import CORRECT, Draw


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


def evaluate(engine: Engine, draws: Sequence[Draw], *, seed: int = 0) -> list[Answer]:
    """Every task once, in the order given; greedy if the engine's sampling is."""
    rollouts = engine.rollouts(seed)

    async def one(draw: Draw) -> Answer:
        rollout = rollouts[draw.format]
        episode = await rollout.episode(draw.task)
        return answer(draw, episode, rollout.environment.score([episode], {})[0])

    async def every() -> list[Answer]:
        return await asyncio.gather(*map(one, draws))

    return engine.run(every())


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


def shown(proportion: Mapping[str, Any]) -> str:
    """`92.4% [89.7%, 94.4%], n = 500`."""
    return str(Proportion(proportion["count"], proportion["n"]))


def _ran(call: Call) -> bool:
    return isinstance(call.outcome, Execution)
