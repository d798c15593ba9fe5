"""Several samples of each row, and preferences from 1 to 2: majority vote, mean scores and win rate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np

from tirjudge.evaluation.base import Figures, JudgedRow, ProtocolCard, Units, Unscorable, Vote
from tirjudge.evaluation.scoring import UnitsBuilder, credit, sampled_votes, section_figures
from tirjudge.statistics import Mean, Statistic


class SelfConsistency:
    """SC@N: each sample has one vote, in one seeded order that is the same for all samples of a row."""

    card = ProtocolCard(
        name="self-consistency",
        about="accuracy of the majority of N sampled verdicts in one seeded order",
        ties="a sample's tie is no vote; equal numbers of votes for k responses are worth 1/k",
        failures="a sample without a verdict is no vote; a row without any counts as wrong",
        source="J1, section 4.1 (SC@32)",
    )

    def units(self, rows: Iterable[JudgedRow]) -> Units:
        builder = UnitsBuilder()
        for row, label in builder.labelled(rows):
            votes = sampled_votes(row)
            builder.count_outcomes(*votes)
            alone = [credit(vote, label, share_ties=False) for vote in votes]
            first = majority(votes)
            worth = (label in first) / len(first) if first else 0.0
            builder.add_row(row, worth, sum(alone) / len(alone), len(votes))
        return builder.build()

    def figures(self, units: Units) -> Figures:
        worth, alone, samples = units.values.T
        return {
            f"SC@{int(samples.max())}": Mean(worth),
            "mean of single samples": Mean(alone),
        }


SELF_CONSISTENCY = SelfConsistency()


def majority(votes: Sequence[Vote]) -> tuple[int, ...]:
    """Return the candidates with the most votes; empty without any vote."""
    named = Counter(vote.choice for vote in votes if vote.choice is not None)
    most = max(named.values(), default=0)
    return tuple(candidate for candidate, count in named.items() if count == most)


class MeanScore:
    """Mean-score@N, for judges that give scores."""

    card = ProtocolCard(
        name="mean-score",
        about="accuracy of the highest mean score over N samples",
        ties="equal means count as wrong",
        failures="a missing score is left out of its mean; a candidate without any makes the row wrong",
        source="J1, Table 7 (Mean-Score@32)",
    )

    def units(self, rows: Iterable[JudgedRow]) -> Units:
        builder = UnitsBuilder()
        for row, label in builder.labelled(rows):
            means = mean_scores([vote.scores for vote in sampled_votes(row)])
            if not means and all(vote.best for vote in row.votes):
                raise Unscorable(
                    f"row {row.id!r} has a verdict without scores: this protocol needs a judge that scores"
                )
            top = [index for index, mean in means.items() if mean == max(means.values())]
            complete = len(means) == row.candidates
            if not complete:
                builder.counts["no verdict"] += 1
            elif len(top) > 1:
                builder.counts["tie"] += 1
            builder.add_row(
                row,
                complete and top == [label],
                complete and len(top) > 1,
                len(row.samples),
            )
        return builder.build()

    def figures(self, units: Units) -> Figures:
        right, tied, samples = units.values.T
        return {
            f"mean-score@{int(samples.max())}": Mean(right),
            "tie rate": Mean(tied),
        }


MEAN_SCORE = MeanScore()


def mean_scores(samples: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Return the mean score of each candidate over the samples that have one."""
    candidates = sorted({index for scores in samples for index in scores})
    return {index: fmean(scores[index] for scores in samples if index in scores) for index in candidates}


PREFERENCE = "preference"
"""Key of a row's extras: from 1 (the baseline's output is preferred) to 2 (the model's)."""


MODEL = "model"
"""Name of the tag that says whose outputs are compared with the baseline's."""


class WinRate:
    """Mean preference, which may be fractional, and its standard error.

    Units are instructions if a run has one model, so that runs of two models can be paired; otherwise they
    are instructions with their models, and each model has a win rate before that of all.
    """

    card = ProtocolCard(
        name="win-rate",
        about="mean preference for the model over the baseline, and wins with draws as halves",
        ties="are worth 0.5",
        failures="leave the row out",
        source="alpaca_eval, metrics/winrate.py",
    )

    def units(self, rows: Iterable[JudgedRow]) -> Units:
        builder = UnitsBuilder()
        models = set()
        for row in rows:
            if PREFERENCE not in row.extras:
                raise Unscorable(f"row {row.id!r} has no preference: is this an alpaca_eval annotation file?")
            preference = row.extras[PREFERENCE]
            if preference is None:
                builder.counts["left out: no preference"] += 1
                continue
            win = float(preference) - 1
            if win == 0.5:
                builder.counts["tie"] += 1
            model = row.tag(MODEL) or ""
            models.add(model)
            discrete = 1.0 if win > 0.5 else 0.5 * (win == 0.5)
            builder.add(_unit(row.id, model), model, win, discrete, cluster=row.cluster)
        units = builder.build()
        if len(models) > 1:
            return units
        (model,) = models
        ids = tuple(id.removesuffix(_unit("", model)) for id in units.ids)
        return replace(units, ids=ids, sections={"": np.arange(len(ids))})

    def figures(self, units: Units) -> Figures:
        win, discrete = units.values.T
        error = float(win.std(ddof=1)) / len(win) ** 0.5 if len(win) > 1 else 0.0
        models = {
            f"win rate of {model}": one
            for model, one in section_figures(units, win).items()
            if len(units.sections) > 1
        }
        return {
            **models,
            "win rate": Mean(win),
            "standard error": Statistic(error, len(win), "it is the error of the win rate"),
            "discrete win rate": Mean(discrete),
        }


def _unit(id: str, model: str) -> str:
    return f"{id} by {model}" if model else id


WIN_RATE = WinRate()
