"""A user's own rows as training data: split by prompt, assigned to judges, sampled in shuffled passes.

A plan made before the rows exist uses `ExpectedRows`, which have the same splits but no texts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from tirjudge.data.rows import BadRow, Row
from tirjudge.data.sources import open_rows
from tirjudge_environments import JudgeTask, Message, Prompt, derive_seed
from tirjudge_environments.tasks import Columns, RowError, read_task
from tirjudge_training.corpora.build import DATA, WORK
from tirjudge_training.data.base import (
    FAMILIES,
    SEEDS,
    DataConfig,
    EnvironmentConfig,
    choose_tools,
    data_path,
    has_only,
    open_judges,
    prompt_seed,
    tool_variants,
)
from tirjudge_training.recipe_file import MIXTURES, shipped
from tirjudge_training.rl.dynamic_sampling import FormattedTask
from tirjudge_training.rl.stream import RowStream

JUDGES = {
    "tir-pairwise": EnvironmentConfig(name="tir-pairwise"),
    "tir-listwise": EnvironmentConfig(name="tir-listwise"),
}
"""The judges that rows are given to by default."""
GOLD = {"scores", "checklist"}
"""Columns that some judges learn from instead of a label."""
JUDGE = "environment"
"""The column in which a row may name its judge."""
DEMONSTRATION = "demonstration"
"""The column with the program that a warm-up shows for a row."""
LIST = 5
"""Responses of an expected row whose judge takes no pairs; TIR's lists have four to six."""


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
        held_back = _held_back(rows, config.validation)
        reported = {prompt_seed(row.task) for row in self._heldout}
        self._validation = sorted(
            (row for row in rows if prompt_seed(row.task) in held_back and self._of_families(row)),
            key=lambda row: prompt_seed(row.task),
        )
        # By prompt and not by row: another answer to a validation prompt would leak it.
        seen = held_back | reported
        self._demonstrated = self._trainable(self._read(config.demonstrations), seen)
        left = self._trainable(rows, seen)
        self.too_long: Counter[str] = Counter()
        """Rows per judge whose prompt is longer than `max_prompt_tokens` and that are therefore left out."""
        if tokens is not None and config.max_prompt_tokens is not None:
            left = list(self._short_enough(left, tokens, config.max_prompt_tokens))
        self._reserved, left = self._set_apart([row for row in left if self._copies(row.task)])
        self._train = [row for row in left for _ in range(self._copies(row.task))]
        if not self._train:
            raise ValueError(
                f"{config.train}: no rows are left to train on; validation, reserved and "
                "max_prompt_tokens took all"
            )
        # A batch is counted in views, but passes are counted in rows.
        self._slots = fmean(len(self.environments[row.format].views(row.task)) for row in self._train)
        self._order = lru_cache(maxsize=4)(self._shuffled)

    def counts(self) -> dict[str, dict[str, int]]:
        """Return, per judge, its training rows, repeated by weights above 1, and rows that are too long."""
        rows = Counter(row.format for row in (*self._reserved, *self._train))
        names = sorted(rows.keys() | self.too_long.keys())
        return {name: {"rows": rows[name], "too_long": self.too_long[name]} for name in names}

    def source(self, seed: int, rows: int | None = None, chosen: frozenset[str] | None = None) -> RowStream:
        """Return the stream of the rows in passes, each in an order of its own; it ends after `rows`."""

        @lru_cache(maxsize=4)
        def order(number: int) -> list[FormattedTask]:
            shuffled = (self._train[place] for place in self._order(seed, number))
            return [one for one in shuffled if chosen is None or one.task.id in chosen]

        per_pass = len(order(0))

        def row(position: int) -> FormattedTask:
            number, place = divmod(position, per_pass)
            return order(number)[place]

        return RowStream(row, per_pass=per_pass, limit=rows)

    def steps(self, groups: int, epochs: float) -> tuple[int, int]:
        # In views and not in rows: a batch is full of views, so that no row is left at the end.
        rows = math.ceil(epochs * len(self._train))
        return math.ceil(rows * self._slots / groups), rows

    def prompts(self, n: int | None, seed: int) -> list[FormattedTask]:
        if self._reserved:
            return self._reserved[:n]
        order = self._order(seed, 0)
        # Distinct, because a weight above 1 repeats rows.
        distinct = {self._train[place].task.id: self._train[place] for place in order}
        return list(distinct.values())[:n]

    def validation(self, n: int) -> list[FormattedTask]:
        return tool_variants(_first_per_judge(self._validation, n), self._config.no_tools)

    def heldout(self, n: int, seed: int) -> list[FormattedTask]:
        order = sorted(self._heldout, key=lambda row: derive_seed("held out", seed, row.task.id))
        return tool_variants(_first_per_judge(order, n), self._config.no_tools)

    def demonstrations(self, seed: int) -> list[FormattedTask]:
        found = self._demonstrated
        return Random(derive_seed("demonstrations", seed)).sample(found, len(found))

    def _trainable(self, rows: Iterable[FormattedTask], seen: set[int]) -> list[FormattedTask]:
        """Return the rows that may be trained on, with or without tools."""
        return [
            choose_tools(row, self._config.no_tools)
            for row in rows
            if prompt_seed(row.task) not in seen and self._of_families(row)
        ]

    def _of_families(self, row: FormattedTask) -> bool:
        without = set(self._config.without_families)
        return has_only(row, self._config.families) and not without & set(row.task.gold.get(FAMILIES, ()))

    def _shuffled(self, seed: int, number: int) -> Sequence[int]:
        rows = range(len(self._train))
        return Random(derive_seed("pass", seed, number)).sample(rows, len(rows))

    def _set_apart(self, rows: Sequence[FormattedTask]) -> tuple[list[FormattedTask], list[FormattedTask]]:
        """Return the reserved rows, those with the smallest hash, and the others."""
        # By a hash of the id, so that the rows RL sees do not depend on the order of the file.
        order = sorted(rows, key=lambda row: derive_seed("reserved", row.task.id))
        reserved = order[: self._config.reserved]
        ids = {row.task.id for row in reserved}
        return reserved, [row for row in rows if row.task.id not in ids]

    def _short_enough(
        self, rows: Iterable[FormattedTask], tokens: Callable[[Prompt], int], most: int
    ) -> Iterator[FormattedTask]:
        """Yield the rows with no prompt of more than `most` tokens, and count the others."""
        for row in rows:
            if self._longest(row, tokens) <= most:
                yield row
            else:
                self.too_long[row.format] += 1

    def _longest(self, row: FormattedTask, tokens: Callable[[Prompt], int]) -> int:
        """Return the tokens of the longest prompt among the views of a task."""
        judge = self.environments[row.format]
        return max(tokens(judge.prompt(row.task, view)) for view in judge.views(row.task))

    def _copies(self, task: JudgeTask) -> int:
        """Return how often a row comes in a pass: the weight of its domain, rounded by a hash of the row."""
        weight = self._config.weights.get(task.domain, 1.0)
        copies = int(weight)
        return copies + (derive_seed("weight", task.id) < (weight - copies) * SEEDS)

    def _read(self, path: Path | None) -> Iterator[FormattedTask]:
        """Yield the rows of a file with their judges; raises ValueError for an unusable row."""
        if path is None:
            return
        columns, ids = Columns(**self._config.columns), set()
        for row in open_rows(str(data_path(path))):
            if isinstance(row, BadRow):
                raise ValueError(f"{row.where}: {row.reason}")
            try:
                task = read_task(
                    row.fields, default_id=row.default_id, columns=columns, labels=self._config.labels
                )
            except RowError as error:
                raise ValueError(f"{row.where}: {error}") from None
            # A tie has no label either, but its gold scores can be learned from.
            if task.label is None and not GOLD & task.gold.keys():
                raise ValueError(f"{row.where}: no label: it cannot be trained on")
            if task.id in ids:
                raise ValueError(f"{row.where}: a second row with the id {task.id!r}")
            ids.add(task.id)
            yield FormattedTask(self._judge(row, task), _described(row, task))

    def _judge(self, row: Row, task: JudgeTask) -> str:
        """Return the judge that the row names, or a judge that accepts the row, sampled by weight."""
        named = row.fields.get(JUDGE)
        if named is not None and named not in self._judges:
            raise ValueError(f"{row.where}: no judge {named!r}; there are {', '.join(self._judges)}")
        fit, reason = [], ""
        # A judge refuses a task by raising, since only it knows which responses it can show.
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
    for path in map(data_path, filter(None, (config.train, config.heldout, config.demonstrations))):
        unfinished = (path / WORK).exists() and not (path / DATA).exists()
        if unfinished or not path.exists():
            made = path.parent.name == "data" and path.name in shipped(MIXTURES)
            how = f": `tirjudge data build {path.name}` makes them" if made else ""
            raise FileNotFoundError(f"no rows at {path}, neither a file nor a finished folder of them{how}")


