"""Best-of-N: a judge selects one of N candidates, compared with pass@1, majority vote and the oracle."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Awaitable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from tirjudge.generation.base import GeneratorFailed
from tirjudge.judging.batch import Failure, FailureCount
from tirjudge.judging.judge_engine import JudgeEngine
from tirjudge.judging.judgment import Judgment
from tirjudge.judging.questions import Conversation, Kind, kind_for, numbered, question
from tirjudge.rollout import all_or_none, as_finished
from tirjudge.selection.grading import CandidateSet, Grade, Grades, RefereeUnavailable, shown
from tirjudge.selection.strengths import Comparison
from tirjudge.selection.tournaments import BEST_OF_N, Knockout, RoundRobin
from tirjudge.statistics.clusters import prompt_cluster
from tirjudge.statistics.estimators import Credits
from tirjudge.statistics.proportions import Proportion
from tirjudge.storage.result_file import ResultFile, digest
from tirjudge_environments import derive_seed
from tirjudge_environments.messages import conversation_data, response_data
from tirjudge_sandbox import SandboxUnavailable
from tirjudge_sandbox.blocking import EventLoopThread

PASS, MAJORITY, ORACLE = "pass@1", "majority", "oracle"


class Referee(Protocol):
    """A judge of one question's candidates, which are given by their indices."""

    async def score(self, candidate: int) -> float | None:
        """Score one candidate alone; None without a verdict. Raises RefereeUnavailable."""

    async def best(self, candidates: Sequence[int]) -> tuple[int, ...]:
        """Return the candidates that share first place among two or more; empty without a verdict.

        Raises RefereeUnavailable.
        """


@dataclass(frozen=True, slots=True)
class Selection:
    """The candidate that a method selected."""

    choice: int
    """Index of the candidate."""
    judgments: int
    """Number of judgments that the method needed."""
    undecided: int = 0
    """Judgments without a verdict or with a tie, so that the method's own rule decided."""


class Method(Protocol):
    """A way to select one of N candidates."""

    async def select(self, question: CandidateSet, grade: Grade, referee: Referee) -> Selection:
        """Select a candidate from verdicts and `grade.answers`; never from `grade.solved`."""


def open_method(name: str, *, group_size: int = 4, seed: int = 0) -> Method:
    """Return the method of this name. Raises ValueError for an unknown name and a group size below 2."""
    match name:
        case "pointwise":
            return Pointwise()
        case "pairwise":
            return Compared(Knockout(), seed)
        case "listwise":
            return Compared(Knockout(group_size), seed)
        case "listwise-all":
            return Compared(Knockout(None), seed)
        case "round-robin":
            return Compared(RoundRobin(), seed)
    raise ValueError(f"no method {name!r}; there are {', '.join(BEST_OF_N)}")


class Pointwise:
    """Selects the highest score; among equal scores the majority of their answers (TIR-Judge, Appendix E).

    A candidate without a score loses to all others. Equal scores of all candidates, or none, decide nothing.
    """

    async def select(self, question: CandidateSet, grade: Grade, referee: Referee) -> Selection:
        count = len(question.task.candidates)
        scores = await all_or_none(referee.score(index) for index in range(count))
        given = [score for score in scores if score is not None]
        top = [index for index in range(count) if not given or scores[index] == max(given)]
        undecided = count if len(top) == count > 1 else count - len(given)
        return Selection(majority(top, grade.answers), count, undecided)


class Compared:
    """Selects by a tournament; the majority of their answers decides among candidates that share first place.

    A tie or a missing verdict is undecided, and the tournament's own rule applies.
    """

    def __init__(self, tournament: Knockout | RoundRobin, seed: int) -> None:
        self._tournament, self._seed = tournament, seed

    async def select(self, question: CandidateSet, grade: Grade, referee: Referee) -> Selection:
        size, seed = len(question.task.candidates), derive_seed(self._seed, "bracket", question.task.id)
        played: list[Comparison] = []
        while groups := self._tournament.following(size, None, seed, played):
            # Sorted, so that a group has one prompt, and one stored judgment, however the bracket orders it.
            asked = [tuple(sorted(group)) for group in groups]
            verdicts = await all_or_none(map(referee.best, asked))
            played += [Comparison.won_by(group, best) for group, best in zip(asked, verdicts, strict=True)]
        undecided = sum(len(one.best) != 1 for one in played)
        top = self._tournament.first(size, seed, played)
        return Selection(majority(top, grade.answers), len(played), undecided)


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


