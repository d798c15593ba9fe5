"""A recipe: every choice of a training run, table by table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tirjudge.meta_judge import MetaJudgeConfig
from tirjudge_training.data import DataConfig, EnvironmentConfig
from tirjudge_training.heldout import HeldoutConfig
from tirjudge_training.lora import LoraConfig
from tirjudge_training.rates import Rates
from tirjudge_training.rl_config import RlConfig
from tirjudge_training.sft import SftConfig
from tirjudge_training.stages.answering import AnswersConfig
from tirjudge_training.stages.rejection import RejectionConfig
from tirjudge_training.stages.selection import ValidationConfig
from tirjudge_training.stages.warm_up import WarmUpConfig
from tirjudge_training.teacher_config import TeacherConfig


class ModelConfig(BaseModel):
    """What is trained."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    base: str | None = None
    """A model folder or a hub id; None builds the miniature from random weights and warms it up."""
    lora: LoraConfig | None = None
    """Train an adapter of this kind in every stage, merged at its end; None trains all weights."""


class IterateConfig(BaseModel):
    """The cycles of `--iterative` (TIR §4.3)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rounds: int = Field(default=2, gt=0)
    """Of rejection sampling, SFT from the initial model and RL, after the first RL."""
    steps: int | None = Field(default=None, gt=0)
    """Generation batches of the RL that ends a round; None is as many as the first RL has (ours)."""
    control: bool = False
    """Also the arms that show what the rounds add: the first RL continued for as many steps, and rejection
    sampling and SFT without any RL (TIR Fig. 5 has the second)."""


class Recipe(BaseModel):
    """One run: its model, its data, its method and every stage's settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    description: str = ""
    run: Literal["never"] | None = None
    """`never`: nobody has run this recipe as it stands; its values are those of a paper."""
    method: Literal["rl", "iterative", "distill", "answers"] = "rl"
    """`rl`: RL alone; `iterative`: TIR-Judge-Zero; `distill`: TIR-Judge-Distill; `answers`: SFT on the right
    answers alone, without any RL."""
    seed: int = 0
    """Everything drawn in a run is a function of it."""
    threads: int = Field(default=1, gt=0)
    """CPU threads of torch; a model of this size loses with more, most of all beside other busy processes."""
    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    environments: Mapping[str, EnvironmentConfig] = Field(default_factory=dict)
    """The judges that rows are put to, by a name of one's own; by default TIR-Judge's for pairs and lists."""
    meta_judge: MetaJudgeConfig | None = None
    """Who answers the questions of a reward that depends on another model; None where none does."""
    warmup: WarmUpConfig = WarmUpConfig()
    """The miniature's."""
    rl: RlConfig
    rejection: RejectionConfig = RejectionConfig()
    teacher: TeacherConfig = TeacherConfig()
    """Who `distill` learns from."""
    answers: AnswersConfig = AnswersConfig()
    """What `answers` learns."""
    sft: SftConfig = SftConfig()
    """Of the cycles, and on a teacher's dialogues; the warm-up has its own."""
    iterate: IterateConfig = IterateConfig()
    validation: ValidationConfig = ValidationConfig()
    heldout: HeldoutConfig = HeldoutConfig()
    rates: Rates = Rates()
    """What `--plan` reckons with; nothing else depends on it."""

    @property
    def generated(self) -> bool:
        """Whether the tasks are the miniature's generated ones."""
        return self.data.train is None

    @property
    def measured(self) -> bool:
        """Whether there is anything to measure the run's models on."""
        return self.generated or self.data.heldout is not None

    @model_validator(mode="after")
    def _fits_together(self) -> Recipe:
        if not self.generated and self.model.base is None:
            raise ValueError("data.train needs model.base: the miniature knows no tasks but its own")
        if self.generated and (self.environments or self.data.heldout or self.data.reserved):
            raise ValueError(
                "environments, data.heldout and data.reserved belong to rows of one's own: name them in "
                "data.train"
            )
        if self.generated and self.method == "iterative" and self.rejection.prompts is None:
            raise ValueError("the generated tasks have no end: say how many with rejection.prompts")
        if self.method == "distill":
            self._has_a_teacher()
        if self.method == "answers" and self.generated:
            raise ValueError("answers are learned from labelled rows of one's own: name them in data.train")
        if self.data.reserved and self.method not in ("distill", "answers"):
            raise ValueError("data.reserved are a teacher's rows: method must be distill or answers")
        return self

    def _has_a_teacher(self) -> None:
        if not (self.teacher.model and self.teacher.base_url):
            raise ValueError("distillation needs a teacher: --teacher MODEL and --teacher-base-url URL")
        if self.generated and self.teacher.prompts is None:
            raise ValueError("the generated tasks have no end: say how many with teacher.prompts")
