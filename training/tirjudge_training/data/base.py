"""The interface of a run's data, its configuration, and the judges that tasks are given to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

from pydantic import Field

from tirjudge_environments import Environment, JudgeTask, derive_seed, open_environment
from tirjudge_environments.messages import whole_text
from tirjudge_environments.types import FrozenModel
from tirjudge_training.rl.dynamic_sampling import FormattedTask
from tirjudge_training.rl.stream import TaskSource

WITHOUT_TOOLS = "-no-tools"
"""The suffix of a judge that uses prompts without tools for the same tasks."""
FAMILIES = "families"
"""The column with a row's constraint families."""
PACKAGE = "package:"
"""The start of the name of a data file that is part of this package."""
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, lt=1)]
SEEDS = 2**32
"""One more than the largest derived seed; a seed divided by it is uniform in [0, 1)."""


class DataConfig(FrozenModel):
    """The data of a run. Paths are relative to the working directory, or begin with `package:`."""

    train: Path
    """Labelled rows in the form that `tirjudge judge` reads: a file, or the folder of a corpus made by
    `tirjudge data build`."""
    heldout: Share | Path | None = None
    """Rows that every model of the run is measured on; they never train a model or choose a checkpoint. A
    number is the share of the prompts of `train` that is held out for this."""
    demonstrations: Literal["train"] | Path | None = None
    """Rows with a column `demonstration` or `program`, see `tirjudge_training.stages.demonstrations`; a
    warm-up on them comes before the method's own stages. Rows of validation and held-out prompts are left
    out. `train` stands for the training rows that have such a column; without any there is no warm-up."""
    families: tuple[str, ...] = ()
    """The only constraint families, as in the column `families`, of rows that are trained on or choose a
    checkpoint; empty means all."""
    without_families: tuple[str, ...] = ()
    """Constraint families of which no row is trained on, or chooses a checkpoint."""
    columns: Mapping[str, str] = Field(default_factory=dict)
    """Names of the columns, as in `tirjudge judge --column`: `{prompt = "question"}`."""
    labels: Mapping[str, str] | None = None
    """The letters of a dataset's own labels: `{"1" = "A", "2" = "B"}`."""
    max_prompt_tokens: int | None = Field(default=None, gt=0)
    """Rows with a longer prompt, in tokens of the trained model and with responses that are shown later, are
    left out of training; not those of `demonstrations`, whose limit is `warmup.sft.max_tokens`."""
    reserved: int = Field(default=0, ge=0)
    """Number of training rows set apart for the teacher, or for learning answers, that RL never sees; with 0
    all rows serve for both. RM-R1 has 8,700 in addition to its 64,000 (App. E)."""
    validation: Share | Path = 0.05
    """Share of the prompts of each judge and domain that is held back to choose checkpoints (TIR §5.1), or a
    file of other rows for this (RewardBench's in J1). Rows that all have one prompt are split by row."""
    no_tools: float = Field(default=0.0, ge=0, le=1)
    """Share of the tasks with prompts that offer no tool; 1 trains the text-only control."""
    weights: Mapping[str, Weight] = Field(default_factory=dict)
    """Weights of domains: how often their tasks come; 1 unless named, and 0 leaves a domain out."""
    formats: Mapping[str, Weight] = Field(default_factory=dict)
    """Weights of judges: how often each judge gets a task that several judges accept; 1 unless named. A row
    that names its judge goes to this judge."""


TRAIN = "train"
"""The value of `data.demonstrations` for the training rows themselves."""


def data_path(path: Path) -> Path:
    """Return where the rows are: `package:smol/train.jsonl.xz` is a file of this package."""
    name = str(path)
    if not name.startswith(PACKAGE):
        return path
    return Path(str(resources.files("tirjudge_training"))) / name.removeprefix(PACKAGE)


class EnvironmentConfig(FrozenModel):
    """A judge that rows are given to."""

    name: str
    """The name of an environment, such as `tir-pairwise`."""
    options: Mapping[str, Any] = Field(default_factory=dict)
    """Options of the environment."""


