"""The stage that samples every training row before RL, to leave out rows that teach nothing."""

from __future__ import annotations

from collections.abc import Sequence

from tirjudge.progress import ProgressReporter
from tirjudge.storage.durable_files import RunFolder
from tirjudge.storage.json_lines import JsonObject, read_lines
from tirjudge_training.data.base import Data, trajectories
from tirjudge_training.distributed.processes import SharedRows
from tirjudge_training.recipe_file import BadRecipe
from tirjudge_training.rl.dynamic_sampling import FormattedTask, score_tasks
from tirjudge_training.rl.rollout_engine import Engine, RolloutConfig
from tirjudge_training.rl.screening import (
    SCREENED,
    ScreenConfig,
    always_right,
    always_wrong,
    screened,
    teaching_rows,
)
from tirjudge_training.stages.base import Run, Size, Stage


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
        progress = ProgressReporter(run.say, unit=f"rows screened, {total} in all", total=len(mine))
        async for index, rollouts in score_tasks(mine, engine.rollouts(self.seed), size=self.config.samples):
            rows.append({"index": index, **screened(rollouts)})
            progress.count(index)
        if mine:
            progress.report()

    def _take_over(self, folder: RunFolder, tasks: Sequence[FormattedTask]) -> None:
        """Copy the pass of another run; raises BadRecipe if it lacks a row."""
        assert self.config.passed is not None
        found = {row["id"]: row for row in read_lines(self.config.passed / SCREENED)}
        missing = [task.task.id for task in tasks if task.task.id not in found]
        if missing:
            raise BadRecipe(
                f"rl.screen.passed: {self.config.passed} lacks {len(missing)} rows of data.train, "
                f"{missing[0]!r} first: screen these rows in a run of their own"
            )
        copied = {row["index"] for row in folder.read(SCREENED)}
        rows = ({**found[task.task.id], "index": index} for index, task in enumerate(tasks))
        folder.append(SCREENED, *(row for row in rows if row["index"] not in copied))

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
