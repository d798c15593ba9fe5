"""A user's own rows as training data: split by prompt, assigned to judges, sampled in shuffled passes.

A plan made before the rows exist uses `ExpectedRows`, which have the same splits but no texts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from tirjudge.data.rows import BadRow, Row
from tirjudge.data.sources import open_rows
from tirjudge_environments import ChatEncoder, JudgeTask, Message, derive_seed
from tirjudge_environments.boundary import shown_later, shown_prompt
from tirjudge_environments.files.folder import Folder
from tirjudge_environments.tasks import Columns, RowError, read_task
from tirjudge_environments.tasks.conversion import named_folders
from tirjudge_training.corpora.build import DATA, WORK
from tirjudge_training.data.base import (
    FAMILIES,
    SEEDS,
    TRAIN,
    DataConfig,
    EnvironmentConfig,
    choose_tools,
    data_path,
    has_only,
    open_judges,
    prompt_seed,
    row_seed,
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
"""The column with what a warm-up shows for a row: its `program`, and the counts that it prints."""
PROGRAM = "program"
"""The column with a program alone."""
LIST = 5
"""Responses of an expected row whose judge takes no pairs; TIR's lists have four to six."""


class RowData:
    """Labelled rows, split by their prompt into rows to train on, to choose checkpoints with and to measure.

    For each judge and domain, the validation share of the prompts is held back, at least one unless it is the
    only one: those with the smallest hash, so that a prompt in several of them is held back in all. So is the
    held-out share before, if `data.heldout` is one. A row whose prompt is held back anywhere, or is in the
    held-out file, is never trained on, and one with a held-out prompt chooses no checkpoint. Rows that all
    have one prompt are split by row. Rows whose label is a tie are left out, unless they have something else
    to learn from.
    """

    def __init__(
        self,
        config: DataConfig,
        environments: Mapping[str, EnvironmentConfig],
        *,
        encoder: ChatEncoder | None = None,
    ) -> None:
        """Read all rows; raises ValueError, with file and line, for a row that cannot be used.

        `encoder` counts the tokens of a judge's prompt, for `max_prompt_tokens`.
        """
        self._config = config
        self._judges, self.environments = open_judges(environments or JUDGES, config.no_tools)
        if unknown := config.formats.keys() - self._judges.keys():
            raise ValueError(f"data.formats: no judge {min(unknown)!r}; there are {', '.join(self._judges)}")
        self._ties = 0
        self._folders: dict[str, Folder] = {}
        self.folders: dict[str, dict[str, str]] = {}
        """Digests of the folders and archives that rows name, by recipe key and by path beside the rows."""
        rows = list(self._read("train"))
        self._one_prompt = len(rows) > 1 and len({prompt_seed(row.task) for row in rows}) == 1
        share = config.heldout if isinstance(config.heldout, float) else None
        measured = self._held_back(rows, share, "held out") if share is not None else set()
        others = [row for row in rows if self._split_seed(row) not in measured]
        self._heldout = (
            [row for row in rows if self._split_seed(row) in measured]
            if share is not None
            else list(self._read("heldout"))
        )
        reported = {self._split_seed(row) for row in self._heldout}
        if isinstance(config.validation, Path):
            choosing = list(self._read("validation"))
            held_back = {self._split_seed(row) for row in choosing}
        else:
            choosing = [row for row in others if self._split_seed(row) not in reported]
            held_back = self._held_back(choosing, config.validation)
            choosing = [row for row in choosing if self._split_seed(row) in held_back]
        # In the order of a hash, so that the first tasks, which a validation takes, are a random choice.
        self._validation = sorted(
            # The step must not be chosen by prompts that the reported accuracy is measured on.
            (row for row in choosing if self._of_families(row) and self._split_seed(row) not in reported),
            key=self._split_seed,
        )
        # By prompt and not by row: another answer to a validation prompt would leak it.
        seen = held_back | reported
        left = self._trainable(rows, seen)
        self.split = self._described_split(rows, others, left, seen)
        """One line about the rows that were read: how many are held back, and why others are left out."""
        if not left and not (config.families or config.without_families):
            need = 2 if share is None else 3
            what = "different rows on their one prompt" if self._one_prompt else "prompts"
            raise ValueError(
                f"{config.train}: too few rows to split ({self.split}): at least {need} {what} are needed, "
                f"to train on, to choose the step{' and to measure the judge' * (need > 2)}"
            )
        if config.demonstrations == TRAIN:
            shown = [row for row in left if DEMONSTRATION in row.task.gold]
        else:
            shown = self._trainable(self._read("demonstrations"), seen)
        # A row without a label, such as a tie with gold scores, has no verdict to demonstrate.
        self._demonstrated = [row for row in shown if row.task.label is not None]
        self.too_long: Counter[str] = Counter()
        """Rows per judge whose prompt is longer than `max_prompt_tokens` and that are therefore left out."""
        if encoder is not None and config.max_prompt_tokens is not None:
            left = list(self._short_enough(left, encoder, config.max_prompt_tokens))
        # Rows whose weight leaves them out are not set apart either.
        self._reserved, left = self._set_apart([row for row in left if self._copies(row.task)])
        self._train = [row for row in left for _ in range(self._copies(row.task))]
        if not self._train:
            raise ValueError(
                f"{config.train}: no rows are left to train on; validation, heldout, families, weights, "
                "reserved and max_prompt_tokens took all"
            )
        # A batch is counted in views, but passes are counted in rows.
        views = [len(self.environments[row.format].views(row.task)) for row in self._train]
        self._slots, self._alike = fmean(views), views[0] if len(set(views)) == 1 else 1
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

        # Every pass has the same rows in another order, so that the first one has the length of all.
        per_pass = len(order(0))

        def row(position: int) -> FormattedTask:
            number, place = divmod(position, per_pass)
            return order(number)[place]

        return RowStream(row, per_pass=per_pass, limit=rows)

    def steps(self, groups: int, epochs: float) -> tuple[int, int]:
        # In views and not in rows: a batch is full of views, so that no row is left at the end. If all tasks
        # have the same number of views, slots that are too few for one more task stay empty.
        rows = math.ceil(epochs * len(self._train))
        filled = groups - groups % self._alike or groups
        return math.ceil(rows * self._slots / filled), rows

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

    def _split_seed(self, row: FormattedTask) -> int:
        """Return the hash that decides on the side of a row: that of its prompt, if there are several."""
        return row_seed(row.task) if self._one_prompt else prompt_seed(row.task)

    def _held_back(self, rows: Iterable[FormattedTask], share: float, draw: str = "") -> set[int]:
        """Return the hashes that are held back, this share of each judge and domain.

        A split in addition to that of validation has a `draw` of its own, a name.
        """
        # The smallest hashes: rows that are added later move few prompts from one side to the other.
        kinds: dict[tuple[str, str], set[int]] = {}
        for row in rows:
            kinds.setdefault((row.format, row.task.domain), set()).add(self._split_seed(row))
        every = set().union(*kinds.values())

        def order(seed: int) -> int:
            return derive_seed(draw, seed) if draw else seed

        held = {
            seed
            for seeds in kinds.values()
            for seed in sorted(seeds, key=order)[: min(max(1, round(share * len(seeds))), len(seeds) - 1)]
        }
        return held or set(sorted(every, key=order)[:1])

    def _described_split(
        self,
        rows: Sequence[FormattedTask],
        others: Sequence[FormattedTask],
        left: Sequence[FormattedTask],
        seen: set[int],
    ) -> str:
        """Return one line about the split; rows without a part in it are not mentioned."""

        def of(some: Sequence[FormattedTask]) -> str:
            prompts = len({prompt_seed(row.task) for row in some})
            known = "" if self._one_prompt else f" of {prompts:,} prompt{'s' * (prompts != 1)}"
            return f"{len(some):,} row{'s' * (len(some) != 1)}{known}"

        own = [] if isinstance(self._config.validation, Path) else self._validation
        ids = {row.task.id for row in own}
        parts = [f"{of(rows)} with one prompt, split by row" if self._one_prompt else of(rows)]
        if len(others) < len(rows):
            parts.append(f"{of(self._heldout)} held out to measure the judge")
        parts.append(f"{of(self._validation)} {'held back ' * bool(own)}to choose the step")
        shared = [row for row in others if self._split_seed(row) in seen and row.task.id not in ids]
        shared = [row for row in shared if self._of_families(row)]
        if shared:
            parts.append(f"{of(shared)} left out that share a prompt with data.heldout or data.validation")
        if families := len(others) - len(left) - len(own) - len(shared):
            parts.append(f"{families:,} of other families left out")
        if self._ties:
            parts.append(f"{self._ties:,} tie{'s' * (self._ties != 1)} left out")
        domains = {row.task.domain for row in rows}
        if any(domains) and (unused := sorted(self._config.weights.keys() - domains)):
            parts.append(f"data.weights names domains that no row has: {', '.join(unused)}")
        return f"{parts[0]}: {', '.join(parts[1:])}"

    def _trainable(self, rows: Iterable[FormattedTask], seen: set[int]) -> list[FormattedTask]:
        """Return the rows that may be trained on, with or without tools."""
        return [
            choose_tools(row, self._config.no_tools)
            for row in rows
            if self._split_seed(row) not in seen and self._of_families(row)
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
        self, rows: Iterable[FormattedTask], encoder: ChatEncoder, most: int
    ) -> Iterator[FormattedTask]:
        """Yield the rows with no prompt of more than `most` tokens, and count the others."""
        for row in rows:
            if self._longest(row, encoder) <= most:
                yield row
            else:
                self.too_long[row.format] += 1

    def _longest(self, row: FormattedTask, encoder: ChatEncoder) -> int:
        """Return the tokens of the longest prompt among the views of a task, with what is shown later."""
        judge = self.environments[row.format]
        return max(
            len(encoder.prompt(shown_prompt(judge, row.task, view)))
            + len(encoder.text(shown_later(judge, row.task, view)))
            for view in judge.views(row.task)
        )

    def _copies(self, task: JudgeTask) -> int:
        """Return how often a row comes in a pass: the weight of its domain, rounded by a hash of the row."""
        weight = self._config.weights.get(task.domain, 1.0)
        copies = int(weight)
        return copies + (derive_seed("weight", task.id) < (weight - copies) * SEEDS)

    def _read(self, key: str) -> Iterator[FormattedTask]:
        """Yield the rows of `data.KEY` with their judges; raises ValueError for an unusable row."""
        path = getattr(self._config, key)
        if not isinstance(path, Path):
            return
        columns, ids = Columns(**self._config.columns), set()
        demonstrated = self._config.demonstrations is not None
        for row in open_rows(str(data_path(path))):
            if isinstance(row, BadRow):
                raise ValueError(f"{row.where}: {row.reason}")
            try:
                task = read_task(
                    row.fields,
                    default_id=row.default_id,
                    columns=columns,
                    labels=self._config.labels,
                    beside=row.beside,
                )
            except RowError as error:
                raise ValueError(f"{row.where}: {error}") from None
            if task.files or task.prompt_files.files:
                named = named_folders(row.fields, task, columns)
                self._note_folders(f"data.{key}", data_path(path).absolute(), row, named)
                task = self._with_shared_folders(task)
            # A label is about one question: judging asks for each criterion in a dialogue of its own.
            if len(task.criteria) > 1:
                raise ValueError(
                    f"{row.where}: {len(task.criteria)} criteria and one label: write a row for each "
                    "criterion, with the label by this criterion alone"
                )
            if demonstrated and not isinstance(row.fields.get(PROGRAM) or "", str):
                raise ValueError(f"{row.where}: {PROGRAM} must be a text, a Python program")
            # A tie has no label either, but its gold scores can be learned from.
            if task.label is None and not GOLD & task.gold.keys():
                if task.gold.get("strength") == 0:
                    self._ties += key == "train"
                    continue
                if "rating" in task.gold:
                    raise ValueError(
                        f"{row.where}: a labelled row has two responses or more, no rating of one"
                    )
                raise ValueError(f"{row.where}: no label: it cannot be trained on")
            if task.id in ids:
                raise ValueError(f"{row.where}: a second row with the id {task.id!r}")
            ids.add(task.id)
            try:
                if demonstrated and row.fields.get(DEMONSTRATION):
                    _check_demonstration(row.fields[DEMONSTRATION], len(task.candidates))
                described = _described(row, task)
            except ValueError as error:
                raise ValueError(f"{row.where}: {error}") from None
            yield FormattedTask(self._judge(row, task), described)

    def _note_folders(self, key: str, path: Path, row: Row, named: Mapping[str, Folder]) -> None:
        for name, folder in named.items():
            assert row.beside is not None  # a row without it names nothing
            place = (row.beside / name).relative_to(path if path.is_dir() else path.parent)
            self.folders.setdefault(key, {})[place.as_posix()] = folder.digest

    def _with_shared_folders(self, task: JudgeTask) -> JudgeTask:
        """Return the task with the folders of earlier rows that are equal, so that each is in memory once."""

        def shared(folder: Folder) -> Folder:
            return self._folders.setdefault(folder.digest, folder)

        return replace(task, files=tuple(map(shared, task.files)), prompt_files=shared(task.prompt_files))

    def _judge(self, row: Row, task: JudgeTask) -> str:
        """Return the judge that the row names, or a judge that accepts the row, sampled by weight."""
        named = row.fields.get(JUDGE)
        named = None if named == "" else named  # an empty cell of a table
        # Compared and not looked up: a list or an object of a row is no key.
        if named is not None and named not in list(self._judges):
            raise ValueError(f"{row.where}: no judge {named!r}; there are {', '.join(self._judges)}")
        fit, reason = [], ""
        # A judge refuses a task by raising, since only it knows which responses it can show.
        for name in self._judges if named is None else (named,):
            try:
                self._judges[name].views(task)
                fit.append(name)
            except ValueError as error:
                reason = str(error)
        weights = [self._config.formats.get(name, 1.0) if named is None else 1.0 for name in fit]
        if not any(weights):
            if len(task.candidates) == 1:
                reason = "a labelled row has two responses or more"
            raise ValueError(f"{row.where}: no judge accepts it: {reason or 'their weights are 0'}")
        return Random(derive_seed("judge", task.id)).choices(fit, weights)[0]


