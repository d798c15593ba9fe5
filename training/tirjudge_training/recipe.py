"""Recipes: every setting of a training run, table by table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from tirjudge.generation.endpoint.http import api_root
from tirjudge.judging.meta_judge import MetaJudgeConfig
from tirjudge.models.resolve import shipped_models
from tirjudge.storage.run_settings import MOVABLE, RISES
from tirjudge_environments.types import FrozenModel
from tirjudge_sandbox.registry import Plugins
from tirjudge_training import recipe_file
from tirjudge_training.data.base import DataConfig, EnvironmentConfig
from tirjudge_training.distillation.config import TeacherConfig
from tirjudge_training.distributed.device import Attention
from tirjudge_training.heldout import HeldoutConfig, ValidationConfig
from tirjudge_training.model_folder import LoraConfig
from tirjudge_training.rl.config import RlConfig
from tirjudge_training.sft import SftConfig
from tirjudge_training.stages.base import Size
from tirjudge_training.stages.demonstrations import DemonstrationsConfig
from tirjudge_training.stages.rejection import RejectionConfig
from tirjudge_training.stages.sft import AnswersConfig

METHODS = Plugins(
    "tirjudge.training_methods",
    "training method",
    "tirjudge_training",
    {
        name: f"methods:{name}"
        for name in ("answers", "demonstrations", "distill", "iterative", "rejection", "rl")
    },
)
"""Each member is a function of `Recipe` and `[method_options]` that returns a `methods.Pipeline`."""


class Rates(FrozenModel):
    """The lengths and speeds of a plan. The lengths are assumptions, not measurements."""

    devices: int = Field(default=1, gt=0)
    prompt_tokens: int = Field(default=1500, gt=0)
    """Mean prompt tokens per trajectory."""
    response_tokens: int = Field(default=600, gt=0)
    """Mean response tokens per trajectory, the sandbox's included."""
    sampled_per_second: float | None = Field(default=None, gt=0)
    """Response tokens per second and device, programs included; None plans no hours."""
    trained_per_second: float | None = Field(default=None, gt=0)
    """Tokens per second and device, prompts included; None plans no hours."""
    memory: float = Field(default=80e9, gt=0)
    """Memory per device in bytes, for `tirjudge launch`; the default is an H100's."""
    measure: bool = False
    """Measure lengths and speeds for a plan with a few rollouts on this machine, see
    `tirjudge_training.run.measured_rates`; those above serve where the model is not installed."""
    tasks: Mapping[str, int] = Field(default_factory=dict)
    """Number of rows per judge, for a plan made before the rows of `data.train` exist."""

    def tokens(self, size: Size) -> tuple[int, int]:
        """Return the least and the most sampled or trained tokens, see `Size.resampled` and `Size.spared`."""
        length = self.prompt_tokens + self.response_tokens
        sampled = size.sampled + size.validated
        least = sampled * self.response_tokens + (size.trained - size.spared) * length
        most = (sampled + size.resampled) * self.response_tokens + size.trained * length
        return least, most

    def seconds(self, size: Size, *, devices: int) -> tuple[float, float] | None:
        """Return the least and the most seconds on so many devices; None if a speed is not known."""
        if self.sampled_per_second is None or self.trained_per_second is None:
            return None
        sampling = self.response_tokens / self.sampled_per_second
        training = (self.prompt_tokens + self.response_tokens) / self.trained_per_second
        sampled = size.sampled + size.validated
        least = sampled * sampling + (size.trained - size.spared) * training
        most = (sampled + size.resampled) * sampling + size.trained * training
        return least / devices, most / devices


class ModelConfig(FrozenModel):
    """The model that is trained."""

    base: str
    """A model folder, that of an adapter included, a GGUF file, a hub id or a short name."""
    enable_thinking: bool | None = None
    """Turn thinking on or off if the chat template has that switch; the trained model's folder records the
    choice. None turns thinking on for judges whose turn begins with `<think>`, else off."""
    lora: LoraConfig | None = None
    """Train a LoRA adapter in every stage; None trains all weights."""
    dtype: Literal["auto", "float32", "bfloat16"] | None = None
    """The type of the frozen weights under an adapter; the adapter and Adam's moments are float32.
    `auto` is bfloat16 on a GPU or CPU that computes in it, else float32. None is float32 on a CPU, and `auto`
    on a GPU."""
    attn_implementation: Attention = "sdpa"
    """The attention of training (ours). `flash_attention_2` needs a GPU and the package flash-attn; with
    `rl.token_budget` it computes each packed row alone, where `sdpa` masks the others."""
    liger: bool = False
    """Train with Liger's kernels, which need a GPU and the package liger-kernel (ours)."""

    @model_validator(mode="after")
    def _freezes_rounded_weights(self) -> ModelConfig:
        if self.dtype == "bfloat16" and self.lora is None:
            raise ValueError(
                'dtype = "bfloat16" needs [model.lora]: rounding would lose small updates of whole weights'
            )
        return self

    @property
    def start(self) -> str:
        """`base`, with the folder of a judge of the package in place of its name, and `~` replaced."""
        if shipped := shipped_models().get(self.base):
            return shipped
        return str(Path(self.base).expanduser()) if self.base.startswith("~") else self.base


