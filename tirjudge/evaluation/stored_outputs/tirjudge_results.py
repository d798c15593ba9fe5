"""Our own result files as judged rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter, model_validator

from tirjudge.evaluation.judged_rows import CLASSES, Cost, Index, JudgedRow, Number, Vote, votes_decision
from tirjudge.evaluation.stored_outputs.base import Record, Unreadable, need, prompt_of, read_choice, shown
from tirjudge.evaluation.stored_outputs.files import NoLabel
from tirjudge.judging.votes import aggregate, highest, of_samples
from tirjudge.records.result_row import RecordedView, ResultRow
from tirjudge.records.verdicts import EMPTY, JudgedCriterion, RecordedVerdict
from tirjudge_environments import Criterion, StopReason
from tirjudge_environments.programs.check_harness import fault_of
from tirjudge_environments.registry import score_scale
from tirjudge_environments.tasks import RowError, read_label
from tirjudge_sandbox import Status

_SYNTAX = ("SyntaxError", "IndentationError", "TabError")
_MOST_RESPONSES = 1000
_LIMITS = {Status.WALL_LIMIT, Status.CPU_LIMIT, Status.MEMORY_LIMIT, Status.OUTPUT_LIMIT}

T = TypeVar("T")


class _Verdict(RecordedVerdict):
    scores: dict[Annotated[str, Field(pattern="^[0-9]{1,15}$")], Number]


class _View(RecordedView):
    order: Annotated[list[Index], Field(min_length=1)]
    verdict: _Verdict | None

    @model_validator(mode="after")
    def _shown(self) -> _View:
        if self.verdict is not None and self.verdict.choice not in (None, *self.order):
            raise ValueError(f"verdict.choice is {self.verdict.choice}, which is not in order")
        return self


class _Result(ResultRow):
    """The columns of a row, as votes can be made from them."""

    views: Annotated[list[_View], Field(min_length=1)]  # type: ignore[assignment]


def candidates_shown(views: Sequence[Record]) -> int:
    """Count the candidates, each shown in some view. Raises ValueError for more than a row can have."""
    count = 1 + max(int(index) for view in views for index in view["order"])
    if count > _MOST_RESPONSES:
        raise ValueError(f"views show {count} responses")
    return count


def _spoken(views: Sequence[Record]) -> Sequence[Record]:
    """Return views without the record of the rule about empty answers; the record alone without any other."""
    return [view for view in views if view.get("view") != EMPTY] or views


def recorded_votes(views: Sequence[Record]) -> tuple[Vote, ...]:
    """Return one vote per view of several responses, or one per sample if views show one response each."""
    views = _spoken(views)
    alone = all(len(view["order"]) == 1 for view in views)
    return tuple(_scored(views) if alone else map(_shown, views))


def criteria_votes(views: Sequence[Record], criteria: Sequence[Record]) -> tuple[Vote, ...]:
    """Return the votes of a row with criteria: each is the aggregate of the votes on its criteria.

    The views of all criteria are the same, so there is one vote per order or, if views show one response
    each, per sample. What a checker decided is part of every vote. Raises ValueError if views of a criterion
    are missing.
    """
    count = candidates_shown(views)
    found = [
        recorded_votes([view for view in views if view.get("criterion") == number])
        for number in range(len(criteria))
    ]
    asked = [votes for votes, one in zip(found, criteria, strict=True) if not one.get("checker")]
    if not all(found) or len(set(map(len, asked))) > 1:
        raise ValueError("the criteria do not have the same views")
    size = len(asked[0]) if asked else 1
    several = [
        votes * size if one.get("checker") else votes for votes, one in zip(found, criteria, strict=True)
    ]
    shown = asked[0] if asked else found[0]
    return tuple(
        replace(_aggregated(votes, criteria, count), order=vote.order, sample=vote.sample)
        for vote, votes in zip(shown, zip(*several, strict=True), strict=True)
    )


def _aggregated(votes: Sequence[Vote], criteria: Sequence[Record], count: int) -> Vote:
    verdicts = [_verdict_on(record, vote, count) for record, vote in zip(criteria, votes, strict=True)]
    found = aggregate(verdicts, count)
    stop = next((vote.stop for vote in votes if vote.stop != "verdict"), "verdict")
    return Vote(
        best=found.best,
        order=votes[0].order,
        scores=found.scores,
        sample=votes[0].sample,
        stop="verdict" if found.decided(count) else stop,
    )


def _verdict_on(record: Record, vote: Vote, count: int) -> JudgedCriterion:
    criterion = Criterion(
        text="", weight=record["weight"], polarity=record["polarity"], must_have=record["must_have"]
    )
    return JudgedCriterion.of(
        criterion,
        count,
        best=vote.best,
        scores=vote.scores,
        satisfied_from=record["satisfied_from"],
        stop=vote.stop,
    )


def program_ends(programs: Iterable[Record]) -> tuple[str, ...]:
    """Return how each program ended, as `JudgedRow.programs` names it, without failures of the sandbox."""
    return tuple(_end(program) for program in programs if program["status"] != Status.SANDBOX_FAILED)


def _shown(view: Record) -> Vote:
    """Convert a view of several responses."""
    order, verdict = tuple(view["order"]), view["verdict"]
    scores = {} if verdict is None else _numbers(verdict["scores"])
    return Vote(
        best=() if verdict is None else _best(verdict, order, scores),
        order=order,
        scores=scores,
        sample=view.get("sample", 0),
        stop=view["stop"],
    )


def _best(verdict: Record, order: tuple[int, ...], scores: Mapping[int, float]) -> tuple[int, ...]:
    if verdict["tie"]:
        return tuple(sorted(order))
    return highest(scores, len(order)) if verdict["choice"] is None else (verdict["choice"],)


def _scored(views: Sequence[Record]) -> Iterator[Vote]:
    """Convert views of one response each: one vote per sample."""
    for sample in sorted({view.get("sample", 0) for view in views}):
        drawn = [view for view in views if view.get("sample", 0) == sample]
        scores: dict[int, float] = {}
        for view in drawn:
            if view["verdict"] is not None:
                scores |= _numbers(view["verdict"]["scores"])
        stop = next((view["stop"] for view in drawn if view["stop"] != "verdict"), "verdict")
        yield Vote(best=highest(scores, len(drawn)), scores=scores, sample=sample, stop=stop)


def _numbers(scores: Mapping[str, float]) -> dict[int, float]:
    return {int(index): score for index, score in scores.items()}


def _end(program: Record) -> str:
    status = program["status"]
    if status == "refused":
        return "refused"
    fault = fault_of(program.get("stdout", "")) if program.get("is_check") else ""
    if status == Status.OK and not fault:
        return "ok"
    if status in _LIMITS or fault.endswith("stopped at a limit"):
        return "limit"
    last = fault or program.get("stderr", "").rstrip().rpartition("\n")[2]
    return "syntax" if last.startswith(_SYNTAX) else "runtime"


class TirjudgeResults:
    """Each line is a row with the views in which it was judged."""

    name = "tirjudge"
    about = "result files of tirjudge"
    benchmark = ""
    protocols = ("verdict", "win-rate", "rationale-consistency", "errors", "cost")
    shape = TypeAdapter(_Result)

    def recognises(self, row: Record) -> bool:
        return "views" in row and "stop" in row

    def read(self, row: Record, label: Record | None, default_id: str) -> Iterable[JudgedRow]:
        """Convert a row. It has no label if a file of labels lacks it: people label some of the rows."""
        views: Sequence[Mapping[str, Any]] = row["views"]
        candidates = candidates_shown(views)
        best, tied = row.get("label"), row.get("strength") == 0
        votes = criteria_votes(views, row["criteria"]) if row.get("criteria") else recorded_votes(views)
        verdict: tuple[int, ...] | None
        passes, rating = candidates == 1 and row.get("satisfied_from") is not None, None
        if passes:
            rating = row.get("rating") if label is None else _known(_rating, label, None)
            votes, verdict = _classes(row, votes)
            candidates, best = len(CLASSES), int(rating) if isinstance(rating, bool) else None
        else:
            if label is not None:
                nothing: tuple[int | None, bool] = None, False
                best, tied = _known(lambda one: _labelled(one, candidates), label, nothing)
            verdict = _verdict(row, votes, candidates)
        sources, decided = _sources(row, candidates), row.get("decided")
        yield JudgedRow(
            id=str(row["id"]),
            votes=votes,
            candidates=candidates,
            label=best,
            tied=tied,
            domain=row.get("domain", ""),
            tags=tuple(row.get("tags", ())),
            programs=program_ends(_programs(views)),
            cost=Cost(
                prompt_tokens=row.get("prompt_tokens", 0),
                completion_tokens=row.get("completion_tokens", 0),
                seconds=row.get("seconds", 0.0),
                calls=row.get("programs", 0),
            ),
            cluster=prompt_of(row),
            verdict=verdict,
            left_open=verdict is not None and row.get("stop") == StopReason.ABSTAINED,
            decided=decided if isinstance(decided, bool) else None,
            is_guess=bool(row.get("guess")),
            # The models of a jury may be of several families.
            judge="" if row.get("jury") else str(row.get("model") or ""),
            jury=_jury(row, candidates),
            sources=sources,
            lengths=_lengths(row, candidates) if sources else (),
            passes=passes,
            ratings=(None if rating is None else float(rating),) if passes else None,
            scale=score_range(str(row.get("format")), criteria=bool(row.get("criteria"))) if passes else None,
        )


TIRJUDGE_RESULTS = TirjudgeResults()


def _known(read: Callable[[Record], T], label: Record, unlabelled: T) -> T:
    """Return what a row of labels says; `unlabelled` if the file has no such row."""
    try:
        return read(label)
    except NoLabel:
        return unlabelled


def score_range(format: str, *, criteria: bool) -> tuple[float, float] | None:
    """Return the range of the score of a single response, which is a share with criteria; None if unknown."""
    return (0.0, 1.0) if criteria else score_scale("tir-pointwise" if format == "pointwise" else format)


def _rating(label: Record) -> bool | float | None:
    """Return the rating of a single response in a row of labels. Raises Unreadable for any other value."""
    try:
        return read_label(need(label, "label"), None, [()]).rating
    except RowError as error:
        raise Unreadable(str(error), label) from None


def _classes(row: Record, votes: Sequence[Vote]) -> tuple[tuple[Vote, ...], tuple[int, ...]]:
    """Return votes on a single response as votes for a class, and the verdict as a class."""

    def chosen(score: float | None) -> tuple[int, ...]:
        return () if score is None else (int(score >= row["satisfied_from"]),)

    verdict = chosen((row.get("scores") or [None])[0])
    return tuple(replace(vote, best=chosen(vote.scores.get(0))) for vote in votes), verdict


def _labelled(label: Record, candidates: int) -> tuple[int | None, bool]:
    """Return the best candidate of a row of labels, and whether the label is a tie."""
    try:
        best = read_choice(need(label, "label"), candidates)
    except Unreadable:
        raise
    except ValueError as error:
        raise Unreadable(f"label is {error}", label) from None
    return (best[0] if len(best) == 1 else None), len(best) > 1


def _verdict(row: Record, votes: Sequence[Vote], candidates: int) -> tuple[int, ...] | None:
    """Return the row's verdict, also if it was left open; None if there is no comparison."""
    if candidates < 2:
        return None
    held = row.get("confidence")
    try:
        verdict = held.get("verdict") if isinstance(held, Mapping) else row.get("verdict")
        best = read_choice(verdict, candidates)
    except ValueError:
        return None
    if row.get("guess"):
        # A tie in place of a guess, which all dialogues may name. An empty answer is no part of it.
        return tuple(sorted({index for view in _spoken(row["views"]) for index in view["order"]}))
    if len(best) < 3:
        return best
    # A file says `tie` without the number of responses that share the first place.
    given = dict(enumerate(row.get("scores") or ()))
    scores = {index: score for index, score in given.items() if score is not None}
    scored = row.get("criteria") or not any(vote.order for vote in votes)
    return highest(scores, 2) if scored else _voted(row, votes)