class AsyncJudge(Protocol):
    """The calls of a `Judge` that best-of-N needs."""

    async def ascore(self, prompt: Conversation, response: Conversation) -> Judgment: ...

    async def arank(self, prompt: Conversation, responses: Sequence[Conversation]) -> Judgment: ...


def best_of(
    judge: AsyncJudge,
    prompt: Conversation,
    candidates: Sequence[Conversation],
    method: str = "pairwise",
    *,
    answers: Sequence[int | None] | None = None,
    group_size: int = 4,
    seed: int = 0,
) -> Selection:
    """Select one of N candidates with a judge, by one of `BEST_OF_N`; works inside a running event loop too.

    `answers` tells `pointwise` and `round-robin` which candidates give the same answer: equal numbers are
    equal answers, None is no answer; by default, equal texts are. Raises RefereeUnavailable if the model or
    the sandbox failed or cannot be opened, and ValueError for an invalid prompt, method or option.
    """
    thread = EventLoopThread("tirjudge-best-of-n")
    try:
        return thread.run(
            abest_of(judge, prompt, candidates, method, answers=answers, group_size=group_size, seed=seed)
        )
    finally:
        thread.close()


async def abest_of(
    judge: AsyncJudge,
    prompt: Conversation,
    candidates: Sequence[Conversation],
    method: str = "pairwise",
    *,
    answers: Sequence[int | None] | None = None,
    group_size: int = 4,
    seed: int = 0,
) -> Selection:
    """Select one of N candidates with a judge; the async version of `best_of`."""
    selecting = open_method(method, group_size=group_size, seed=seed)
    task = question(prompt, numbered(candidates, "candidates"), None, "")
    same = tuple(map(task.candidates.index, task.candidates)) if answers is None else tuple(answers)
    if len(same) != len(task.candidates):
        raise ValueError(f"{len(same)} answers for {len(task.candidates)} candidates")
    referee = _JudgeReferee(judge, prompt, candidates)
    return await selecting.select(CandidateSet(task, where=""), Grade(None, same), referee)


@dataclass(frozen=True, slots=True)
class _JudgeReferee:
    """A referee that asks a `Judge`."""

    judge: AsyncJudge
    prompt: Conversation
    candidates: Sequence[Conversation]

    async def score(self, candidate: int) -> float | None:
        return (await _scored(self.judge.ascore(self.prompt, self.candidates[candidate]))).score

    async def best(self, candidates: Sequence[int]) -> tuple[int, ...]:
        shown = [self.candidates[index] for index in candidates]
        judgment = await _scored(self.judge.arank(self.prompt, shown))
        return tuple(candidates[place] for place in judgment.best)


async def _scored(judging: Awaitable[Judgment]) -> Judgment:
    """Return the judgment, or raise RefereeUnavailable if the model or the sandbox failed."""
    try:
        judgment = await judging
    except (GeneratorFailed, SandboxUnavailable) as error:
        raise RefereeUnavailable(str(error), passing=True) from None
    if judgment.stop.unscored:
        raise RefereeUnavailable(f"{judgment.stop}: {judgment.detail}", passing=judgment.stop.down)
    return judgment


@dataclass(frozen=True, slots=True)
class _Kept:
    """The parts of a stored judgment that methods need."""

    digest: str
    """Hash of the task that was judged."""
    best: tuple[int, ...]
    """Positions among the candidates shown."""
    score: float | None


