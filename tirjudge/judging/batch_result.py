"""Batches of a Python program: the judgments of many rows, in their order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, overload

from tirjudge.data.rows import Row
from tirjudge.judging.batch import BatchRunner, EngineRowJudge, Failure, Plan, Work
from tirjudge.judging.judge_engine import JudgeEngine
from tirjudge.judging.judgment import Judgment
from tirjudge.judging.tally import Tally
from tirjudge.records.answers import JudgedProgram
from tirjudge.records.html import table_html
from tirjudge.statistics.proportions import Proportion
from tirjudge_environments import JudgeTask

OnProgress = Callable[[int, int], None]
"""Called after each row with the rows done and the rows in all."""


class NoRowJudged(RuntimeError):
    """Not a single row of a batch could be judged; the message has the most frequent reason in one line."""

    def __init__(self, failures: Sequence[Failure]) -> None:
        self.failures = tuple(failures)
        super().__init__(f"none of {len(failures)} rows could be judged: {most_frequent(failures)}")


@dataclass(frozen=True, slots=True, repr=False)
class BatchResult(Sequence[Judgment | Failure]):
    """The judgments of a batch, in the order of rows; a row that could not be judged has a Failure."""

    rows: tuple[Judgment | Failure, ...]

    @overload
    def __getitem__(self, index: int) -> Judgment | Failure: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Judgment | Failure, ...]: ...

    def __getitem__(self, index: int | slice) -> Judgment | Failure | tuple[Judgment | Failure, ...]:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Judgment | Failure]:
        return iter(self.rows)

    @property
    def judgments(self) -> tuple[Judgment, ...]:
        """The judgments of the rows that were judged, with or without a verdict."""
        return tuple(row for row in self.rows if isinstance(row, Judgment))

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The rows that could not be judged, each with the reason."""
        return tuple(row for row in self.rows if isinstance(row, Failure))

    @property
    def programs(self) -> tuple[JudgedProgram, ...]:
        """The programs of all judgments, in the order of the rows."""
        return tuple(program for judgment in self.judgments for program in judgment.programs)

    @property
    def tally(self) -> Tally:
        """The counts that `tirjudge judge` prints: verdicts, ties, programs, tokens, accuracy."""
        tally = Tally(failed=len(self.failures))
        for one in self.judgments:
            tally.add(one.row().to_json())
        return tally

    @property
    def accuracy(self) -> Proportion | None:
        """The accuracy of labelled rows under the protocol `verdict`; None without labels."""
        tally = self.tally
        return tally.accuracy if tally.labelled else None

    def to_dict(self) -> dict[str, Any]:
        """Return the batch as JSON values: `judged`, the judgments' `to_dict()`, and `failed`."""
        return {
            "judged": [judgment.to_dict() for judgment in self.judgments],
            "failed": [asdict(failure) for failure in self.failures],
        }

    def __repr__(self) -> str:
        """Describe the batch in one line."""
        tally = self.tally
        parts = [f"{len(self.rows)} rows", f"{tally.verdicts} with a verdict"]
        parts += [f"{tally.open} left open"] if tally.open else []
        parts += [f"{tally.failed} failed"] if tally.failed else []
        parts += [f"accuracy {tally.accuracy}"] if tally.labelled else []
        return f"<BatchResult: {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the counts, and a table of the rows."""
        rows = (one.row() if isinstance(one, Judgment) else (one.where, one.reason) for one in self.rows)
        return table_html(rows, repr(self)[1:-1])


def most_frequent(failures: Sequence[Failure]) -> str:
    """Return the most frequent reason of failure, with its count if reasons differ."""
    (reason, count), *others = Counter(failure.reason for failure in failures).most_common()
    return f"{reason} ({count} of them)" if others else reason


async def judge_rows(
    engine: JudgeEngine,
    rows: Sequence[Mapping[str, Any]],
    plan: Plan,
    progress: OnProgress = lambda done, total: None,
) -> BatchResult:
    """Judge rows with an open engine.

    A row that cannot be judged is a Failure and does not stop the others. After `plan.give_up_after`
    consecutive failures of the model or the sandbox, and once the cost limit is reached or the cache cannot
    be used, the remaining rows fail without being tried. Raises NoRowJudged if there are rows and no row
    could be judged.
    """
    sink = _Outcomes(len(rows), progress)
    places = [f"rows[{index}]" for index in range(len(rows))]
    given = (Row(place, "", row) for place, row in zip(places, rows, strict=True))
    await BatchRunner(EngineRowJudge(engine).judgment, sink, plan).run(given)
    result = BatchResult(tuple(sink.found[place] for place in places))
    if result.failures and not result.judgments:
        raise NoRowJudged(result.failures)
    return result


@dataclass(slots=True)
class _Outcomes:
    """Keeps the outcome of every row, by its place. After an error the remaining rows fail."""

    total: int
    progress: OnProgress
    found: dict[str, Judgment | Failure] = field(default_factory=dict)

    def expects(self, work: Work, task: JudgeTask) -> bool:
        return True

    def judged(self, work: Work, result: Judgment) -> None:
        self._add(work.where, result)

    def failed(self, failure: Failure) -> None:
        self._add(failure.where, failure)

    def stopped(self, work: Work, error: Exception) -> None:
        """Record a Failure if the row lacks an outcome; running rows finish."""
        if work.where not in self.found:
            self._add(work.where, Failure(work.where, work.task.id, str(error)))

    def _add(self, where: str, outcome: Judgment | Failure) -> None:
        self.found[where] = outcome
        self.progress(len(self.found), self.total)