class Data(Protocol):
    """The tasks of one run. All choices depend on the arguments alone, so a resumed run makes the same."""

    @property
    def environments(self) -> Mapping[str, Environment]:
        """Return the judges, by the name in the `format` of a FormattedTask."""

    def source(self, seed: int, rows: int | None = None, chosen: frozenset[str] | None = None) -> TaskSource:
        """Return the training tasks of an RL stage, from at most `rows` rows.

        `chosen` are the ids of the only tasks that the stage draws from; None means all tasks.
        """

    def steps(self, groups: int, epochs: float) -> tuple[int, int]:
        """Return the number of batches of `groups` slots in `epochs` passes, and that of their tasks."""

    def prompts(self, n: int | None, seed: int) -> list[FormattedTask]:
        """Return `n` distinct training tasks; None is all tasks."""

    def validation(self, n: int) -> list[FormattedTask]:
        """Return at most `n` tasks per judge, whose prompts are in no training task."""

    def heldout(self, n: int, seed: int) -> list[FormattedTask]:
        """Return at most `n` tasks per judge for the reported accuracy; may be empty."""


@runtime_checkable
class Demonstrated(Protocol):
    """Data that may contain demonstrated dialogues, for a warm-up."""

    def demonstrations(self, seed: int) -> list[FormattedTask]:
        """Return all tasks with `gold["demonstration"]` in a drawn order; empty without demonstrations."""


def demonstrated(data: Data, n: int | None, seed: int, families: Collection[str] = ()) -> list[FormattedTask]:
    """Return `n` tasks with a demonstrated dialogue, or all such tasks; empty for data without any.

    With `families`, return only tasks without any other constraint family.
    """
    found = data.demonstrations(seed) if isinstance(data, Demonstrated) else []
    return [task for task in found if has_only(task, families)][:n]


def has_only(task: FormattedTask, families: Collection[str]) -> bool:
    """Return True if the task has no other constraint family than these; without any, all are meant."""
    return not families or set(task.task.gold.get(FAMILIES, ())) <= set(families)


def trajectories(data: Data, tasks: Iterable[FormattedTask]) -> int:
    """Return the number of trajectories in one sample of each task: one per view."""
    return sum(len(data.environments[one.format].views(one.task)) for one in tasks)


def open_judges(
    judges: Mapping[str, EnvironmentConfig], no_tools: float
) -> tuple[dict[str, Environment], dict[str, Environment]]:
    """Return all judges by name, and those in use: with tools, without, or both. Raises ValueError."""
    # The same judge with and without tools: a task is given to one of them, see `choose_tools`.
    opened = {name: open_environment(judge.name, **judge.options) for name, judge in judges.items()}
    for name, judge in opened.items():
        if getattr(judge, "per_criterion", False):
            raise ValueError(
                f"environments.{name}.options.per_criterion: a reward is for one answer: leave the option "
                "out, and write a row for each criterion"
            )
    bare = {
        name + WITHOUT_TOOLS: open_environment(judge.name, **{**judge.options, "tools": False})
        for name, judge in judges.items()
        if no_tools > 0
    }
    return opened, {**(opened if no_tools < 1 else {}), **bare}


def choose_tools(formatted: FormattedTask, no_tools: float) -> FormattedTask:
    """Return the task, without tools for this share of all tasks, which a hash of the task's id chooses."""
    if derive_seed("no tools", formatted.task.id) >= no_tools * SEEDS:
        return formatted
    return FormattedTask(formatted.format + WITHOUT_TOOLS, formatted.task)


def tool_variants(tasks: Iterable[FormattedTask], no_tools: float) -> list[FormattedTask]:
    """Return the tasks of a measurement: with tools, without, or both if training uses both."""
    tasks = list(tasks)
    # Every task is measured with each kind of prompt, so that both accuracies are over the same tasks.
    return [
        *(tasks if no_tools < 1 else []),
        *([FormattedTask(one.format + WITHOUT_TOOLS, one.task) for one in tasks] if no_tools > 0 else []),
    ]


def row_seed(task: JudgeTask) -> int:
    """Return a hash of the prompt and of the responses in any order, for splits of rows on one prompt."""
    responses = list(map(whole_text, task.candidates))
    if task.files:
        responses = [text + folder.digest for text, folder in zip(responses, task.files, strict=True)]
    return derive_seed("row", prompt_seed(task), *sorted(responses))


def prompt_seed(task: JudgeTask) -> int:
    """Return a hash of the prompt and its files, which all tasks on it share, for splits by prompt."""
    files = [task.prompt_files.digest] if task.prompt_files.files else []
    return derive_seed(
        "prompt", *(part for message in task.prompt for part in (message.role, message.content)), *files
    )
