"""The stage that samples every training row before RL, to leave out rows that teach nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tirjudge.storage.run_folder import JsonObject, RunFolder, read_lines
from tirjudge_environments import Reward, derive_seed
from tirjudge_training.data.base import Data, trajectories
from tirjudge_training.distributed.processes import SharedRows
from tirjudge_training.rl.config import ScreenConfig
from tirjudge_training.rl.dynamic_sampling import CORRECT, FormattedTask, ScoredRollouts, score_tasks
from tirjudge_training.rl.engine import Engine, RolloutConfig
from tirjudge_training.stages.base import Run, Size, Stage

REPORT_EVERY = 50
"""Rows between two lines of progress."""


class Screen(Stage):
    """Samples each training row with the model that RL starts from; the processes share the rows."""

    distributed = True
    config: ScreenConfig
    rollout: RolloutConfig

    def work(self, folder: RunFolder, run: Run) -> JsonObject:
        tasks = run.data.prompts(None, self.seed)
        rows = SharedRows(folder, SCREENED, run.processes)
        if self.config.passed is not None:
            run.processes.first(lambda: self._take_over(folder, tasks))
            return run.processes.first(lambda: self._summary(folder))
        left = rows.left(tasks)
        if left:
            with Engine.load(
                run.model(self.start),
                run.data.environments,
                self.rollout,
                run.reward_questions(folder),
                enable_thinking=run.enable_thinking,
                dtype=run.dtype,
                processes=run.processes,
            ) as engine:
                engine.run(self._sample(engine, left, len(tasks), rows, run))
        rows.merge()
        return run.processes.first(lambda: self._summary(folder))

    def size(self, data: Data) -> Size:
        if self.config.passed is not None:
            return Size(f"rows screened in {self.config.passed}")
        tasks, samples = data.prompts(None, self.seed), self.config.samples
        return Size(f"{len(tasks):,} rows x {samples}", sampled=trajectories(data, tasks) * samples)

    def check(self, data: Data) -> None:
        data.prompts(None, self.seed)  # raises for an endless stream of tasks
        passed = self.config.passed
        if passed is not None and not (passed / SCREENED).is_file():
            raise ValueError(
                f"rl.screen.passed: no {SCREENED} in {passed}: name the folder of a stage `screen`"
            )

    async def _sample(
        self,
        engine: Engine,
        left: Sequence[tuple[int, FormattedTask]],
        total: int,
        rows: SharedRows,
        run: Run,
    ) -> None:
        mine = run.processes.share(left)
        finished = 0
        async for index, rollouts in score_tasks(mine, engine.rollouts(self.seed), size=self.config.samples):
            rows.append({"index": index, **screened(rollouts)})
            finished += 1
            if finished % REPORT_EVERY == 0 or finished == len(mine):
                run.say(f"{finished}/{len(mine)} rows screened, of {total} in all")

    def _take_over(self, folder: RunFolder, tasks: Sequence[FormattedTask]) -> None:
        """Copy the pass of another run; raises ValueError if it lacks a row."""
        assert self.config.passed is not None
        found = {row["id"]: row for row in read_lines(self.config.passed / SCREENED)}
        missing = [task.task.id for task in tasks if task.task.id not in found]
        if missing:
            raise ValueError(
                f"rl.screen.passed: {self.config.passed} lacks {len(missing)} rows of data.train, "
                f"{missing[0]!r} first: screen these rows in a run of their own"
            )
        for index, task in enumerate(tasks):
            folder.append(SCREENED, {**found[task.task.id], "index": index})

    def _summary(self, folder: RunFolder) -> JsonObject:
        rows = list(folder.read(SCREENED))
        known, hopeless = sum(map(always_right, rows)), sum(map(always_wrong, rows))
        chosen = teaching_rows(folder.path, self.config, self.seed)
        return {
            "rows": len(rows),
            "always_right": known,
            "always_wrong": hopeless,
            "replayed": len(chosen) - (len(rows) - known - hopeless),
        }


SCREENED = "screened.jsonl"
"""The file of a pass: for each row its id, its scored `samples`, and how many were `right` in all views."""


def screened(rollouts: ScoredRollouts) -> JsonObject:
    """Return how many scored samples of a row are right in all of their views."""
    scored = [scores for scores in rollouts.scores if all(isinstance(one, Reward) for one in scores)]
    right = sum(
        all(isinstance(one, Reward) and one.parts[CORRECT] == 1.0 for one in scores) for scores in scored
    )
    return {"id": rollouts.formatted.task.id, "samples": len(scored), "right": right}


def always_right(row: JsonObject) -> bool:
    """Return True for a screened row that is right in all of its scored samples, of which there are some."""
    return bool(row["samples"]) and row["right"] == row["samples"]


def always_wrong(row: JsonObject) -> bool:
    """Return True for a screened row that is right in none of its scored samples, of which there are some."""
    return bool(row["samples"]) and not row["right"]


def teaching_rows(folder: Path, config: ScreenConfig, seed: int) -> frozenset[str]:
    """Return the ids of the rows that RL draws from: mixed rows, and a share of rows that are always right.

    Raises ValueError if the pass leaves no mixed row.
    """
    rows = list(read_lines(folder / SCREENED))
    mixed = [row["id"] for row in rows if not (always_right(row) or always_wrong(row))]
    if not mixed:
        raise ValueError(
            f"rl.screen: each of the {len(rows)} rows is always right or always wrong: use other rows, or a "
            "start that is right more or less often"
        )
    known: Iterable[str] = (row["id"] for row in rows if always_right(row))
    replayed = round(len(mixed) * config.replay / (1 - config.replay))
    return frozenset([*mixed, *sorted(known, key=lambda id: derive_seed("replay", seed, id))[:replayed]])
