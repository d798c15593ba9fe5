"""Rewards of judge formats: named terms, the terms that a recipe adds, and checks that formats share.

A format names the terms of its paper in `own_terms` and adds them up in `equation`. A recipe adds terms of
the table `REWARD_TERMS` with `options.reward_terms.NAME = WEIGHT`; to add one, write a function as `length`
below and a line of that table. Every term is a part of the reward under its name, and with that a metric
`reward/NAME` of training, a curve in reports and a value in the rollouts' files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from pydantic import Field, FiniteFloat, PrivateAttr, model_validator

from tirjudge_environments.programs.evidence import ended_well
from tirjudge_environments.registry import RewardOnly
from tirjudge_environments.types import (
    By,
    Episode,
    FrozenModel,
    JudgeTask,
    Reward,
    Score,
    StopReason,
    Trajectory,
    Unscored,
    Verdict,
)
from tirjudge_sandbox import Execution
from tirjudge_sandbox.registry import Plugins

REWARD_TERMS = Plugins(
    "tirjudge.reward_terms", "reward term", "tirjudge_environments.formats", {"length": "reward_terms:length"}
)
"""The terms that a recipe can add to the reward of any format. Each member is a `Term`."""

MAX_CALLS = 3
"""Programs that a trajectory may request without losing the tool part of the reward."""

NO_TOOL_DOMAINS = frozenset({"safety", "helpfulness"})
"""Domains in which the format part requires a verdict without any tool call."""

LONG = 120
"""The number of tokens above which JudgeLRM's Eq. 9 rewards the reasoning."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A trajectory that can be scored, as the functions of terms see it."""

    task: JudgeTask
    trajectory: Trajectory
    right: bool
    """True if the verdict is right by the label alone."""
    teaches: bool
    """True if the verdict is rewarded as right, see `Reward.teaches`."""
    settled: bool = False
    """True if no verdict could change the reward, see `Reward.settled`."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """The answers to the format's `questions`, by key."""


@dataclass(frozen=True, slots=True)
class Term:
    """A term of a reward: a function of a trajectory, with the range of its values and its weight."""

    value: Callable[[Scored], float | Unscored]
    """Unscored leaves the whole trajectory without a reward."""
    low: float = 0.0
    high: float = 1.0
    weight: float = 1.0
    """The factor of the value in the total; the recipe's for a term that a recipe adds."""


def term(*, low: float, high: float) -> Callable[[Callable[[Scored], float | Unscored]], Term]:
    """Return a decorator that makes a function a `Term` of this range, for the table `REWARD_TERMS`."""
    return lambda value: Term(value, low, high)


@term(low=-1.0, high=0.2)
def length(seen: Scored) -> float | Unscored:
    """JudgeLRM's Eq. 9 for any judge: -1.0 at the token limit, else 0.2 above 120 tokens."""
    return length_reward(seen.trajectory)


class Rewarded(FrozenModel):
    """The base class of formats whose reward is made of terms."""

    marks: ClassVar[tuple[str, ...]] = ("think",)
    """The tokens from which the format reads: names of tags, and commands such as `\\boxed`."""
    boundary: bool = True
    """Replace these tokens by look-alikes in all texts that the judge is shown, so that no copy is a verdict;
    off, texts stand as in the papers. Our own option."""
    reward_terms: RewardOnly[Mapping[str, FiniteFloat]] = Field(default_factory=dict)
    """Weights of terms that are added to the reward, by their names in `REWARD_TERMS`. Our own option."""
    _added: Mapping[str, Term] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _load_terms(self) -> Self:
        for name in self.reward_terms.keys() & self.own_terms.keys():
            raise ValueError(f"reward_terms: this reward has a term {name!r} of its own")
        terms = self.reward_terms.items()
        self._added = {name: replace(REWARD_TERMS.load(name), weight=weight) for name, weight in terms}
        return self

    @property
    def is_bounded(self) -> bool:
        """True if tokens in texts of others are replaced, see `boundary`."""
        return self.boundary

    @property
    def own_terms(self) -> Mapping[str, Term]:
        """The terms of the paper's reward by name, under the options of this format."""
        return {}

    def scored(self, episode: Episode) -> Sequence[Scored | Unscored]:
        """Return for each trajectory what its terms see, or the reason why it cannot be scored."""
        return [Unscored("this judge has no reward") for _ in episode.trajectories]

    def equation(self, parts: Mapping[str, float]) -> float:
        """Return the paper's reward from the values of `own_terms`: their weighted sum."""
        return sum(one.weight * parts[name] for name, one in self.own_terms.items())

    def score(self, group: Sequence[Episode], answers: Mapping[str, str]) -> list[tuple[Score, ...]]:
        return [tuple(self._score(one, answers) for one in self.scored(episode)) for episode in group]

    def _score(self, seen: Scored | Unscored, answers: Mapping[str, str]) -> Score:
        if isinstance(seen, Unscored):
            return seen
        seen = replace(seen, answers=answers)
        parts: dict[str, float] = {}
        for name, one in {**self.own_terms, **self._added}.items():
            value = one.value(seen)
            if isinstance(value, Unscored):
                return value
            if not one.low <= value <= one.high:
                raise RuntimeError(
                    f"the reward term {name!r} is {value}, outside its range {one.low} to {one.high}"
                )
            parts[name] = value
        core = self.equation(parts)
        return Reward(
            total=core + sum(one.weight * parts[name] for name, one in self._added.items()),
            parts=parts,
            right=seen.right,
            teaches=seen.teaches,
            settled=seen.settled,
            core=core if self._added else None,
        )