class MissingRows(FileNotFoundError):
    """The file of rows does not exist; the message is one line."""

    def __init__(self, message: str, path: Path) -> None:
        super().__init__(message)
        self.path = path


def require_rows(config: DataConfig) -> None:
    """Look for the rows before loading a model; raises FileNotFoundError with the command that makes them."""
    named = (config.train, config.heldout, config.demonstrations, config.validation)
    for path in (data_path(path) for path in named if isinstance(path, Path)):
        unfinished = (path / WORK).exists() and not (path / DATA).exists()
        if unfinished or not path.exists():
            made = path.parent.name == "data" and path.name in shipped(MIXTURES)
            how = f": `tirjudge data build {path.name}` makes them" if made else ""
            if isinstance(config.validation, Path) and path == data_path(config.validation):
                how = ": --set data.validation=0.05 holds back training rows instead"
            raise MissingRows(f"no rows at {path}, neither a file nor a finished folder of them{how}", path)


def _first_per_judge(rows: Iterable[FormattedTask], n: int) -> Iterator[FormattedTask]:
    judges: dict[str, list[FormattedTask]] = {}
    for row in rows:
        judges.setdefault(row.format, []).append(row)
    return (row for tasks in judges.values() for row in islice(tasks, n))


def _described(row: Row, task: JudgeTask) -> JudgeTask:
    """Return the task with its families and its demonstration, if the row has them, in `gold`.

    Raises ValueError for families in another form.
    """
    found: dict[str, Any] = {
        name: row.fields[name] for name in (FAMILIES, DEMONSTRATION) if row.fields.get(name)
    }
    if (
        DEMONSTRATION not in found
        and isinstance(row.fields.get(PROGRAM), str)
        and row.fields[PROGRAM].strip()
    ):
        found[DEMONSTRATION] = {PROGRAM: row.fields[PROGRAM]}
    if FAMILIES in found:
        families = _families(found[FAMILIES])
        # Tables of results have one line per family, so rows with several share a line.
        name = families[0] if len(families) == 1 else f"{len(families)} constraints"
        found |= {FAMILIES: families, "family": name}
    return replace(task, gold={**task.gold, **found}) if found else task


