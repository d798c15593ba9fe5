"""A summary of rows: counts by source and format, domain, label position, length and fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tirjudge.data.rows import BadRow, Row
from tirjudge_environments import JudgeTask
from tirjudge_environments.messages import whole_text
from tirjudge_environments.tasks import RowError, read_task
from tirjudge_training.corpora.base import KINDS

NO_LABEL = "none"


@dataclass
class Inspection:
    """Counts of rows that `tirjudge judge` can read; unreadable rows are counted by fault."""

    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Rows by source and format, or the number of responses if the row names no format."""
    domains: Counter[str] = field(default_factory=Counter)
    places: Counter[tuple[int, str]] = field(default_factory=Counter)
    """Rows by number of responses and position of the label, `0`, `1`, ...; `none` without a label."""
    words: list[int] = field(default_factory=list)
    """The length of each row's prompt and responses together, in words separated by whitespace."""
    faults: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, rows: Iterable[Row | BadRow]) -> Inspection:
        """Count all rows."""
        found = cls()
        for row in rows:
            try:
                if isinstance(row, BadRow):
                    raise RowError(row.reason)
                task = read_task(row.fields, default_id=row.default_id, beside=row.beside)
            except RowError as error:  # counted by its words, so that equal faults add up
                found.faults[str(error)] += 1
                continue
            kind = str(row.fields.get("format") or f"{len(task.candidates)} responses")
            found.kinds[str(row.fields.get("source") or "-"), kind] += 1
            found._count(task)
        return found

    def table(self) -> list[tuple[str, ...]]:
        """Return rows by source and format as cells of text, with a head and a line of totals."""
        sources = sorted({source for source, _ in self.kinds})
        kinds = list(dict.fromkeys([*KINDS, *sorted(kind for _, kind in self.kinds)]))
        lines = [(source, [self.kinds[source, kind] for kind in kinds]) for source in sources]
        lines.append(("total", [sum(self.kinds[source, kind] for source in sources) for kind in kinds]))
        shown = [(name, *(f"{n:,}" for n in counts), f"{sum(counts):,}") for name, counts in lines]
        return [("source", *kinds, "total"), *shown]

    def lines(self) -> Iterator[str]:
        """Yield one line each on domains, label positions and lengths."""
        yield "domains: " + ", ".join(f"{name} {n:,}" for name, n in self.domains.most_common())
        places = (f"{place} of {count}: {n:,}" for (count, place), n in sorted(self.places.items()))
        yield "label: " + ", ".join(places)
        lengths = (f"{percent} %: {n:,}" for percent, n in self.lengths(50, 90, 99, 100))
        yield "words of prompt and responses: " + ", ".join(lengths)

    def record(self) -> dict[str, object]:
        """Return the same counts, and the faults, as JSON values."""
        return {
            "rows": sum(self.kinds.values()),
            "kinds": [{"source": one, "kind": kind, "rows": n} for (one, kind), n in self.kinds.items()],
            "domains": dict(self.domains),
            "labels": [
                {"responses": count, "label": None if place == NO_LABEL else int(place), "rows": n}
                for (count, place), n in sorted(self.places.items())
            ],
            "words": {f"{percent} %": n for percent, n in self.lengths(50, 90, 99, 100)},
            "faults": dict(self.faults),
        }

    def lengths(self, *percent: int) -> Iterator[tuple[int, int]]:
        """Yield (percentage, words) pairs: so many percent of the rows have at most that many words."""
        ordered = sorted(self.words)
        for part in percent if ordered else ():
            yield part, ordered[max(0, -(-part * len(ordered) // 100) - 1)]

    def _count(self, task: JudgeTask) -> None:
        self.domains[task.domain or "-"] += 1
        self.places[len(task.candidates), NO_LABEL if task.label is None else str(task.label)] += 1
        texts = (*(message.content for message in task.prompt), *map(whole_text, task.candidates))
        self.words.append(sum(len(text.split()) for text in texts))
