"""The configuration of a corpus: sources with counts, generators, and decontamination."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from tirjudge.generation.base import SamplingOptions
from tirjudge.generation.endpoint.http import api_root
from tirjudge.judging.meta_judge import AskedModel
from tirjudge.storage.run_settings import MOVABLE
from tirjudge_environments.types import FrozenModel
from tirjudge_training.corpora.base import KINDS, Kind

ALL: Literal["all"] = "all"
Count = Annotated[int, Field(ge=0)] | Literal["all"]

WORDS = 8
"""TIR §4.1: "strict 8-gram decontamination"."""


class WantedRows(FrozenModel):
    """The number of rows of one source, by format. The name of the table is the source's name."""

    pointwise: Count = 0
    pairwise: Count = 0
    listwise: Count = 0
    weight: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """Multiplies the counts: the source's share of the mixture."""
    revision: str | None = None
    """A branch, tag or commit of the dataset on the hub; None is the current version."""

    @model_validator(mode="after")
    def _all_of_one(self) -> WantedRows:
        counts = [getattr(self, kind) for kind in KINDS]
        if ALL in counts and sum(count != 0 for count in counts) > 1:
            raise ValueError('"all" gives every row of a source to one format: leave out the other counts')
        return self

    def counts(self, scale: float) -> dict[Kind, int | None]:
        """Return the rows wanted by format; None means all."""
        found: dict[Kind, Count] = {kind: getattr(self, kind) for kind in KINDS}
        return {
            kind: None if count == ALL else round(count * self.weight * scale)
            for kind, count in found.items()
        }


class SamplingConfig(SamplingOptions):
    """Sampling of answers from the generators (TIR §5.1: 2 rollouts per model, t = 0.9, p = 0.95)."""

    samples: int = Field(default=2, gt=0)
    """Answers per generator and prompt."""
    temperature: float = Field(default=0.9, ge=0)
    top_p: float = Field(default=0.95, gt=0, le=1)
    window: int = Field(default=64, gt=0)
    """Questions that are answered concurrently (ours)."""
    prompts_per_row: float = Field(default=4.0, ge=1)
    """Prompts taken per wanted row, since not all yield both a good and a bad answer (ours)."""


class CleaningConfig(FrozenModel):
    """Decontamination (TIR §4.1)."""

    against: tuple[str, ...] | None = None
    """Benchmarks by name, or files of rows as `FILE` or `FILE:COLUMN`; None means every benchmark."""
    words: int = Field(default=WORDS, gt=1)
    """The length, in words, of a run that a prompt must not share with a benchmark."""
    common: int | None = Field(default=None, gt=0)
    """Ignore runs of words that occur in more prompts of a benchmark than this: such runs are template, not
    content (ours). None ignores no runs."""


class CorpusConfig(FrozenModel):
    """A corpus: every choice that determines its rows."""

    description: Annotated[str, MOVABLE] = ""
    seed: int = 0
    scale: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Multiplies every count: 0.01 makes a small corpus of the same mixture."""
    sources: Mapping[str, WantedRows] = Field(min_length=1)
    judges: Mapping[Kind, str] = Field(default_factory=dict)
    """The judge in the column `environment` of a format's rows; the column is empty for other formats."""
    generators: Mapping[str, AskedModel] = Field(default_factory=dict)
    """Models that answer the prompts of sources without answers, by a name of your choice."""
    sampling: SamplingConfig = SamplingConfig()
    decontaminate: CleaningConfig = CleaningConfig()
    rows_per_shard: int = Field(default=5000, gt=0)

    @field_validator("generators")
    @classmethod
    def _have_addresses(cls, value: Mapping[str, AskedModel]) -> Mapping[str, AskedModel]:
        # Checked here and not at the first question, since the corpus stores the addresses.
        for one in value.values():
            if one.base_url:
                api_root(one.base_url, query=True)
        return value

    @model_validator(mode="after")
    def _each_generator_once(self) -> CorpusConfig:
        # Answers are cached by model name: two entries would share answers instead of sampling more.
        names = [one.model for one in self.generators.values()]
        if len(set(names)) < len(names):
            raise ValueError("generators: name each model once, since its answers are cached under its name")
        return self
