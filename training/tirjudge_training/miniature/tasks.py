"""The miniature's data: an endless stream of generated tasks, with a share of the prompts held back."""

from __future__ import annotations

from itertools import count

from tirjudge_environments import derive_seed
from tirjudge_training.data.base import (
    SEEDS,
    DataConfig,
    EnvironmentConfig,
    choose_tools,
    open_judges,
    tool_variants,
)
from tirjudge_training.miniature.model import ENVIRONMENT
from tirjudge_training.miniature.synthesis import (
    CANDIDATES,
    MIXTURE,
    heldout_tasks,
    train_task,
    validation_tasks,
)
from tirjudge_training.rl.dynamic_sampling import FormattedTask
from tirjudge_training.rl.stream import TaskSource

STRIDE = 4
"""Positions of the stream that a batch may use, per slot."""


class GeneratedData:
    """Training tasks from one half of the words, thresholds and wordings of the checkable constraints.

    Validation uses prompts of that half which training leaves out; held-out tasks come from the other half.
    """

    def __init__(self, config: DataConfig) -> None:
        judges = {name: EnvironmentConfig(name=name, options=ENVIRONMENT) for name in CANDIDATES}
        self._config = config
        _, self.environments = open_judges(judges, config.no_tools)

    def source(
        self, groups: int, seed: int, rows: int | None = None, chosen: frozenset[str] | None = None
    ) -> TaskSource:
        def sample_task(step: int, round_number: int, position: int) -> FormattedTask:
            # Replacements come from a stream of their own, so they never use up tasks of later batches.
            stream = (
                derive_seed("rl", seed)
                if round_number == 0
                else derive_seed("rl replacement", seed, round_number)
            )
            return self._task(step * STRIDE * groups + position, stream)

        return sample_task

    def steps(self, groups: int, epochs: float) -> tuple[int, int]:
        raise ValueError("the miniature's task stream is endless: set the number of batches with rl.steps")

    def prompts(self, n: int | None, seed: int) -> list[FormattedTask]:
        if n is None:
            raise ValueError(
                "the miniature's task stream is endless: set the number of tasks with rejection.prompts"
            )
        stream = derive_seed("prompts", seed)
        return [self._task(index, stream) for index in range(n)]

    def validation(self, n: int) -> list[FormattedTask]:
        tasks = [FormattedTask(format, task) for format in CANDIDATES for task in validation_tasks(format, n)]
        return tool_variants(tasks, self._config.no_tools)

    def heldout(self, n: int, seed: int) -> list[FormattedTask]:
        tasks = [
            FormattedTask(format, task) for format in CANDIDATES for task in heldout_tasks(format, n, seed)
        ]
        return tool_variants(tasks, self._config.no_tools)

    def _task(self, index: int, seed: int) -> FormattedTask:
        """Return element `index` of a stream, sampled again until the weight of its domain accepts it."""
        weights = self._config.weights
        for attempt in count():
            attempt_seed = derive_seed("again", seed, attempt) if attempt else seed
            formatted = train_task(index, attempt_seed, formats={**MIXTURE, **self._config.formats})
            # Rejection sampling: relative to the largest weight, so that every chance is at most 1.
            chance = weights.get(formatted.task.domain, 1.0) / max(1.0, *weights.values(), 0.0)
            if derive_seed("weight", formatted.task.id) < chance * SEEDS:
                return choose_tools(formatted, self._config.no_tools)
        raise AssertionError("unreachable")
