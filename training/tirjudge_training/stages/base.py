"""The interface of a stage: one resumable step of a training run, in a folder of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from tirjudge.judging.meta_judge import AnswerStore, MetaJudgeConfig, RewardQuestions
from tirjudge.progress import ProgressReporter
from tirjudge.storage.durable_files import RunFolder
from tirjudge.storage.json_lines import JsonObject
from tirjudge_environments.types import FrozenModel
from tirjudge_training import model_folder
from tirjudge_training.data.base import Data
from tirjudge_training.distributed.device import PLAIN, Dtype, Kernels
from tirjudge_training.distributed.processes import ALONE, Processes, SharedRows
from tirjudge_training.model_folder import LoraConfig
from tirjudge_training.rl.dynamic_sampling import FormattedTask, ScoredRollouts, score_tasks
from tirjudge_training.rl.rollout_engine import Engine, RolloutConfig

MODEL = "model"
"""The subfolder with the model that a stage made."""
DONE = "done.json"
"""The file with a stage's result in the stage's folder; written last, so it marks a finished stage."""
SAMPLES = "samples.jsonl"
"""The file of a stage's folder with its samples for supervised training, one row per prompt.

`index` is the prompt's position in the stage's list. `kept` is a list of `{"ids": [...], "labels": [...]}`,
one per view, and is empty if no trajectory was good enough.
"""
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Run:
    """The context that all stages of one run share."""

    path: Path
    """The run folder; each stage has a subfolder of its own name."""
    base: str
    """The model that the run starts from, a folder or a hub id."""
    data: Data
    say: Say
    meta_judge: MetaJudgeConfig | None = None
    """The model that answers the questions of rewards, if they have any."""
    processes: Processes = ALONE
    enable_thinking: bool | None = None
    """The thinking mode of all prompts, see `ChatEncoder`."""
    dtype: Dtype = "float32"
    """The type of the weights that are loaded; an adapter under training is float32 in any case."""
    kernels: Kernels = PLAIN
    """The kernels of models under training."""
    note: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the note that every model folder of the run gets, see `ModelNote`."""

    def reward_questions(self, folder: RunFolder) -> RewardQuestions | None:
        """Open the meta-judge for a stage, with its answers cached in the folder of the stage."""
        if self.meta_judge is None:
            return None
        return self.meta_judge.open(kept=AnswerStore(folder.path, self.processes.rank), say=self.say)

    def model(self, stage: str | None) -> str:
        """Return the path of the model that an earlier stage made; None is the base model of the run."""
        return self.base if stage is None else str(self.path / stage / MODEL)

    def save(
        self, folder: Path, model: Any, start: str, lora: LoraConfig | None, *, half: bool = False
    ) -> None:
        """Write the folder of a model that was trained from `start`; all processes must call it."""
        model_folder.save(
            folder, model, start=start, lora=lora, note=self.note, processes=self.processes, half=half
        )


@dataclass(frozen=True, slots=True)
class Size:
    """The amount of work of a stage, in trajectories, as far as it is known in advance."""

    what: str
    """A description for people, such as `130 batches of 16 x 8`."""
    sampled: int = 0
    """Trajectories rolled out, at least."""
    resampled: int = 0
    """Further trajectories rolled out, at most, to replace groups without a learning signal."""
    trained: int = 0
    """Trajectories passed forward and backward, counted once per pass."""
    spared: int = 0
    """Trajectories of `trained` that are left out at most, because their groups have no learning signal."""
    validated: int = 0
    """Trajectories rolled out to validate the policy while it is trained."""


@dataclass(frozen=True, slots=True)
class Disk:
    """The large files that a stage writes."""

    checkpoints: int = 0
    """Number of kept training checkpoints."""
    models: int = 0
    """Model folders."""
    snapshots: int = 0
    """Snapshots of weights in bfloat16."""


class Stage(FrozenModel, ABC):
    """One step of a run. The result depends only on the stage's fields and folder and the run's data."""

    name: str
    """Name of the stage's folder, unique within the run."""
    seed: int = 0
    """Every random choice of the stage is a function of this seed."""
    start: str | None = None
    """The earlier stage that made the initial model; None is the base model of the run."""
    distributed: ClassVar[bool] = False
    """True if all processes of a run take part; else the first does the work while the others wait."""
    measures: ClassVar[bool] = False
    """True if the result holds the reported accuracy of the model of `start`."""
    asks_teacher: ClassVar[bool] = False
    """True if the stage pays for teacher dialogues."""

    @abstractmethod
    def work(self, folder: RunFolder, run: Run) -> JsonObject:
        """Do the work of the stage, or the rest of it after a kill; returns the result for `done.json`.

        An interrupted stage leaves the same files and returns the same result as an uninterrupted one.
        """

    @abstractmethod
    def size(self, data: Data) -> Size:
        """Return the amount of work without doing any of it."""

    def disk(self) -> Disk:
        """Return the large files that the stage writes; by default there are none."""
        return Disk()

    def check(self, data: Data) -> None:
        """Raise ValueError, in one line, if the stage would fail. Called before the first stage starts."""

    @property
    def reference(self) -> bool:
        """True if the stage holds a second, frozen copy of its model, as a KL divergence does."""
        return False


class SamplingStage(Stage):
    """Samples training tasks with the model of an earlier stage; each process takes its share."""

    distributed = True
    rollout: RolloutConfig

    def sample(
        self,
        folder: RunFolder,
        run: Run,
        tasks: Sequence[FormattedTask],
        row: Callable[[ScoredRollouts], JsonObject],
        *,
        file: str,
        samples: int,
        unit: str,
    ) -> None:
        """Write a row for each task that the file lacks: its `index`, and what `row` makes of rollouts."""
        rows = SharedRows(folder, file, run.processes)
        if left := rows.left(tasks):
            with Engine.load(
                run.model(self.start),
                run.data.environments,
                self.rollout,
                run.reward_questions(folder),
                enable_thinking=run.enable_thinking,
                dtype=run.dtype,
                processes=run.processes,
            ) as engine:
                mine, total = run.processes.share(left), len(tasks)
                if run.processes.world > 1:
                    total, unit = len(mine), f"{unit} of the first of {run.processes.world} processes"
                progress = ProgressReporter(run.say, unit=unit, total=total, done=total - len(mine))

                async def sampled() -> None:
                    rollouts = engine.rollouts(self.seed)
                    async for index, found in score_tasks(mine, rollouts, size=samples, progress=progress):
                        rows.append({"index": index, **row(found)})

                engine.run(sampled())
                if mine:
                    progress.report()
        rows.merge()
