"""A uniform sample of a source's questions that does not depend on the order of its rows."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from tirjudge_environments import derive_seed
from tirjudge_training.corpora.base import Skipped, SourceItem

REPEATED, EMPTY = "the same prompt again", "an empty prompt"


class QuestionSample:
    """The `n` questions with the smallest hash of seed and prompt, ordered by hash; None takes all, as read.

    Takes one pass over the questions and memory for `n` of them. `repeats` allows several questions with the
    same prompt. `clean` decides whether a question may be taken, and is called only for those that would be,
    since it searches every benchmark. After iterating, `read` is the number of rows and `skipped` counts
    those left out, by reason.
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
