"""A miniature's mistakes by kind and family, which show what RL can still improve or has made worse.

    OMP_NUM_THREADS=1 python -m benchmarks.miniature_mistakes runs/mini-0/warmup/model --samples 8

Prints, per judge, the share of right trajectories, of prompts with at least one right trajectory, and of
decisive outputs whose verdict follows them; then the kinds of mistakes, and the families below 95 %. Answers
are sampled, or greedy with `--samples 1`. The tasks are new ones of the training half; `--split heldout`
takes the other half.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from examples.miniature.constraints import FAMILIES
from examples.miniature.model import open_environments
from examples.miniature.scripted_teacher import DECISIVE
from examples.miniature.synthesis import tasks
from examples.miniature.warmup_corpus import SHOWN
from tirjudge.statistics import Proportion
from tirjudge_environments import Trajectory
from tirjudge_sandbox import Execution, Status
from tirjudge_training.rl.dynamic_sampling import FormattedTask, score_tasks
from tirjudge_training.rl.rollout_engine import Engine, RolloutConfig

GOOD = 5
"""A single response with a higher score than this counts as judged good."""
LOW = 0.95
"""Families with a smaller share of right trajectories are listed."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The outcome of one trajectory.

    Positions are those in which the responses were shown; for a single response, 0 is good and 1 is bad.
    """

    prompt: str
    """The id of the task with the order of its view."""
    family: str
    wanted: int
    decided: int | None
    """The position that the last program's output decides for."""
    answered: int | None
    failure: str
    """The kind of mistake; only meaningful if the answer is not right."""

    @property
    def right(self) -> bool:
        return self.answered == self.wanted


def attempt(formatted: FormattedTask, trajectory: Trajectory) -> Attempt:
    """Return the outcome of a trajectory."""
    task = formatted.task
    order, family = trajectory.view.order, task.gold["family"]
    wanted = order.index(task.label) if task.label in order else 1
    decided = printed(formatted.format, trajectory)
    return Attempt(
        prompt=f"{task.id}/{order}",
        family=family,
        wanted=wanted,
        decided=decided,
        answered=answered(trajectory),
        failure=failure(trajectory, FAMILIES[family].checkable, decided, wanted),
    )


def printed(format: str, trajectory: Trajectory) -> int | None:
    """Return the position that the last program's output decides for; None if it decides nothing."""
    if not trajectory.calls or not isinstance(outcome := trajectory.calls[-1].outcome, Execution):
        return None
    lines = outcome.stdout.splitlines()
    return next((i for i, decisive in enumerate(DECISIVE[SHOWN[format]]) if lines == list(decisive)), None)


def answered(trajectory: Trajectory) -> int | None:
    """Return the position of the verdict; None without a verdict."""
    verdict = trajectory.verdict
    if verdict is None or verdict.choice is not None:
        return None if verdict is None else trajectory.view.order.index(verdict.choice)
    return next((0 if score > GOOD else 1 for score in verdict.scores.values()), None)


def failure(trajectory: Trajectory, checkable: bool, decided: int | None, wanted: int) -> str:
    """Name the kind of mistake, as if the trajectory were wrong."""
    if trajectory.verdict is None:
        return "no verdict"
    if not trajectory.calls:
        return "no program"
    outcome = trajectory.calls[-1].outcome
    if not isinstance(outcome, Execution) or outcome.status is not Status.OK:
        return "program error"
    if not checkable:
        return "needless program"
    if decided is None:
        return "output decides nothing"
    return "misread" if decided == wanted else "program decides wrongly"


def report(format: str, found: list[Attempt]) -> None:
    """Print the shares and the mistakes of one judge."""
    decisive = [one for one in found if one.decided is not None and FAMILIES[one.family].checkable]
    print(f"{format}: {share(one.right for one in found)}")
    print(f"  right at least once: {share(at_least_once(found))}")
    print(f"  verdict follows a decisive output: {share(one.answered == one.decided for one in decisive)}")
    print(f"  wrong: {ways(found)}")
    families = defaultdict(list)
    for one in found:
        families[one.family].append(one)
    rates = {name: share(one.right for one in attempts).rate for name, attempts in families.items()}
    for name in sorted(families, key=lambda name: rates[name]):
        if rates[name] < LOW:
            once = share(at_least_once(families[name])).rate
            print(f"    {name}: {rates[name]:.2f} ({once:.2f})  {ways(families[name])}")


def share(values: Iterable[bool]) -> Proportion:
    """Return the proportion of true values."""
    listed = list(values)
    return Proportion(sum(listed), len(listed))


def at_least_once(found: Iterable[Attempt]) -> list[bool]:
    """Return, for each prompt, whether one of its attempts is right."""
    prompts = defaultdict(bool)
    for one in found:
        prompts[one.prompt] |= one.right
    return list(prompts.values())


def ways(found: Iterable[Attempt]) -> str:
    """Format the counts of mistakes by kind, the most common first."""
    counts = Counter(one.failure for one in found if not one.right)
    return ", ".join(f"{count} {way}" for way, count in counts.most_common()) or "none"


def main() -> None:
    """Roll out all tasks and print a report per judge."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="the model folder of a trained miniature")
    parser.add_argument(
        "--split", choices=("train", "heldout"), default="train", help="the half of the words"
    )
    parser.add_argument("--n", type=int, default=150, help="tasks per judge")
    parser.add_argument("--samples", type=int, default=8, help="samples per task; 1 is greedy")
    parser.add_argument("--seed", type=int, default=1000, help="chooses the tasks")
    options = parser.parse_args()
    config = RolloutConfig(temperature=float(options.samples > 1), max_tokens=144, program_cpu_seconds=1.0)
    environments = open_environments()
    formatted_tasks = [
        FormattedTask(name, task)
        for name in environments
        for task in tasks(options.split, name, options.n, options.seed)
    ]
    found: dict[str, list[Attempt]] = {name: [] for name in environments}

    async def collect(engine: Engine) -> None:
        async for _, rollouts in score_tasks(
            enumerate(formatted_tasks), engine.rollouts(options.seed), size=options.samples
        ):
            formatted = rollouts.formatted
            for episode in rollouts.episodes:
                found[formatted.format] += [attempt(formatted, one) for one in episode.trajectories]

    with Engine.load(options.model, environments, config) as engine:
        engine.run(collect(engine))
    for name, attempts in found.items():
        report(name, attempts)


if __name__ == "__main__":
    main()
