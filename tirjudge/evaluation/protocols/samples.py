"""Several samples of each row: majority vote and mean scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from tirjudge.evaluation.judged_rows import Figures, JudgedRow, ProtocolCard, Units, Unscorable, Vote
from tirjudge.evaluation.scoring import UnitsBuilder, credit, sampled_votes
from tirjudge.statistics.estimators import Mean


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
        return {f"SC@{int(samples.max())}": Mean(worth), "mean of single samples": Mean(alone)}


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
            builder.add_row(row, complete and top == [label], complete and len(top) > 1, len(row.samples))
        return builder.build()

    def figures(self, units: Units) -> Figures:
        right, tied, samples = units.values.T
        return {f"mean-score@{int(samples.max())}": Mean(right), "tie rate": Mean(tied)}


MEAN_SCORE = MeanScore()


def mean_scores(samples: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Return the mean score of each candidate over the samples that have one."""
    candidates = sorted({index for scores in samples for index in scores})
    return {index: fmean(scores[index] for scores in samples if index in scores) for index in candidates}