def _families(value: Any) -> list[str]:
    """Return the names of families; tables have them in one text, with commas between them."""
    if isinstance(value, str):
        value = [name.strip() for name in value.split(",")]
    if not isinstance(value, list):
        raise ValueError(f"{FAMILIES} must be a list of texts, or a text with commas")
    return [str(name) for name in value]


def _check_demonstration(value: Any, responses: int) -> None:
    """Raise ValueError for a demonstration that no dialogue can be written from."""
    if not isinstance(value, Mapping):
        raise ValueError(f'{DEMONSTRATION} must be an object, such as {{"{PROGRAM}": "..."}}')
    for name in (PROGRAM, "first"):
        if not isinstance(value.get(name) or "", str):
            raise ValueError(f"{DEMONSTRATION}.{name} must be a text, a Python program")
    if value.get("first") and value.get(PROGRAM) is None and value.get("tool") is None:
        raise ValueError(f"{DEMONSTRATION}.first runs before a `{PROGRAM}` or the call of a `tool`: add one")
    kept, of = value.get("kept"), value.get("of")
    if kept and not (isinstance(kept, list) and all(map(_is_number, kept)) and len(kept) == responses):
        raise ValueError(f"{DEMONSTRATION}.kept must be one number for each of the {responses} responses")
    if of is not None and not _is_number(of):
        raise ValueError(f"{DEMONSTRATION}.of must be a number")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and -math.inf < value < math.inf


class ExpectedRows(RowData):
    """Tasks without texts, as many per judge as `tasks` says, split and sampled like real rows."""

    def __init__(
        self, config: DataConfig, environments: Mapping[str, EnvironmentConfig], tasks: Mapping[str, int]
    ) -> None:
        """`tasks` is the number of rows by judge; raises ValueError for a judge that the recipe lacks."""
        self._expected = tasks
        changes: dict[str, Any] = {"demonstrations": None}
        if isinstance(config.heldout, Path):
            changes["heldout"] = None  # those rows are not among the expected ones
        if isinstance(config.validation, Path):
            # Those rows are not among the expected ones, of which at least one per judge is held back.
            changes["validation"] = 1e-9
        super().__init__(config.model_copy(update=changes), environments)

    def _read(self, key: str) -> Iterator[FormattedTask]:
        for name, count in self._expected.items() if key == "train" else ():
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