def _held_back(rows: Iterable[FormattedTask], share: float) -> set[int]:
    """Return the hashes of the prompts that are held back for validation."""
    # The smallest hashes: rows that are added later move few prompts from one side to the other.
    kinds: dict[tuple[str, str], set[int]] = {}
    for row in rows:
        kinds.setdefault((row.format, row.task.domain), set()).add(prompt_seed(row.task))
    return {
        prompt
        for prompts in kinds.values()
        for prompt in sorted(prompts)[: max(1, round(share * len(prompts)))]
    }


def _first_per_judge(rows: Iterable[FormattedTask], n: int) -> Iterator[FormattedTask]:
    """Return the first `n` tasks of each judge."""
    judges: dict[str, list[FormattedTask]] = {}
    for row in rows:
        judges.setdefault(row.format, []).append(row)
    return (row for tasks in judges.values() for row in islice(tasks, n))


def _described(row: Row, task: JudgeTask) -> JudgeTask:
    """Return the task with its families and its demonstration, if the row has them, in `gold`."""
    found: dict[str, Any] = {
        name: row.fields[name] for name in (FAMILIES, DEMONSTRATION) if row.fields.get(name)
    }
    if FAMILIES in found:
        families = [str(family) for family in found[FAMILIES]]
        # Tables of results have one line per family, so rows with several share a line.
        name = families[0] if len(families) == 1 else f"{len(families)} constraints"
        found |= {FAMILIES: families, "family": name}
    return replace(task, gold={**task.gold, **found}) if found else task