def together(views: Sequence[Scored | Unscored]) -> list[Scored | Unscored]:
    """Link the views of an episode: views teach only if all teach, and are scored only if all are."""
    for one in views:
        if isinstance(one, Unscored):
            return [one] * len(views)
    teaches = all(isinstance(one, Scored) and one.teaches for one in views)
    return [replace(one, teaches=teaches) if isinstance(one, Scored) else one for one in views]


def correct(seen: Scored) -> float:
    """The verdict's own term, 1 if the verdict is rewarded as right and 0 otherwise."""
    return float(seen.teaches)


def tools_in_order(trajectory: Trajectory) -> bool:
    """Return Rt: True if every requested program ran without error and there were at most three.

    The first error of a check, which may be repaired, costs nothing.
    """
    faulty = [one for one in trajectory.calls if not ended_well(one)]
    forgiven = all(one.request.repairable and isinstance(one.outcome, Execution) for one in faulty)
    return forgiven and len(trajectory.calls) <= MAX_CALLS


def length_reward(trajectory: Trajectory, most: float = math.inf) -> float | Unscored:
    """Return JudgeLRM's Eq. 9: -1.0 if the token limit was reached, else 0.2 above 120 tokens, else 0.

    The limit is that of the dialogue, or `most` tokens, answer included as in the authors' code.
    """
    ids = [segment.ids for segment in trajectory.segments if segment.by is By.MODEL]
    known = all(one is not None for one in ids)
    tokens = sum(len(one or ()) for one in ids) if known else trajectory.usage.completion_tokens
    if not known and not tokens:
        return Unscored("the length reward needs the number of tokens, which the endpoint did not return")
    if trajectory.stop is StopReason.TOKEN_BUDGET or tokens >= most:
        return -1.0
    return 0.2 if tokens > LONG else 0.0


def unlabelled(episode: Episode) -> Unscored | None:
    """Return the reason if nothing in this episode can be scored, for want of a label."""
    return Unscored("the task has no label") if episode.task.label is None else None


def incomparable(episode: Episode) -> Unscored | None:
    """Return the reason if the responses of this episode cannot be compared."""
    if len(episode.task.candidates) < 2:
        return Unscored("a single response has nothing to be compared with")
    return unlabelled(episode)


def label_scores_highest(task: JudgeTask, verdicts: Iterable[Verdict | None]) -> bool:
    """Return True if every response has a score and the labelled one scores highest (TIR Eq. 3)."""
    scores = {index: score for one in verdicts if one is not None for index, score in one.scores.items()}
    # A missing score is a wrong answer: otherwise a judge could win by not scoring the other responses.
    if task.label is None or len(scores) < len(task.candidates):
        return False
    return all(scores[task.label] > score for index, score in scores.items() if index != task.label)


def scored_apart(episode: Episode, verdicts: Iterable[Verdict | None]) -> list[Scored | Unscored]:
    """Score the views of single responses together: all are right if the labelled response scores highest."""
    right = label_scores_highest(episode.task, verdicts)
    return together(
        [
            incomparable(episode) or failed(one) or Scored(episode.task, one, right, right)
            for one in episode.trajectories
        ]
    )


def failed(trajectory: Trajectory) -> Unscored | None:
    """Return the reason if this trajectory says nothing about the policy."""
    if trajectory.stop.unscored:
        return Unscored(f"{trajectory.stop.value}: {trajectory.detail}")
    return None
