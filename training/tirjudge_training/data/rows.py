"""A user's own rows as training data: split by prompt, assigned to judges, sampled in shuffled passes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from random import Random
from statistics import fmean

from tirjudge.data.rows import BadRow, Row
from tirjudge.data.sources import open_rows
from tirjudge_environments import JudgeTask, Message, Prompt, derive_seed
from tirjudge_environments.tasks import Columns, RowError, read_task
from tirjudge_training.config_files import MIXTURES, shipped
from tirjudge_training.corpora.build import DATA, WORK
from tirjudge_training.data.base import (
    WHOLE,
    DataConfig,
    EnvironmentConfig,
    choose_tools,
    open_judges,
    prompt_seed,
    tool_variants,
)
from tirjudge_training.rl.dynamic_sampling import FormattedTask
from tirjudge_training.rl.trainer import TaskSource

JUDGES = {
    "tir-pairwise": EnvironmentConfig(name="tir-pairwise"),
    "tir-listwise": EnvironmentConfig(name="tir-listwise"),
}
"""The judges that rows are given to by default."""
GOLD = {"scores", "checklist"}
"""Columns that some judges learn from instead of a label."""
JUDGE = "environment"
"""The column in which a row may name its judge."""


class RowData:
    """Labelled rows, split into training and validation rows by their prompt.

    For each judge and domain, the validation share of the prompts is held back, at least one: those with the
    smallest hash, so that a prompt in several of them is held back in all. A row whose prompt is held back
    anywhere, or is in the held-out file, is never trained on.
    """

    def __init__(
        self,
        config: DataConfig,
        environments: Mapping[str, EnvironmentConfig],
        *,
        tokens: Callable[[Prompt], int] | None = None,
    ) -> None:
        """Read all rows; raises ValueError, with file and line, for a row that cannot be used.

        `tokens` counts the tokens of a judge's prompt, for `max_prompt_tokens`.
        """
        self._config = config
        self._judges, self.environments = open_judges(environments or JUDGES, config.no_tools)
        rows = list(self._read(config.train))
        self._heldout = list(self._read(config.heldout))
        back = _held_back(rows, config.validation)
        reported = {prompt_seed(draw.task) for draw in self._heldout}
        self._validation = sorted(
            (draw for draw in rows if prompt_seed(draw.task) in back), key=lambda d: prompt_seed(d.task)
        )
        # By prompt and not by row: another answer to a validation prompt would leak it.
        seen = back | reported
        left = [choose_tools(draw, config.no_tools) for draw in rows if prompt_seed(draw.task) not in seen]
        if tokens is not None and config.max_prompt_tokens is not None:
            left = [draw for draw in left if self._longest(draw, tokens) <= config.max_prompt_tokens]
        self._reserved, left = self._set_apart([draw for draw in left if self._copies(draw.task)])
        self._train = [draw for draw in left for _ in range(self._copies(draw.task))]
        if not self._train:
            raise ValueError(
                f"{config.train}: no rows are left to train on; validation, reserved and "
                "max_prompt_tokens took all"
            )
        self._slots = fmean(len(self.environments[d.format].views(d.task)) for d in self._train)
        self._order = lru_cache(maxsize=4)(self._shuffled)

    def source(self, groups: int, seed: int) -> TaskSource:
        """Return passes over the rows, each in an order of its own; replacements are the rows that follow."""
        stride = self._stride(groups)

        def deal(step: int, turn: int, position: int) -> FormattedTask:
            number, place = divmod(step * stride + turn * groups + position, len(self._train))
            return self._train[self._order(seed, number)[place]]

        return deal

    def steps(self, groups: int, epochs: float) -> int:
        return math.ceil(epochs * len(self._train) / self._stride(groups))

    def prompts(self, n: int | None, seed: int) -> list[FormattedTask]:
        if self._reserved:
            return self._reserved[:n]
        order = self._order(seed, 0)
        distinct = {self._train[place].task.id: self._train[place] for place in order}
        return list(distinct.values())[:n]

    def validation(self, n: int) -> list[FormattedTask]:
        return tool_variants(_of_each(self._validation, n), self._config.no_tools)

    def heldout(self, n: int, seed: int) -> list[FormattedTask]:
        order = sorted(self._heldout, key=lambda draw: derive_seed("held out", seed, draw.task.id))
        return tool_variants(_of_each(order, n), self._config.no_tools)

    def _stride(self, groups: int) -> int:
        """Return the number of rows that fill a batch of `groups` slots."""
        return max(1, round(groups / self._slots))

    def _shuffled(self, seed: int, number: int) -> Sequence[int]:
        rows = range(len(self._train))
        return Random(derive_seed("pass", seed, number)).sample(rows, len(rows))

    def _set_apart(self, draws: Sequence[FormattedTask]) -> tuple[list[FormattedTask], list[FormattedTask]]:
        """Return the reserved rows, those with the smallest hash, and the others."""
        # By a hash of the id, so that the rows RL sees do not depend on the order of the file.
        order = sorted(draws, key=lambda draw: derive_seed("reserved", draw.task.id))
        apart = order[: self._config.reserved]
        ids = {draw.task.id for draw in apart}
        return apart, [draw for draw in draws if draw.task.id not in ids]

    def _longest(self, draw: FormattedTask, tokens: Callable[[Prompt], int]) -> int:
        """Return the tokens of the longest prompt among the views of a task."""
        judge = self.environments[draw.format]
        return max(tokens(judge.prompt(draw.task, view)) for view in judge.views(draw.task))

    def _copies(self, task: JudgeTask) -> int:
        """Return how often a row comes in a pass: the weight of its domain, rounded by a hash of the row."""
        weight = self._config.weights.get(task.domain, 1.0)
        whole = int(weight)
        return whole + (derive_seed("weight", task.id) < (weight - whole) * WHOLE)

    def _read(self, path: Path | None) -> Iterator[FormattedTask]:
        if path is None:
            return
        columns, ids = Columns(**self._config.columns), set()
        for row in open_rows(str(path)):
            if isinstance(row, BadRow):
                raise ValueError(f"{row.where}: {row.reason}")
            try:
                task = read_task(
                    row.fields, default_id=row.default_id, columns=columns, labels=self._config.labels
                )
            except RowError as error:
                raise ValueError(f"{row.where}: {error}") from None
            if task.label is None and not GOLD & task.gold.keys():
                raise ValueError(f"{row.where}: no label: it cannot be trained on")
            if task.id in ids:
                raise ValueError(f"{row.where}: a second row with the id {task.id!r}")
            ids.add(task.id)
            yield FormattedTask(self._judge(row, task), task)

    def _judge(self, row: Row, task: JudgeTask) -> str:
        """Return the judge that the row names, or one that accepts it, sampled by weight."""
        named = row.fields.get(JUDGE)
        if named is not None and named not in self._judges:
            raise ValueError(f"{row.where}: no judge {named!r}; there are {', '.join(self._judges)}")
        fit, reason = [], ""
        for name in self._judges if named is None else (named,):
            try:
                self._judges[name].views(task)
                fit.append(name)
            except ValueError as error:
                reason = str(error)
        weights = [self._config.formats.get(name, 1.0) for name in fit]
        if not any(weights):
            raise ValueError(f"{row.where}: no judge accepts it: {reason or 'their weights are 0'}")
        return Random(derive_seed("judge", task.id)).choices(fit, weights)[0]


def require_rows(config: DataConfig) -> None:
    """Look for the rows before loading a model; raises FileNotFoundError with the command that makes them."""
    for path in filter(None, (config.train, config.heldout)):
        unfinished = (path / WORK).exists() and not (path / DATA).exists()
        if unfinished or not path.exists():
            made = path.parent.name == "data" and path.name in shipped(MIXTURES)
            how = f": `tirjudge data build {path.name}` makes them" if made else ""
            raise FileNotFoundError(f"no rows at {path}, neither a file nor a finished folder of them{how}")


def _held_back(rows: Iterable[FormattedTask], share: float) -> set[int]:
    """Return the hashes of the prompts that are held back for validation."""
    # The smallest hashes: rows that are added later move few prompts from one side to the other.
    kinds: dict[tuple[str, str], set[int]] = {}
    for draw in rows:
        kinds.setdefault((draw.format, draw.task.domain), set()).add(prompt_seed(draw.task))
    return {
        prompt for found in kinds.values() for prompt in sorted(found)[: max(1, round(share * len(found)))]
    }


def _of_each(draws: Iterable[FormattedTask], n: int) -> Iterator[FormattedTask]:
    """Return the first `n` tasks of each judge."""
    kinds: dict[str, list[FormattedTask]] = {}
    for draw in draws:
        kinds.setdefault(draw.format, []).append(draw)
    return (draw for found in kinds.values() for draw in islice(found, n))


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

    def _read(self, path: Path | None) -> Iterator[FormattedTask]:
        for name, count in self._expected.items() if path is not None else ():
            if name not in self._judges:
                raise ValueError(f"rates.tasks: no judge {name!r}; there are {', '.join(self._judges)}")
            for number in range(count):
                yield FormattedTask(name, self._task(name, f"{name}-{number}"))

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
