"""Rows from questions: a uniform sample of a source, and the pairs and lists that its answers make."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random

from tirjudge.storage.json_lines import JsonObject
from tirjudge_environments import derive_seed
from tirjudge_environments.orders import letter
from tirjudge_training.corpora.base import KINDS, Kind, Skipped, SourceItem

REPEATED, EMPTY = "the same prompt again", "an empty prompt"
SAME = "the same answer is good and bad"


class QuestionSample:
    """The `n` questions with the smallest hash of seed and prompt, ordered by hash; None takes all, as read.

    Takes one pass over the questions and memory for `n` of them. `repeats` allows several questions with the
    same prompt. `clean` decides whether a question may be taken, and is called only for those that would be,
    since it searches every benchmark. After iterating, `read` is the number of rows and `skipped` counts
    the rows left out, by reason.
    """

    def __init__(
        self,
        questions: Iterable[SourceItem | Skipped],
        n: int | None,
        *,
        seed: int,
        repeats: bool,
        clean: Callable[[SourceItem], bool],
    ) -> None:
        self._questions, self._n, self._seed = questions, n, seed
        self._repeats, self._clean = repeats, clean
        self.read = 0
        self.skipped: Counter[str] = Counter()

    def __iter__(self) -> Iterator[SourceItem]:
        return self._all() if self._n is None else self._smallest(self._n)

    def _all(self) -> Iterator[SourceItem]:
        seen: set[str] = set()
        for question in self._usable():
            key = self._key(question)
            if key in seen:
                self.skipped[REPEATED] += 1
            elif self._clean(question):
                seen.add(key)
                yield question

    def _smallest(self, n: int) -> Iterator[SourceItem]:
        # A max-heap of the n smallest hashes, hence the negated ones.
        heap: list[tuple[int, str]] = []
        taken: dict[str, SourceItem] = {}
        for question in self._usable():
            key = self._key(question)
            rank = derive_seed("question", self._seed, key)
            if key in taken:
                self.skipped[REPEATED] += 1
            # `_clean` is the costly test, so it comes after the rank has qualified.
            elif n and (len(heap) < n or (-rank, key) > heap[0]) and self._clean(question):
                taken[key] = question
                heapq.heappush(heap, (-rank, key))
                if len(heap) > n:
                    del taken[heapq.heappop(heap)[1]]
        for _, key in sorted(heap, reverse=True):
            yield taken[key]

    def _usable(self) -> Iterator[SourceItem]:
        for question in self._questions:
            self.read += 1
            if isinstance(question, Skipped):
                self.skipped[question.reason] += 1
            elif not any(message.content.strip() for message in question.prompt):
                self.skipped[EMPTY] += 1
            else:
                yield question

    def _key(self, question: SourceItem) -> str:
        return question.whole_key if self._repeats else question.key


def distinct(question: SourceItem | Skipped) -> SourceItem | Skipped:
    """Return the question without bad answers that are also good, or Skipped if no bad answer is left."""
    if isinstance(question, Skipped):
        return question
    bad = tuple(answer for answer in question.bad if answer not in question.good)
    if len(bad) == len(question.bad):
        return question
    return replace(question, bad=bad) if bad else Skipped(SAME)


FEWEST, MOST = 3, 5
"""The number of wrong answers in a list (TIR App. C)."""
SINGLES: tuple[Kind, ...] = ("pointwise", "pairwise")


@dataclass
class Composer:
    """Assigns each question to one format.

    The paper does not specify the assignment. Here the first questions with enough wrong answers become
    lists, and the other formats are filled evenly.
    """

    source: str
    domain: str
    wanted: Mapping[Kind, int | None]
    """Rows by format; None means all."""
    judges: Mapping[Kind, str]
    """The judge named in rows of a format; formats without an entry name none."""
    seed: int
    repeats: bool = False
    """Allow several questions with the same prompt."""
    made: dict[Kind, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))

    @property
    def full(self) -> bool:
        """True if no format needs another row."""
        return not any(self._open(kind) for kind in KINDS)

    def row(self, question: SourceItem) -> JsonObject | None:
        """Return the question as a row of a format; None if no suitable format needs another row."""
        kind = self._kind(question)
        if kind is None:
            return None
        self.made[kind] += 1
        row: JsonObject = {
            "id": f"{self.source}/{self._key(question)}",
            "source": self.source,
            "format": kind,
            "environment": self.judges.get(kind),
            "domain": question.domain or self.domain,
            "prompt": [{"role": m.role, "content": m.content} for m in question.prompt],
            "tags": [f"row={question.origin}"],
        }
        return row | (self._answers(question, kind) if question.row is None else dict(question.row))

    def _key(self, question: SourceItem) -> str:
        return question.whole_key if self.repeats else question.key

    def _kind(self, question: SourceItem) -> Kind | None:
        if question.row is not None:
            return "pairwise" if self._open("pairwise") else None
        if not question.good or not question.bad:
            return None
        if self._open("listwise") and len(question.bad) >= FEWEST:
            return "listwise"
        # The format with the smallest share of its rows: both fill up evenly.
        return min((kind for kind in SINGLES if self._open(kind)), key=self._share, default=None)

    def _open(self, kind: Kind) -> bool:
        wanted = self.wanted.get(kind, 0)
        return wanted is None or self.made[kind] < wanted

    def _share(self, kind: Kind) -> float:
        return self.made[kind] / (self.wanted.get(kind) or 1)

    def _answers(self, question: SourceItem, kind: Kind) -> JsonObject:
        # The place of the good answer is random, so that a judge cannot learn it from the position.
        rng = Random(derive_seed("row", self.seed, self.source, self._key(question)))
        # A list may be shorter than chosen, but never shorter than FEWEST, see `_kind`.
        most = rng.randint(FEWEST, MOST) if kind == "listwise" else 1
        responses = rng.sample(question.bad, min(most, len(question.bad)))
        label = rng.randint(0, len(responses))
        responses.insert(label, rng.choice(question.good))
        return {"responses": responses, "label": letter(label)}
