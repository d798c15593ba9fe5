"""The stage that samples every training row before RL, to leave out rows that teach nothing."""

from __future__ import annotations

from collections.abc import Sequence

from tirjudge.storage.durable_files import RunFolder
from tirjudge.storage.json_lines import JsonObject, read_lines
from tirjudge_training.data.base import Data, trajectories
from tirjudge_training.recipe_file import BadRecipe
from tirjudge_training.rl.dynamic_sampling import FormattedTask
from tirjudge_training.rl.screening import (
    SCREENED,
    ScreenConfig,
    always_right,
    always_wrong,
    screened,
    teaching_rows,
)
from tirjudge_training.stages.base import Run, SamplingStage, Size


class Screen(SamplingStage):
    """Samples each training row with the model that RL starts from; the processes share the rows."""

    config: ScreenConfig

    def work(self, folder: RunFolder, run: Run) -> JsonObject:
        tasks, samples = run.data.prompts(None, self.seed), self.config.samples
        if self.config.passed is not None:
            run.processes.first(lambda: self._take_over(folder, tasks))
        else:
            self.sample(folder, run, tasks, screened, file=SCREENED, samples=samples, unit="rows screened")
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
