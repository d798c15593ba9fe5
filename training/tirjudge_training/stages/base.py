"""The contract of a stage: one step of a run, in a folder of its own, that a kill can only delay."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from tirjudge.meta_judge import MetaJudgeConfig
from tirjudge.rollout.reward_questions import AnswerStore, RewardQuestions
from tirjudge.storage.run_folder import JsonObject, RunFolder
from tirjudge_training.data import Data
from tirjudge_training.processes import ALONE, Processes

MODEL = "model"
"""The folder, inside a stage's, of the model that it made."""
DONE = "done.json"
"""The file, inside a stage's folder, that holds its result; it is written last."""
SAMPLES = "samples.jsonl"
"""The file, inside a stage's folder, of what it wrote for supervised training: one row a prompt.

`index` is the prompt's place in the stage's list, and `kept` a list of `{"ids": [...], "labels": [...]}`, one
for each view; it is empty where nothing was good enough.
"""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Run:
    """What the stages of one run share."""

    path: Path
    """The run's folder; a stage's lies inside, under the stage's name."""
    base: str | None
    """The model that the run starts from, a folder or a hub id; None for the miniature, which is built."""
    data: Data
    say: Say
    meta_judge: MetaJudgeConfig | None = None
    """Who answers the questions of rewards, if they have any."""
    processes: Processes = ALONE

    def asking(self, folder: RunFolder) -> RewardQuestions | None:
        """Answers questions, and keeps its answers in the folder of the stage that has them."""
        if self.meta_judge is None:
            return None
        return self.meta_judge.open(kept=AnswerStore(folder.path, self.processes.rank), say=self.say)

    def model(self, stage: str | None) -> str:
        """Where the model lies that an earlier stage made; None stands for the run's base."""
        if stage is not None:
            return str(self.path / stage / MODEL)
        if self.base is None:
            raise ValueError("the miniature has no base model: a run of it begins with its warm-up")
        return self.base


@dataclass(frozen=True, slots=True)
class Size:
    """How much a stage computes, in trajectories, as far as that is known before it runs."""

    what: str
    """In words, for people: `130 batches of 16 x 8`."""
    sampled: int = 0
    """Rolled out, at least."""
    resampled: int = 0
    """Rolled out beyond that, at most: replacements for groups that teach nothing."""
    trained: int = 0
    """Passed forward and backward, counted once for each pass."""
    compared: int = 0
    """Passed forward through the reference model of the KL divergence."""
    dialogues: int = 0
    """Held with a teacher, at most."""


class Stage(BaseModel, ABC):
    """A step of a run. Its fields, written to its folder, and the run's data are all that it depends on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """Its folder's name, unique in the run."""
    seed: int = 0
    """Every draw of the stage is a function of it."""
    together: ClassVar[bool] = False
    """Whether all processes of a run work at it, or the first alone while the others wait."""

    @abstractmethod
    def work(self, folder: RunFolder, run: Run) -> JsonObject:
        """Do it in `folder`, or what is left of it after a kill; returns the result, for `done.json`.

        Leaves the same behind, and returns the same, whether or not it was interrupted.
        """

    @abstractmethod
    def size(self, data: Data) -> Size:
        """How much there is to do, told without doing any of it."""