class ExpectedRows(RowData):
    """Tasks without texts, as many per judge as `tasks` says, split and sampled like real rows."""

    def __init__(
        self,
        config: DataConfig,
        environments: Mapping[str, EnvironmentConfig],
        tasks: Mapping[str, int],
    ) -> None:
        """`tasks` is the number of rows by judge; raises ValueError for a judge that the recipe lacks."""
        self._expected = tasks
        super().__init__(config.model_copy(update={"heldout": None, "demonstrations": None}), environments)

    def _read(self, path: Path | None) -> Iterator[FormattedTask]:
        for name, count in self._expected.items() if path is not None else ():
            if name not in self._judges:
                raise ValueError(f"rates.tasks: no judge {name!r}; there are {', '.join(self._judges)}")
            for number in range(count):
                yield FormattedTask(name, self._task(name, f"{name}-{number}"))

    def _task(self, name: str, id: str) -> JudgeTask:
        """Return a pair, or a list if the judge takes no pairs."""
        pair = _task(id, 2)
        try:
            self._judges[name].views(pair)
        except ValueError:
            return _task(id, LIST)
        return pair


def _task(id: str, responses: int) -> JudgeTask:
    candidates = tuple(str(number) for number in range(responses))
    return JudgeTask(id=id, prompt=(Message("user", id),), candidates=candidates, label=0)