def _voted(row: Record, votes: Sequence[Vote]) -> tuple[int, ...]:
    """Return the responses in first place by all votes, of a jury by one vote of each model, as it weighs."""
    voters = _voters(row)
    if len(voters) < 2:
        return votes_decision(votes)
    found = [votes_decision([vote for vote in votes if vote.sample in one["samples"]]) for one in voters]
    return of_samples(found, [one.get("weight", 1.0) for one in voters])


def _voters(row: Record) -> list[Mapping[str, Any]]:
    """Return the models of a jury whose votes made the verdict; one if it decided alone."""
    return [one for one in row.get("jury", ()) if one["samples"]]


def _jury(row: Record, candidates: int) -> dict[str, tuple[int, ...]]:
    """Return the first place of each model of a jury, empty for a guess in whose place a tie stands.

    There is none if one model decided alone.
    """
    voters = _voters(row) if candidates > 1 else []
    verdicts = {one["model"]: None if one.get("guess") else one["verdict"] for one in voters}
    return {model: read_choice(one, candidates) for model, one in verdicts.items() if len(voters) > 1}


def _sources(row: Record, candidates: int) -> tuple[str, ...]:
    """Return the names of the responses. Raises ValueError for too few or too many."""
    sources = row.get("sources") or []
    if sources and (not all(isinstance(one, str) for one in sources) or len(sources) != candidates):
        raise ValueError(f"sources is {shown(sources)}, not {candidates} names")
    return tuple(sources)


def _lengths(row: Record, candidates: int) -> tuple[int, ...]:
    """Return the characters of each response, of a transcript those of its JSON; empty without the texts."""
    responses = row.get("responses")
    if not isinstance(responses, list) or len(responses) != candidates:
        return ()
    return tuple(len(one if isinstance(one, str) else json.dumps(one)) for one in responses)


def _programs(views: Iterable[Record]) -> Iterator[Record]:
    for number, view in enumerate(views):
        for place, passage in enumerate(view["segments"]):
            if passage["kind"] == "program":
                if "status" not in passage:
                    raise Unreadable(f"no column 'views.{number}.segments.{place}.status'")
                yield passage