class Judgments:
    """The judgments of a result file, and a judge that adds missing ones; bound to one event loop.

    At most `engine.options.concurrency` judgments run at once.
    """

    def __init__(self, engine: JudgeEngine, results: ResultFile, *, texts: bool = True) -> None:
        """`texts` records the prompt and the candidates with every judgment."""
        self._engine, self._results, self._texts = engine, results, texts
        self._free = asyncio.Semaphore(engine.options.concurrency)
        self._kept = {row["id"]: _kept(row) for row in results.rows()}

    @property
    def denied(self) -> bool:
        """True if the judge's endpoint refuses every request."""
        return self._engine.denied

    async def judge(
        self,
        question: CandidateSet,
        candidates: tuple[int, ...],
        kind: Kind | None,
        solved: Sequence[float] | None,
    ) -> _Kept:
        """Return the judgment of these candidates, from the file if it is there.

        Raises RefereeUnavailable, and ValueError for candidates that the format does not accept, and for a
        question that was judged with another prompt or other candidates.
        """
        task = replace(
            question.task,
            id=f"{question.task.id}#{'-'.join(map(str, candidates))}",
            candidates=tuple(question.task.candidates[index] for index in candidates),
            files=tuple(question.task.files[index] for index in candidates if question.task.files),
            sources=tuple(question.task.sources[index] for index in candidates if question.task.sources),
        )
        task_digest, known = digest(task), self._kept.get(task.id)
        if known is not None:
            if known.digest != task_digest:
                raise ValueError(
                    "it was judged with another prompt or candidates; judge everything again with --overwrite"
                )
            return known
        async with self._free:
            loop = asyncio.get_running_loop()
            started = loop.time()
            # No prompt and no verdict depends on the label, and neither does the digest of older files.
            labelled = replace(task, label=_label(candidates, solved))
            result = await self._engine.judge(labelled, kind or kind_for(task))
        if result.stop.unscored:
            raise RefereeUnavailable(f"{result.stop}: {result.detail}", passing=result.stop.down)
        row = result.row(texts=self._texts, rewards=self._engine.rewards(result)).to_json() | {
            "question": question.task.id,
            "candidates": list(candidates),
            "best": list(result.best),
            "seconds": round(loop.time() - started, 3),
            "model": self._engine.model,
            "note": self._engine.note.note,
            "digest": task_digest,
        }
        self._results.append(row)
        self._kept[task.id] = _kept(row)
        return self._kept[task.id]


@dataclass(frozen=True, slots=True)
class QuestionReferee:
    """A referee for the candidates of one question."""

    question: CandidateSet
    judgments: Judgments
    solved: Sequence[float] | None
    """Says which candidates solve it, if that is known: judgments are recorded with their reward."""

    async def score(self, candidate: int) -> float | None:
        kept = await self.judgments.judge(self.question, (candidate,), "pointwise", self.solved)
        return kept.score

    async def best(self, candidates: Sequence[int]) -> tuple[int, ...]:
        shown = tuple(candidates)
        kept = await self.judgments.judge(self.question, shown, None, self.solved)
        return tuple(shown[place] for place in kept.best)


def _label(candidates: Sequence[int], solved: Sequence[float] | None) -> int | None:
    """Return the index of the best candidate; None if several are tied or none is graded."""
    if solved is None or len(candidates) < 2:
        return None
    shares = [solved[candidate] for candidate in candidates]
    return shares.index(max(shares)) if shares.count(max(shares)) == 1 else None


def _kept(row: Mapping[str, Any]) -> _Kept:
    scores = row["scores"]
    score = scores[0] if scores and len(scores) == 1 else None
    return _Kept(row["digest"], tuple(row["best"]), score)


