"""Verdicts that become one: both orders, several samples, the models of a jury, and the criteria of a row.

Responses that were shown alone satisfy a criterion if their score is high enough. Responses that were shown
together are compared: the better one satisfies it, and a tie is shared. What guesses and missing verdicts
count as is in `votes`: with `tie_guesses`, guesses count as ties, and a verdict that they could change stays
the judge's own, undecided.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from statistics import fmean

from tirjudge.judging.checked import UNCHECKED, Checked
from tirjudge.judging.judgment import Judgment, spoken
from tirjudge.judging.votes import (
    Aggregate,
    aggregate,
    all_decided,
    highest,
    of_orders,
    of_samples,
    settled,
    settled_criteria,
)
from tirjudge.records.verdicts import EMPTY, JudgedCriterion
from tirjudge_environments import Criterion, Episode, JudgeTask, StopReason, Trajectory, Usage, Verdict, View
from tirjudge_environments.programs.evidence import comparable
from tirjudge_environments.programs.evidence import decided as program_decided

SATISFIED_FROM = 6.0
"""The default of `JudgeOptions.satisfied_from`: above the middle of the scales from 0 or 1 to 10."""


def by_views(kind: str, episode: Episode, *, evidence: bool = False, tie_guesses: bool = False) -> Judgment:
    """Combine the views of an episode, such as both orders of its responses, into one judgment.

    The judgment is a tie if views name different candidates, if the highest scores are equal, or if a view
    says tie. If any view lacks a verdict, so does the judgment; scores from other views are kept. With
    `evidence`, from second runs of programs, `decided` is set: if programs decided every view.
    """
    stop, detail = _worst([(one.stop, one.detail) for one in episode.trajectories])
    ended = [(one.verdict, one.view) for one in episode.trajectories if one.verdict is not None]
    scores = _mean_scores((verdict, 1.0) for verdict in _verdicts(episode.trajectories))
    best: tuple[int, ...] = ()
    if stop is StopReason.VERDICT:
        named = [_named(verdict, view) for verdict, view in ended]
        best = of_orders(list(filter(None, named))) or highest(scores, 2)
    decided, shown = None, spoken(episode.trajectories)
    if evidence or shown[0].view.name == EMPTY:
        # Where guesses stay, a tie of orders that disagree is nobody's verdict.
        alone = all(len(one.view.order) == 1 for one in shown)
        one_each = comparable(shown) if alone else tie_guesses or len(best) < 2
        decided = one_each and all_decided(map(_decided, shown))
    return Judgment(kind, best, scores, stop, detail, episode, decided=decided, evidence=evidence)


def _decided(trajectory: Trajectory) -> bool | None:
    """Return whether a program decided a dialogue, or the rule about empty answers the row."""
    if trajectory.view.name == EMPTY:
        return trajectory.verdict is not None and trajectory.verdict.choice is not None
    return program_decided(trajectory)


def by_criterion(episode: Episode) -> list[Episode]:
    """Split an episode whose dialogues are about several criteria into one episode per criterion.

    Each part ends with the verdict on the criterion, and reads as a separate dialogue. The first part also
    holds all earlier text, and the programs, tokens and time of the whole dialogue.
    """
    criteria = episode.task.criteria
    if len(criteria) < 2:
        return [episode]
    return [
        replace(
            episode,
            task=replace(episode.task, criteria=(criterion,)),
            trajectories=tuple(_part(one, number) for one in episode.trajectories),
        )
        for number, criterion in enumerate(criteria)
    ]


def _part(whole: Trajectory, number: int) -> Trajectory:
    part = whole if number == 0 else replace(whole, segments=(), calls=(), usage=Usage(), seconds=0.0)
    verdicts = () if whole.verdict is None else whole.verdict.criteria
    if not verdicts:
        return part
    *before, last = whole.segments
    # Offsets count from the start of the turn, to which a prefill belongs.
    prefill = 0 if before else len(whole.prompt.prefill)
    verdict, end = verdicts[number]
    start = verdicts[number - 1][1] - prefill if number else 0
    text = last.text[start : end - prefill if number < len(verdicts) - 1 else None]
    reasoning = "" if number else last.reasoning
    ending = replace(last, text=text, reasoning=reasoning, ids=None, logprobs=None)
    return replace(part, segments=(*([] if number else before), ending), verdict=verdict)


def self_consistency(
    samples: Sequence[Judgment], weights: Sequence[float] = (), *, tie_guesses: bool = False
) -> Judgment:
    """Combine several samples of one task: SC@N, and mean-score@N for judges of single responses.

    The candidate that most samples choose is the best; equal counts are a tie, and a sample that is a tie or
    has no verdict does not vote. Where responses were judged alone, the highest mean score decides (J1,
    Section 4.2). Scores are means over all samples that gave one. `weights` has the weight of each sample's
    vote and scores, such as those of the models of a jury; without them all are 1. A single sample is the
    judgment.
    """
    if len(samples) == 1:
        return samples[0]
    first, shares = samples[0], weights or [1.0] * len(samples)
    scores = _mean_scores(
        (verdict, share)
        for sample, share in zip(samples, shares, strict=True)
        for verdict in _verdicts(sample.trajectories)
    )
    stop, detail = _worst([(sample.stop, sample.detail) for sample in samples])
    best: tuple[int, ...] = ()
    seen = any(sample.stop is StopReason.VERDICT for sample in samples)
    # Without a whole sample there is no verdict, although each response may have scores.
    if seen and not stop.unscored:
        stop, detail = StopReason.VERDICT, ""
        best = highest(scores, 2) if _alone(first) else of_samples([one.best for one in samples], shares)
    decided = _carried(samples, best, ended=stop is StopReason.VERDICT)
    if best and tie_guesses and not _alone(first):
        everyone = tuple(range(len(first.episode.task.candidates)))

        def outcome(favoured: int | None) -> tuple[int, ...]:
            guess = everyone if favoured is None else (favoured,)
            votes = [guess if one.best and one.decided is False else one.best for one in samples]
            return of_samples(votes, shares)

        firm, decided = settled(outcome, len(everyone), [one.decided for one in samples if one.best])
        best = best if decided is False else firm
    # Models of a jury have each numbered their samples from 0.
    episodes = [episode for sample in samples for episode in (sample.episode, *sample.further)]
    episode, *further = (_numbered(episode, number) for number, episode in enumerate(episodes))
    return replace(
        first,
        best=best,
        scores=scores,
        stop=stop,
        detail=detail,
        episode=episode,
        further=tuple(further),
        decided=decided,
        evidence=any(sample.evidence for sample in samples),
    )


def _carried(
    parts: Sequence[Judgment], best: Sequence[int], *, ended: bool, checked: bool = False
) -> bool | None:
    """Return whether programs decided the parts that carry a verdict: the parts with verdict `best`.

    Responses shown alone: every part with a score carries the verdict. Without a verdict (`ended`) nothing is
    decided. With `checked`, checkers decided further criteria.
    """
    if all(part.decided is None for part in parts) and parts:
        return None
    if not ended:
        return False
    alone = not parts or _alone(parts[0])
    # Beside checked criteria, a tie is the work of every verdict; if no part has the verdict, it is theirs.
    every = checked and len(best) > 1
    carrying = [
        part.decided
        for part in parts
        if (part.scores if alone else part.best and (every or part.best == tuple(best)))
    ]
    return all_decided(carrying or [checked])


def by_criteria(
    task: JudgeTask,
    parts: Sequence[Judgment],
    satisfied_from: float = SATISFIED_FROM,
    *,
    checked: Checked = UNCHECKED,
    kind: str = "",
    tie_guesses: bool = False,
) -> Judgment:
    """Combine the judgments on a task's criteria into the judgment of the task.

    `checked` has the criteria that checkers decide, and `parts` a judgment for each of the others, in order;
    `kind` is that of the task if there are none.

    `satisfied_from` is the lowest score with which a response that was shown alone satisfies a criterion; of
    responses that were shown together, the better one does. See `aggregate` for the rule. A failure of the
    model or the sandbox on any criterion leaves the task without a verdict.
    """
    count = len(task.candidates)
    numbers = [number for number in range(len(task.criteria)) if number not in checked]
    asked = dict(zip(numbers, parts, strict=True))
    verdicts = tuple(
        checked[number].verdict(criterion, count)
        if number in checked
        else _verdict_on(criterion, asked[number], count, satisfied_from)
        for number, criterion in enumerate(task.criteria)
    )
    unanswered = [
        (StopReason(one.stop), f"criterion {number}: {one.detail}")
        for number, one in enumerate(verdicts, 1)
        if one.stop != StopReason.VERDICT
    ]
    # A failure that a retry may mend comes first: another run completes the record.
    unanswered.sort(key=lambda pair: not pair[0].down)
    stop, detail = unanswered[0] if unanswered else (StopReason.VERDICT, "")
    found = Aggregate((), {}) if stop.down else aggregate(verdicts, count)
    ended = found.decided(count)
    decided = _carried(parts, found.best, ended=ended, checked=bool(checked))
    if tie_guesses and not stop.down:
        guessed = [_guessed(asked[number]) if number in asked else () for number in range(len(verdicts))]
        flags = [asked[number].decided if number in asked else True for number in range(len(verdicts))]
        verdicts, found, decided = settled_criteria(verdicts, guessed, flags, found)
        ended = found.decided(count)
    if ended:
        stop, detail = StopReason.VERDICT, ""
    checks = [(number, one.trajectories) for number, one in checked.items()]
    episodes = [(number, part.episode.trajectories) for number, part in asked.items()]
    return Judgment(
        kind=parts[0].kind if parts else kind,
        best=found.best,
        scores=found.scores,
        stop=stop,
        detail=detail,
        episode=_joined(task, parts[0].episode.sample if parts else 0, [*checks, *episodes]),
        further=tuple(
            _joined(
                task, several[0].sample, [*zip(numbers, (one.trajectories for one in several), strict=True)]
            )
            for several in zip(*(part.further for part in parts), strict=True)
        ),
        criteria=verdicts,
        decided=decided,
        evidence=bool(parts) and all(part.evidence for part in parts),
    )


def _guessed(part: Judgment) -> Collection[int]:
    """Return the responses about which a judgment on a criterion is a guess."""
    if part.decided is not False or (not part.scores and not part.best):
        return ()
    if not _alone(part) or not comparable(spoken(part.trajectories)):
        return range(len(part.episode.task.candidates))
    guessed = {one.view.order[0] for one in spoken(part.trajectories) if program_decided(one) is False}
    return guessed or range(len(part.episode.task.candidates))


def _verdict_on(criterion: Criterion, part: Judgment, count: int, satisfied_from: float) -> JudgedCriterion:
    verdict = JudgedCriterion.of(
        criterion,
        count,
        best=part.best,
        scores=part.scores,
        satisfied_from=satisfied_from if _alone(part) else None,
        stop=part.stop.value,
        detail=part.detail,
        decided=part.decided,
    )
    judged = {index for one in spoken(part.trajectories) for index in one.view.order}
    # Beside dialogues about each of the others, an empty answer satisfies nothing.
    if verdict.satisfied_from is None or len(judged) == count or judged == set():
        return verdict
    shares = [share if index in judged else 0.0 for index, share in enumerate(verdict.satisfied)]
    return verdict.model_copy(update={"satisfied": shares})


def _alone(judged: Judgment) -> bool:
    """Return True if each response was shown alone."""
    return all(len(one.view.order) == 1 for one in spoken(judged.trajectories))


def _joined(task: JudgeTask, sample: int, dialogues: Sequence[tuple[int, Sequence[Trajectory]]]) -> Episode:
    """Return one episode with the dialogues of a sample; each view names the criterion."""
    trajectories = tuple(
        replace(one, view=replace(one.view, criterion=number))
        for number, several in sorted(dialogues, key=lambda pair: pair[0])
        for one in several
    )
    return Episode(task, sample, trajectories)


def _worst(stops: Sequence[tuple[StopReason, str]]) -> tuple[StopReason, str]:
    """Return the first stop without a verdict, unscored ones before all others."""
    ended = [(stop, detail) for stop, detail in stops if stop is not StopReason.VERDICT]
    ended.sort(key=lambda pair: not pair[0].unscored)
    return ended[0] if ended else (StopReason.VERDICT, "")


def _numbered(episode: Episode, sample: int) -> Episode:
    if episode.sample == sample:
        return episode
    trajectories = tuple(replace(one, sample=sample) for one in episode.trajectories)
    return replace(episode, sample=sample, trajectories=trajectories)


def _verdicts(trajectories: Iterable[Trajectory]) -> list[Verdict]:
    return [one.verdict for one in trajectories if one.verdict is not None]


def _named(verdict: Verdict, view: View) -> tuple[int, ...]:
    """Return the candidates that a view puts first; none if it only gives scores."""
    if verdict.tie:
        return view.order
    return () if verdict.choice is None else (verdict.choice,)


def _mean_scores(verdicts: Iterable[tuple[Verdict, float]]) -> dict[int, float]:
    given: dict[int, list[tuple[float, float]]] = {}
    for verdict, weight in verdicts:
        for index, score in verdict.scores.items():
            given.setdefault(index, []).append((score, weight))
    return {index: fmean(*zip(*pairs, strict=True)) for index, pairs in given.items()}


def common_threshold(thresholds: Iterable[float | None]) -> float:
    """Return the `satisfied_from` of a row's criteria, which is an option of the run and the same for all.

    It is the default where the responses were compared. Criteria that checkers decided have one of their own.
    """
    return next((one for one in thresholds if one is not None), SATISFIED_FROM)