class WarmUpConfig(FrozenModel):
    """The warm-up of a base model on demonstrations."""

    sft: SftConfig = SftConfig()


class IterateConfig(FrozenModel):
    """The rounds of the method `iterative` (TIR §4.3)."""

    rounds: Annotated[int, RISES] = Field(default=2, gt=0)
    """Rounds of rejection sampling, SFT from the initial model and RL, after the first RL stage. There may be
    more when a run is resumed."""
    steps: int | None = Field(default=None, gt=0)
    """Generation batches of the RL stage that ends a round; None is as many as in the first one (ours)."""
    control: bool = False
    """Also train the arms that show what the rounds add: the first RL stage continued for as many steps, and
    rejection sampling and SFT without any RL (TIR Fig. 5 has the second)."""


class Recipe(FrozenModel):
    """One run: model, data, method and the settings of every stage."""

    description: Annotated[str, MOVABLE] = ""
    """The line about the recipe in `tirjudge train --list`."""
    run: Annotated[Literal["never"] | None, MOVABLE] = None
    """`never` marks a recipe with a paper's values that nobody has run."""
    method: Annotated[str, AfterValidator(METHODS.known)] = "rl"
    """`rl` is RL alone, `iterative` TIR-Judge-Zero, `distill` TIR-Judge-Distill; without any RL, `answers` is
    SFT on the right answers, `demonstrations` SFT on `data.demonstrations`, and `rejection` SFT on the
    initial model's own right samples. Other packages register methods in `tirjudge.training_methods`."""
    method_options: Mapping[str, Any] | None = None
    """Options of a method that another package registers; those above have tables of their own."""
    seed: int = 0
    """Every random choice of a run is a function of this seed."""
    threads: int = Field(default=1, gt=0, le=4096)
    """CPU threads of torch. More slow down a small model, most of all on a busy machine."""
    model: ModelConfig
    """The model that is trained, and whether as a whole or under an adapter."""
    data: DataConfig
    """The files of rows: for training, demonstrations and held-out measurements."""
    environments: Mapping[str, EnvironmentConfig] = Field(default_factory=dict)
    """The judges of the rows, by a name of your choice; by default TIR-Judge's for pairs and lists."""
    meta_judge: MetaJudgeConfig | None = None
    """The model behind rewards that need one; None if no reward does."""
    warmup: WarmUpConfig = WarmUpConfig()
    """The warm-up on `data.demonstrations`."""
    demonstrations: DemonstrationsConfig = DemonstrationsConfig()
    """The dialogues of a base model's warm-up, if `data.demonstrations` names rows."""
    rl: RlConfig
    """The RL stages: batches, groups, loss, learning rate and sampling."""
    rejection: RejectionConfig = RejectionConfig()
    """Rejection sampling: how many samples are drawn and which right ones are kept."""
    teacher: TeacherConfig = TeacherConfig()
    """The teacher of the method `distill`."""
    answers: AnswersConfig = AnswersConfig()
    """The answers of the method `answers`."""
    sft: SftConfig = SftConfig()
    """SFT in every method; the warm-up has its own settings."""
    iterate: IterateConfig = IterateConfig()
    """The rounds of the method `iterative`."""
    validation: ValidationConfig = ValidationConfig()
    """The choice among the steps of an RL stage, on rows that are not trained on."""
    heldout: HeldoutConfig = HeldoutConfig()
    """The tasks and limits of a held-out measurement, which `data.heldout` turns on."""
    rates: Annotated[Rates, MOVABLE] = Rates()
    """The lengths and speeds that `--plan` assumes."""

    @classmethod
    def load(cls, recipe: str, assignments: Sequence[str] = ()) -> Self:
        """Load a shipped recipe by name, or a TOML file, and apply `a.b=c` assignments. Raises BadRecipe."""
        return recipe_file.load(cls, recipe, assignments)

    @field_validator("meta_judge")
    @classmethod
    def _has_an_address(cls, value: MetaJudgeConfig | None) -> MetaJudgeConfig | None:
        # Checked here and not at the first question, since the run folder stores the address.
        if value is not None and value.base_url:
            api_root(value.base_url, query=True)
        return value

    @property
    def measured(self) -> bool:
        """True if there are held-out tasks to measure the models of the run on."""
        return self.data.heldout is not None

    @model_validator(mode="after")
    def _fits_together(self) -> Recipe:
        if self.rl.screen is not None and self.data.reserved:
            raise ValueError("rl.screen needs all rows: leave out data.reserved")
        # Checked here and not in the run, so that `--plan` refuses the same recipes as training.
        pipeline = METHODS.open(self.method, self, **(self.method_options or {}))
        if self.data.reserved and not pipeline.reserves:
            raise ValueError(
                "data.reserved sets rows apart for SFT, which this method does not use: "
                "method must be distill or answers"
            )
        return self