@dataclass(frozen=True, slots=True)
class Picked:
    """A question with the candidate that each method selected."""

    question: CandidateSet
    grade: Grade
    majority: int
    """The candidate that a majority vote selects, without any judge."""
    selections: Mapping[str, Selection]
    """By the method's name."""

    @property
    def record(self) -> dict[str, Any]:
        """Its line in the file of picks; `solved` is null for a question without evidence."""
        solved, sources = self.grade.solved, self.question.task.sources
        return {
            "id": self.question.task.id,
            "where": self.question.where,
            "solved": None if solved is None else list(solved),
            "answers": list(self.grade.answers),
            "majority": self.majority,
            "selections": {
                name: {
                    "choice": one.choice,
                    **({"source": sources[one.choice]} if sources else {}),
                    "response": response_data(self.question.task.candidates[one.choice]),
                    "solved": None if solved is None else solved[one.choice],
                    "judgments": one.judgments,
                    "undecided": one.undecided,
                }
                for name, one in self.selections.items()
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BestOfN:
    """Selects from many questions, several at once."""

    grades: Grades
    judgments: Judgments | None
    """None without methods."""
    methods: Mapping[str, Method]
    truncate: int | None = None
    """Characters of a candidate beyond which its middle is cut out before it is judged."""
    thinking: bool = True
    """Judge the thinking at the start of candidates too."""
    at_once: int = 32
    """Questions in progress at the same time."""
    give_up_after: int = 50
    """Abort after N consecutive questions failed because of the model or the sandbox; 0 never aborts."""

    async def run(self, questions: Iterable[CandidateSet | Failure]) -> AsyncGenerator[Picked | Failure]:
        """Yield each question's result or the reason for its failure. Raises TooManyFailures."""
        failures = FailureCount(self.give_up_after)
        async with aclosing(as_finished(map(self._pick, questions), self.at_once)) as finished:
            async for picked, is_down in finished:
                yield picked
                if isinstance(picked, Picked):
                    failures.works()
                elif is_down:
                    denied = self.judgments is not None and self.judgments.denied
                    failures.is_down(picked.reason, denied=denied)

    async def _pick(self, question: CandidateSet | Failure) -> tuple[Picked | Failure, bool]:
        """Return a result, and True if the model or the sandbox failed in a way that may pass."""
        if isinstance(question, Failure):
            return question, False
        try:
            return await self._select(question), False
        except (RefereeUnavailable, ValueError) as error:
            is_down = isinstance(error, RefereeUnavailable) and error.passing
            return Failure(question.where, question.task.id, str(error)), is_down

    async def _select(self, question: CandidateSet) -> Picked:
        grade = await self.grades.grade(shown(question, None, thinking=self.thinking))
        everyone = range(len(question.task.candidates))
        selections = {}
        if self.judgments is not None:
            seen = shown(question, self.truncate, thinking=self.thinking)
            referee = QuestionReferee(seen, self.judgments, grade.solved)
            # One method after the other, so that a method reuses the judgments of those before it.
            selections = {
                name: await method.select(seen, grade, referee) for name, method in self.methods.items()
            }
        return Picked(question, grade, majority(everyone, grade.answers), selections)


@dataclass(frozen=True, slots=True)
class Line:
    """Result of one method over all questions."""

    name: str
    solved: Proportion | None
    """Graded questions that it solved; for pass@1, the sum of the shares of candidates that solve each.

    None if no question was graded.
    """
    judgments: int = 0
    undecided: int = 0


@dataclass(slots=True)
class SolvedTally:
    """Solved questions by every method, pass@1, majority vote and the oracle (TIR-Judge, Table 7)."""

    questions: int = 0
    graded: int = 0
    """Questions for which it is known which candidates solve them."""
    candidates: int = 0
    _solved: defaultdict[str, Credits] = field(default_factory=lambda: defaultdict(Credits))
    """Shares that are solved, by name; questions with the same prompt are a cluster."""
    _judgments: Counter[str] = field(default_factory=Counter)
    _undecided: Counter[str] = field(default_factory=Counter)

    def add(self, picked: Picked) -> None:
        """Count one question."""
        solved = picked.grade.solved
        self.questions += 1
        self.candidates += len(picked.question.task.candidates)
        for name, one in picked.selections.items():
            self._judgments[name] += one.judgments
            self._undecided[name] += one.undecided
        if solved is None:
            return
        self.graded += 1
        found = {PASS: sum(solved) / len(solved), MAJORITY: solved[picked.majority]}
        found |= {name: solved[one.choice] for name, one in picked.selections.items()}
        cluster = prompt_cluster(conversation_data(picked.question.task.prompt))
        for name, share in (found | {ORACLE: max(solved)}).items():
            self._solved[name].add(share, cluster)

    @property
    def lines(self) -> list[Line]:
        """Results of pass@1, majority vote, the methods and the oracle; without grades, of the methods."""
        names = (PASS, MAJORITY, *self._judgments, ORACLE) if self.graded else tuple(self._judgments)
        solved = {name: self._solved[name].mean for name in names} if self.graded else {}
        return [Line(name, solved.get(name), self._judgments[name], self._undecided[name]) for name in names]
