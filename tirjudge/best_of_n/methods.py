"""Selection methods of best-of-N: by scores, by a knockout, by a round robin."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from itertools import combinations, pairwise

from tirjudge.best_of_n.base import CandidateSet, Grade, Method, Referee, Selection
from tirjudge_environments import derive_seed

METHODS = {
    "pointwise": "every candidate scored alone; N judgments, ties by majority vote",
    "pairwise": "a knockout in pairs; N - 1 judgments",
    "listwise": "a knockout in groups (--group-size)",
    "listwise-all": "all candidates in one prompt",
    "round-robin": "every pair; N (N - 1) / 2 judgments, ties by majority vote",
}
"""Name to description. The first three are those of TIR-Judge, Table 7."""


def open_method(name: str, *, group_size: int = 4, seed: int = 0) -> Method:
    """Return the method of this name. Raises ValueError for an unknown name and a group size below 2."""
    match name:
        case "pointwise":
            return Pointwise()
        case "pairwise":
            return Knockout(2, seed)
        case "listwise":
            return Knockout(group_size, seed)
        case "listwise-all":
            return Knockout(None, seed)
        case "round-robin":
            return RoundRobin()
    raise ValueError(f"no method {name!r}; there are {', '.join(METHODS)}")


class Pointwise:
    """Selects the highest score; among equal scores the majority of their answers (TIR-Judge, Appendix E).

    A candidate without a score loses to all others; if none has a score, all are equal.
    """

    async def select(self, question: CandidateSet, grade: Grade, referee: Referee) -> Selection:
        count = len(question.task.candidates)
        scores = await asyncio.gather(*(referee.score(index) for index in range(count)))
        given = [score for score in scores if score is not None]
        top = [index for index in range(count) if not given or scores[index] == max(given)]
        return Selection(majority(top, grade.answers), count, undecided=count - len(given))


class Knockout:
    """A seeded bracket whose groups send one candidate each to the next round.

    In pairs, N candidates take N - 1 judgments. The groups of a round differ in size by at most one; a group
    of one passes without a judgment. Without a verdict, a member of the group is drawn with the seed; after a
    tie, one of the tied members. Source: Guo et al. 2025; TIR-Judge, Appendix E.
    """

    def __init__(self, group: int | None = 2, seed: int = 0) -> None:
        """`group` is 2 for pairs, more for lists, None for all candidates in one prompt.

        Raises ValueError for a group below 2.
        """
        if group is not None and group < 2:
            raise ValueError(f"a knockout needs groups of 2 candidates or more, not {group}")
        self._group, self._seed = group, seed

    async def select(self, question: CandidateSet, grade: Grade, referee: Referee) -> Selection:
        remaining = self._drawn(question, range(len(question.task.candidates)))
        judgments = undecided = 0
        while len(remaining) > 1:
            groups = _groups(remaining, self._group or len(remaining))
            winners = await asyncio.gather(*(self._winner(question, group, referee) for group in groups))
            judgments += sum(len(group) > 1 for group in groups)
            undecided += sum(drawn for _, drawn in winners)
            remaining = [winner for winner, _ in winners]
        return Selection(remaining[0], judgments, undecided)

    async def _winner(
        self, question: CandidateSet, group: Sequence[int], referee: Referee
    ) -> tuple[int, bool]:
        """Return the candidate that goes on, and True if it was drawn."""
        if len(group) == 1:
            return group[0], False
        # Sorted, so that a group has one prompt, and one stored judgment, however the bracket orders it.
        best = await referee.best(sorted(group))
        if len(best) == 1:
            return best[0], False
        # Lots decide among the tied members, or in the whole group without a verdict.
        return self._drawn(question, best or group)[0], True

    def _drawn(self, question: CandidateSet, candidates: Sequence[int]) -> list[int]:
        """Shuffle the candidates, as a pure function of the seed, the question's id and the candidates."""
        key = sorted(candidates)
        return sorted(
            key, key=lambda one: derive_seed(self._seed, "bracket", question.task.id, repr(key), one)
        )


class RoundRobin:
    """Every pair is judged and the most wins select (JETTS, Zhou et al. 2025): N (N - 1) / 2 judgments.

    A tie or a missing verdict is half a win for both. Among candidates with equal wins the majority of their
    answers decides.
    """

    async def select(self, question: CandidateSet, grade: Grade, referee: Referee) -> Selection:
        count = len(question.task.candidates)
        pairs = list(combinations(range(count), 2))
        verdicts = await asyncio.gather(*(referee.best(pair) for pair in pairs))
        wins = [0.0] * count
        for pair, best in zip(pairs, verdicts, strict=True):
            # 1 for the winner of the pair; 1/2 for both after a tie or without a verdict.
            for candidate in best or pair:
                wins[candidate] += 1 / len(best or pair)
        top = [candidate for candidate in range(count) if wins[candidate] == max(wins)]
        undecided = sum(len(best) != 1 for best in verdicts)
        return Selection(majority(top, grade.answers), len(pairs), undecided)


def majority(candidates: Sequence[int], answers: Sequence[int | None]) -> int:
    """Return the first candidate that gives the most frequent answer (self-consistency, Wang et al. 2023).

    Among equally frequent answers the one given first wins. Candidates without an answer do not vote; if none
    has an answer, the first candidate is returned.
    """
    votes = Counter(answers[candidate] for candidate in candidates)
    # Candidates without an answer do not vote.
    del votes[None]
    if not votes:
        return candidates[0]
    most = max(votes.values())
    return next(candidate for candidate in candidates if votes.get(answers[candidate]) == most)


def _groups(candidates: Sequence[int], size: int) -> list[Sequence[int]]:
    """Split into groups of at most `size` whose sizes differ by at most one."""
    # Rounded up: the fewest groups that respect the size.
    count = -(-len(candidates) // size)
    bounds = [len(candidates) * place // count for place in range(count + 1)]
    return [candidates[start:end] for start, end in pairwise(bounds)]
