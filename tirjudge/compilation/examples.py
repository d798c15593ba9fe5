"""Examples of rules: responses of which a label, or a decided verdict of the judge, says who follows a rule.

A label is about a whole row. It says something about one of its rules only if the row has no other, or if the
others come out equal for all responses. Examples are split by prompt: candidates are written and chosen on
one part, and measured on the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tirjudge.judging.rereading import recorded_trajectory
from tirjudge.records.result_row import RecordedView, ResultRow
from tirjudge.statistics.clusters import prompt_cluster
from tirjudge_environments import Criterion, JudgeTask
from tirjudge_environments.messages import conversation_data, message_data
from tirjudge_environments.programs.evidence import decided
from tirjudge_environments.types import derive_seed

Against = Literal["labels", "verdicts"]
_PARTS = 3
"""One of so many prompts is for choosing, and the others are for measuring."""


def is_for_choosing(cluster: str, seed: int = 0) -> bool:
    """Return True if candidates are chosen on the rows with this prompt, and False if they are measured."""
    return derive_seed(seed, "compile", cluster) % _PARTS == 0


@dataclass(frozen=True, slots=True)
class RuleExample:
    """Responses to a prompt, and which responses follow a rule."""

    rule: str
    prompt: Any
    """The conversation as JSON values, as checkers find it."""
    cluster: str
    """The name of all rows with the same prompt."""
    responses: tuple[str, ...]
    follows: bool | None
    """True if a single response follows the rule; None for several responses."""
    best: int | None
    """The index of the response that alone follows the rule, or alone breaks it if `breaks`; None for one."""
    breaks: bool
    against: Against

    def agrees(self, outcomes: Sequence[bool | None]) -> bool | None:
        """Return whether a checker's outcomes are those of the example; None if it abstains on a response."""
        if None in outcomes:
            return None
        if self.follows is not None:
            return outcomes[0] is self.follows
        return all(
            (outcome is not self.breaks) == (index == self.best) for index, outcome in enumerate(outcomes)
        )

    @property
    def passing(self) -> list[str]:
        """The responses that follow the rule."""
        if self.follows is not None:
            return list(self.responses) if self.follows else []
        return [one for index, one in enumerate(self.responses) if (index == self.best) != self.breaks]

    @property
    def failing(self) -> list[str]:
        """The responses that break the rule."""
        passing = self.passing
        return [one for one in self.responses if one not in passing]


@dataclass(frozen=True, slots=True)
class RuledRow:
    """A row with its rules, as far as checkers are concerned."""

    task: JudgeTask
    criteria: tuple[Criterion, ...]
    record: ResultRow | None = None
    """The row of a result file, with the programs that judged it; None for a row that was not judged."""

    @property
    def cluster(self) -> str:
        return prompt_cluster(list(map(message_data, self.task.prompt)))

    @property
    def texts(self) -> tuple[str, ...] | None:
        """The responses; None if one is a transcript, which checkers do not read."""
        texts = tuple(one for one in self.task.candidates if isinstance(one, str))
        return texts if len(texts) == len(self.task.candidates) else None

    @property
    def has_label(self) -> bool:
        gold, single = self.task.gold, len(self.task.candidates) == 1
        compared = self.task.label is not None or gold.get("strength") == 0
        return isinstance(gold.get("rating"), bool) if single else compared

    def labelled(self, number: int) -> RuleExample | None:
        """Return the example that the label gives of a rule, by its number; None without a label.

        A tie gives none: the responses may all follow the rule, or all break it.
        """
        if not self.has_label or self.task.gold.get("strength") == 0:
            return None
        rating = self.task.gold.get("rating")
        return self._example(number, rating if isinstance(rating, bool) else None, self.task.label, "labels")

    def decided(self, number: int) -> Iterator[RuleExample]:
        """Yield the examples that the judge's verdict on a rule gives, if programs decided it."""
        if self.record is None or number >= len(self.record.criteria):
            return
        judged = self.record.criteria[number]
        views = [view for view in self.record.views if view.criterion == number]
        if judged.checker or not views or not all(map(_is_decided, views)):
            return
        shares = judged.satisfied
        if judged.satisfied_from is not None:
            for index, share in enumerate(shares):
                if share in (0.0, 1.0):
                    one = self._example(number, share == 1.0, None, "verdicts", only=index)
                    yield from [one] if one else []
        elif sorted(share for share in shares if share is not None) == [0.0] * (len(shares) - 1) + [1.0]:
            one = self._example(number, None, shares.index(1.0), "verdicts")
            yield from [one] if one else []

    def _example(
        self, number: int, satisfies: bool | None, best: int | None, against: Against, only: int | None = None
    ) -> RuleExample | None:
        criterion, texts = self.criteria[number], self.texts
        if texts is None:
            return None
        negative = criterion.polarity == "negative"
        return RuleExample(
            rule=criterion.text,
            prompt=conversation_data(self.task.prompt),
            cluster=self.cluster,
            responses=texts if only is None else (texts[only],),
            follows=None if satisfies is None else satisfies != negative,
            best=best,
            breaks=negative,
            against=against,
        )


def _is_decided(view: RecordedView) -> bool:
    try:
        return decided(recorded_trajectory(view)) is True
    except (KeyError, ValueError):  # an edited file
        return False


@dataclass(slots=True)
class Examples:
    """The examples of all rows, by rule."""

    chosen_on: dict[str, list[RuleExample]] = field(default_factory=dict)
    measured_on: dict[str, list[RuleExample]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, rows: Iterable[RuledRow], seed: int, equal: Mapping[tuple[int, int], bool] | None = None
    ) -> Examples:
        """Return the examples of rows: from labels, or from the judge's verdicts on rows without any.

        `equal` says, of a row and a rule by their numbers, whether all other rules of the row come out equal
        for its responses.
        """
        found = cls()
        for place, row in enumerate(rows):
            for number in range(len(row.criteria)):
                if row.has_label:
                    alone = len(row.criteria) == 1 or (equal or {}).get((place, number), False)
                    one = row.labelled(number) if alone else None
                    found._add([one] if one else [], seed)
                else:
                    found._add(row.decided(number), seed)
        return found

    def _add(self, examples: Iterable[RuleExample], seed: int) -> None:
        for one in examples:
            part = self.chosen_on if is_for_choosing(one.cluster, seed) else self.measured_on
            part.setdefault(one.rule.strip(), []).append(one)
