"""What a miniature gets wrong and how, and whether it ever gets it right: what RL can find or has broken.

    OMP_NUM_THREADS=1 python -m benchmarks.miniature_mistakes runs/mini-0/warmup/model --samples 8

Per judge: trajectories that are right, prompts with at least one of those, outputs that decide and were read
as they say, and how the wrong ones went; then the families below 95 %. Sampled, or greedily with
`--samples 1`, on fresh tasks of the training half unless `--split heldout`.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from tirjudge.statistics import Proportion
from tirjudge_environments import Trajectory
from tirjudge_environments.constraints import FAMILIES
from tirjudge_sandbox import Execution, Status
from tirjudge_training.miniature.model import open_environments
from tirjudge_training.miniature.scripted_teacher import DECISIVE
from tirjudge_training.miniature.synthesis import tasks
from tirjudge_training.miniature.warmup_corpus import SHOWN
from tirjudge_training.rl.dynamic_sampling import FormattedTask, score_tasks
from tirjudge_training.rl.engine import Engine, RolloutConfig

GOOD = 5
"""A lone response with more points than this is called good."""
LOW = 0.95


@dataclass(frozen=True, slots=True)
class Attempt:
    """One trajectory, in shown positions; a lone response is good in position 0 and bad in 1."""

    prompt: str
    """Task and view."""
    family: str
    wanted: int
    decided: int | None
    """What the last program's output says."""
    answered: int | None
    failure: str
    """What kept it from being right, if it was not."""

    @property
    def right(self) -> bool:
        return self.answered == self.wanted


def attempt(draw: FormattedTask, trajectory: Trajectory) -> Attempt:
    order, family = trajectory.view.order, draw.task.gold["family"]
    wanted = order.index(draw.task.label) if draw.task.label in order else 1
    decided = printed(draw.format, trajectory)
    return Attempt(
        prompt=f"{draw.task.id}/{order}",
        family=family,
        wanted=wanted,
        decided=decided,
        answered=answered(trajectory),
        failure=failure(trajectory, FAMILIES[family].checkable, decided, wanted),
    )


def printed(format: str, trajectory: Trajectory) -> int | None:
    if not trajectory.calls or not isinstance(outcome := trajectory.calls[-1].outcome, Execution):
        return None
    lines = outcome.stdout.splitlines()
    return next((i for i, decisive in enumerate(DECISIVE[SHOWN[format]]) if lines == list(decisive)), None)


def answered(trajectory: Trajectory) -> int | None:
    verdict = trajectory.verdict
    if verdict is None or verdict.choice is not None:
        return None if verdict is None else trajectory.view.order.index(verdict.choice)
    return next((0 if score > GOOD else 1 for score in verdict.scores.values()), None)


def failure(trajectory: Trajectory, checkable: bool, decided: int | None, wanted: int) -> str:
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
    read = [one for one in found if one.decided is not None and FAMILIES[one.family].checkable]
    print(f"{format}: {share(one.right for one in found)}")
    print(f"  right at least once: {share(at_least_once(found))}")
    print(f"  read as the output says: {share(one.answered == one.decided for one in read)}")
    print(f"  wrong: {ways(found)}")
    families = defaultdict(list)
    for one in found:
        families[one.family].append(one)
    for name, those in sorted(families.items(), key=lambda item: share(one.right for one in item[1]).rate):
        if share(one.right for one in those).rate < LOW:
            once = share(at_least_once(those)).rate
            print(f"    {name}: {share(one.right for one in those).rate:.2f} ({once:.2f})  {ways(those)}")


def share(values: Iterable[bool]) -> Proportion:
    listed = list(values)
    return Proportion(sum(listed), len(listed))


def at_least_once(found: Iterable[Attempt]) -> list[bool]:
    prompts = defaultdict(bool)
    for one in found:
        prompts[one.prompt] |= one.right
    return list(prompts.values())


def ways(found: Iterable[Attempt]) -> str:
    counts = Counter(one.failure for one in found if not one.right)
    return ", ".join(f"{count} {way}" for way, count in counts.most_common()) or "none"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="a trained folder")
    parser.add_argument("--split", choices=("train", "heldout"), default="train")
    parser.add_argument("--n", type=int, default=150, help="tasks of each judge")
    parser.add_argument("--samples", type=int, default=8, help="per task; 1 is greedy")
    parser.add_argument("--seed", type=int, default=1000, help="which tasks")
    options = parser.parse_args()
    config = RolloutConfig(temperature=float(options.samples > 1), max_tokens=144, program_cpu_seconds=1.0)
    environments = open_environments()
    draws = [
        FormattedTask(name, task)
        for name in environments
        for task in tasks(options.split, name, options.n, options.seed)
    ]
    found: dict[str, list[Attempt]] = {name: [] for name in environments}

    async def collect(engine: Engine) -> None:
        async for _, roll in score_tasks(
            enumerate(draws), engine.rollouts(options.seed), size=options.samples
        ):
            for episode in roll.episodes:
                found[roll.draw.format] += [attempt(roll.draw, one) for one in episode.trajectories]

    with Engine.load(options.model, environments, config) as engine:
        engine.run(collect(engine))
    for name, attempts in found.items():
        report(name, attempts)


if __name__ == "__main__":
    main()
