"""Placeholder rows, as many as a recipe expects, so that a plan can be made before the rows exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from tirjudge_environments import JudgeTask, Message
from tirjudge_training.data import DataConfig, EnvironmentConfig
from tirjudge_training.grouping import Draw
from tirjudge_training.row_data import RowData

LIST = 5
"""Number of responses for a judge that takes no pairs; TIR's lists have four to six."""


class ExpectedRows(RowData):
    """Tasks without texts, as many per judge as `tasks` says, split and sampled like real rows."""

    def __init__(
        self,
        config: DataConfig,
        environments: Mapping[str, EnvironmentConfig],
        tasks: Mapping[str, int],
    ) -> None:
        """Raises ValueError for a judge that the recipe does not have."""
        self._expected = tasks
        super().__init__(config.model_copy(update={"heldout": None}), environments)

    def _read(self, path: Path | None) -> Iterator[Draw]:
        for name, count in self._expected.items() if path is not None else ():
            if name not in self._judges:
                raise ValueError(f"rates.tasks: no judge {name!r}; there are {', '.join(self._judges)}")
            for number in range(count):
                yield Draw(name, self._task(name, f"{name}-{number}"))

    def _task(self, name: str, id: str) -> JudgeTask:
        pair = _task(id, 2)
        try:
            self._judges[name].views(pair)
        except ValueError:
            return _task(id, LIST)
        return pair


def _task(id: str, responses: int) -> JudgeTask:
    candidates = tuple(str(number) for number in range(responses))
    return JudgeTask(id=id, prompt=(Message("user", id),), candidates=candidates, label=0)
