"""Calibrated rows: the decision, the confidence and the people's classes of each judged row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path

from tirjudge.evaluation.base import DECISION, JudgedRow, Vote
from tirjudge.evaluation.calibration.people import NO_VERDICT, TIE, PeopleLabels, class_name, majority
from tirjudge.judging.abstention import margin, separated, vote_share
from tirjudge.judging.reproduction import run_foreign
from tirjudge.records.judged_row import Confidence, RecordedRow, read_result_rows
from tirjudge.rollout.concurrency import as_finished
from tirjudge_sandbox import Execution, Limits, Program, Sandbox

SEPARATED = "separated"
"""Key of a row's extras: the confidence `separated`, which only a sandbox can measure."""


@dataclass(frozen=True, slots=True)
class CalibratedRow:
    """One judged row with what people say about it."""

    id: str
    decision: int
    """The class of the judge's verdict; NO_VERDICT without one."""
    people: tuple[int | None, ...]
    """Each annotator's class; None for an annotator who did not label the row."""
    gold: int | None
    """The class of most annotators; None if there is none."""
    confidence: float | None
    """None without a verdict, and for a judge that does not give what the confidence is made of."""
    votes: tuple[Vote, ...]


@dataclass(slots=True)
class CalibratedRows:
    """The labelled rows of a run."""

    annotators: tuple[str, ...]
    rows: list[CalibratedRow] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """Rows that are left out of all numbers or of some, by reason."""

    @classmethod
    def of(cls, run: Iterable[JudgedRow], labels: PeopleLabels, confidence: Confidence) -> CalibratedRows:
        """Join a run with labels.

        Raises ValueError, in one line, if no row is labelled, or all labels name the same class.
        """
        found = cls(labels.annotators)
        for position, row in enumerate(run):
            people = labels.classes(row, position)
            if people is None or not any(one is not None for one in people):
                found.counts["without labels"] += 1
                continue
            found.rows.append(_calibrated(row, people, confidence))
        rows = found.rows
        if not rows:
            raise ValueError(
                f"no row of the run is labelled in {labels.name}: rows are joined by {labels.joined_by}"
            )
        found.counts["without a majority of the annotators"] = sum(row.gold is None for row in rows)
        found.counts["without a verdict"] = sum(row.decision == NO_VERDICT for row in rows)
        classes = {one for row in rows for one in row.people if one is not None}
        if len(classes) == 1:
            raise ValueError(
                f"{labels.name}: every label is {class_name(classes.pop())}, so that a judge that agrees "
                "cannot be told from one that always says the same: give labels of at least two classes"
            )
        return found


async def separations(
    results: Path, sandbox: Sandbox, *, allow_weak_isolation: bool
) -> dict[str, dict[str, float | None]]:
    """Return the confidence `separated` of every row of a result file, as extras by row id.

    The programs of the file run in an open sandbox. Raises WeakIsolation if it lacks an isolation property,
    ValueError for a file that is no result file, OSError.
    """

    async def run(program: Program, limits: Limits) -> Execution:
        return await run_foreign(program, sandbox, limits, allow_weak_isolation)

    async def measured(row: RecordedRow) -> tuple[str, float | None]:
        return row.id, await separated(row, run)

    works = (measured(row) for row, _ in read_result_rows(results))
    async with aclosing(as_finished(works, 2 * sandbox.capacity)) as finished:
        return {id: {SEPARATED: value} async for id, value in finished}


def with_reruns(
    run: Iterable[JudgedRow], reruns: Sequence[Mapping[str, JudgedRow]], counts: Counter[str]
) -> Iterator[JudgedRow]:
    """Yield the rows of a run with the votes of further runs, as further samples of each row.

    `reruns` have the rows by id. A row that lacks in one of them is counted in `counts`, and keeps the votes
    that it has.
    """
    for row in run:
        votes = list(row.votes)
        for rerun in reruns:
            other = rerun.get(row.id)
            if other is None:
                counts["not in every rerun"] += 1
                continue
            start = 1 + max((vote.sample for vote in votes), default=-1)
            votes += [replace(vote, sample=start + vote.sample) for vote in other.votes]
        # The recorded verdict is that of the first run alone.
        extras = {name: value for name, value in row.extras.items() if name != DECISION}
        yield replace(row, votes=tuple(votes), extras=extras)


def decision(row: JudgedRow) -> tuple[int, ...]:
    """Return the candidates in first place by all votes, as `tirjudge judge` combines them.

    Within a sample, orders that name several candidates make a tie; the candidate that most samples choose is
    the best. A recorded verdict is taken as it is. Empty without a verdict.
    """
    if DECISION in row.extras:
        return tuple(row.extras[DECISION])
    samples = [sample_decision(row.sample(number)) for number in row.samples]
    chosen = Counter(best[0] for best in samples if len(best) == 1)
    most = max(chosen.values(), default=0)
    return tuple(sorted(one for one, count in chosen.items() if count == most)) or next(
        filter(None, samples), ()
    )


def sample_decision(votes: Sequence[Vote]) -> tuple[int, ...]:
    """Return the candidates that the votes of one sample name; none if one vote is no verdict."""
    if not all(vote.best for vote in votes):
        return ()
    return tuple(sorted({index for vote in votes for index in vote.best}))


def class_of(best: Sequence[int]) -> int:
    """Return the class of the candidates in first place."""
    if not best:
        return NO_VERDICT
    return TIE if len(best) > 1 else best[0]


def _calibrated(row: JudgedRow, people: tuple[int | None, ...], confidence: Confidence) -> CalibratedRow:
    best = decision(row)
    return CalibratedRow(
        id=row.id,
        decision=class_of(best),
        people=people,
        gold=majority(people),
        confidence=_confidence(row, best, confidence) if best else None,
        votes=row.votes,
    )


def _confidence(row: JudgedRow, best: Sequence[int], name: Confidence) -> float | None:
    if name == "vote-share":
        return vote_share([vote.best for vote in row.votes], best)
    if name == "margin":
        return margin([vote.scores for vote in row.votes])
    found: float | None = row.extras.get(SEPARATED)
    return found
