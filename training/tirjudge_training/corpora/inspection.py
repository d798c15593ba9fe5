"""What rows there are: by source and format, domain, place of the label, and length."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tirjudge.data.rows import BadRow, Row
from tirjudge_environments import JudgeTask
from tirjudge_environments.tasks import RowError, read_task

NO_LABEL = "none"


@dataclass
class Inspection:
    """Counts of any rows that `tirjudge judge` reads; a row that it could not is counted by its fault."""

    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By source and format: what the row says of itself, else by its number of responses."""
    domains: Counter[str] = field(default_factory=Counter)
    places: Counter[tuple[int, str]] = field(default_factory=Counter)
    """By number of responses and the label's place, `0`, `1`, ...; `none` without a label."""
    words: list[int] = field(default_factory=list)
    """Of each row's prompt and responses together, separated by blanks."""
    faults: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, rows: Iterable[Row | BadRow]) -> Inspection:
        found = cls()
        for row in rows:
            try:
                if isinstance(row, BadRow):
                    raise RowError(row.reason)
                task = read_task(row.fields, default_id=row.default_id)
            except RowError as error:
                found.faults[str(error)] += 1
                continue
            kind = str(row.fields.get("format") or f"{len(task.candidates)} responses")
            found.kinds[str(row.fields.get("source") or "-"), kind] += 1
            found._count(task)
        return found

    def lengths(self, *percent: int) -> Iterator[tuple[int, int]]:
        """(percentage, words that so many rows have at most)."""
        ordered = sorted(self.words)
        for part in percent if ordered else ():
            yield part, ordered[max(0, -(-part * len(ordered) // 100) - 1)]

    def _count(self, task: JudgeTask) -> None:
        self.domains[task.domain or "-"] += 1
        self.places[len(task.candidates), NO_LABEL if task.label is None else str(task.label)] += 1
        texts = (*(message.content for message in task.prompt), *task.candidates)
        self.words.append(sum(len(text.split()) for text in texts))
