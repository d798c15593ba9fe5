"""The interface of a training method: the stages that it makes of a recipe, and its published cost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from tirjudge_training.pipelines.pipeline import Pipeline
from tirjudge_training.recipe import METHODS, Recipe


@dataclass(frozen=True, slots=True)
class PublishedCost:
    """The cost of TIR-Judge's 8B model with one method (TIR App. F, Table 8)."""

    sft: float
    """Hours of 8 H100; so are `rejection` and `rl`."""
    rejection: float
    rl: float
    compute: float
    """Dollars for the devices, approximately."""
    teacher: float
    """Dollars for the teacher's API, approximately."""

    @property
    def hours(self) -> float:
        """Hours of 8 H100 in total."""
        return self.sft + self.rejection + self.rl


class Method(ABC):
    """A training method by name, chosen with `method = "NAME"` in a recipe.

    Registered as a class in the entry-point group `tirjudge.training_methods`; the table `[method_options]`
    of a recipe holds the keyword arguments of its constructor.
    """

    reserves: ClassVar[bool] = False
    """True if it learns from the rows that `data.reserved` sets apart from RL."""
    published: ClassVar[PublishedCost | None] = None
    """The authors' cost of TIR-Judge's 8B model with this method, to compare a plan with."""

    @abstractmethod
    def build(self, recipe: Recipe) -> Pipeline:
        """Return the stages of a run."""

    @abstractmethod
    def describe(self, recipe: Recipe) -> str:
        """Return the method in a few words for the model card, such as `RL`."""

    def check(self, recipe: Recipe) -> None:  # noqa: B027 - by default there is nothing to check
        """Raise ValueError, in one line, if the recipe lacks something that the method needs."""

    def shrink(self) -> Mapping[str, Any]:
        """Return the changes to a recipe for `--shrink`, whose model cannot get any answer right.

        By default the recipe becomes RL alone, which needs no right answers.
        """
        return {"method": "rl", "method_options": None}

    def provenance(self, recipe: Recipe, results: Mapping[str, Any]) -> str:
        """Return, for the model card, which other models' outputs are in the training data.

        `results` holds the result of each stage by name.
        """
        return "no other model's output is in the training data"


def open_method(recipe: Recipe) -> Method:
    """Return the training method of a recipe."""
    return cast(Method, METHODS.open(recipe.method, **(recipe.method_options or {})))
