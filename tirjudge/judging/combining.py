"""Verdicts that become one: both orders, several samples, the models of a jury, and the criteria of a row.

Responses that were shown alone satisfy a criterion if their score is high enough. Responses that were shown
together are compared: the better one satisfies it, and a tie is shared. A criterion without a verdict is
unknown, never 0: aggregates are bounds, and decide only what no answer could change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from tirjudge.judging.checked import UNCHECKED, Checked
from tirjudge.judging.judgment import Judgment
from tirjudge.records.verdicts import JudgedCriterion
from tirjudge_environments import Criterion, Episode, JudgeTask, StopReason, Trajectory, Usage, Verdict, View
from tirjudge_environments.programs.evidence import decided as program_decided

SATISFIED_FROM = 6.0
"""The default of `JudgeOptions.satisfied_from`: above the middle of the scales from 0 or 1 to 10."""
_DIGITS = 9
"""Decimals of rounded aggregates, so that equal sums compare equal in any order of addition."""


def by_views(kind: str, episode: Episode, *, evidence: bool = False) -> Judgment:
    """Combine the views of an episode, such as both orders of its responses, into one judgment.

    The judgment is a tie if views name different candidates, if the highest scores are equal, or if a view
    says tie. If any view lacks a verdict, so does the judgment; scores from other views are kept. With
    `evidence`, from second runs of programs, `decided` is set.
    """
    stop, detail = _worst([(one.stop, one.detail) for one in episode.trajectories])
    ended = [(one.verdict, one.view) for one in episode.trajectories if one.verdict is not None]
    scores = _mean_scores((verdict, 1.0) for verdict in _verdicts(episode.trajectories))
    best: tuple[int, ...] = ()
    if stop is StopReason.VERDICT:
        # Two orders that disagree name two candidates, which is how position bias becomes a tie.
        named = {index for verdict, view in ended for index in _named(verdict, view)}
        best = tuple(sorted(named)) if named else highest(scores, 2)
    decided = _views_decided(episode, best) if evidence else None
    return Judgment(kind, best, scores, stop, detail, episode, decided=decided, evidence=evidence)


def _views_decided(episode: Episode, best: Sequence[int]) -> bool | None:
    """Return whether programs decided every view; False for a tie of responses shown together."""
    if len(best) > 1 and not all(len(one.view.order) == 1 for one in episode.trajectories):
        return False
    return all_decided(map(program_decided, episode.trajectories))


def all_decided(parts: Iterable[bool | None]) -> bool | None:
    """Return whether programs decided all parts of a verdict: False for an undecided part or no parts."""
    found = list(parts)
    if not found or False in found:
        return False
    return None if None in found else True


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
    """Return the part of a dialogue about criterion `number`."""
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


def self_consistency(samples: Sequence[Judgment], weights: Sequence[float] = ()) -> Judgment:
    """Combine several samples of one task: SC@N, and mean-score@N for judges of single responses.

    The candidate that most samples choose is the best; equal counts are a tie, and a sample that is a tie or
    has no verdict does not vote. Where responses were judged alone, the highest mean score decides (J1,
    Section 4.2). Scores are means over all samples that gave one. `weights` has the weight of each sample's
    vote and scores, such as those of the models of a jury; without them all are 1.
    """
    first, shares = samples[0], weights or [1.0] * len(samples)
    scores = _mean_scores(
        (verdict, share)
        for sample, share in zip(samples, shares, strict=True)
        for verdict in _verdicts(sample.trajectories)
    )
    stop, detail = _worst([(sample.stop, sample.detail) for sample in samples])
    best: tuple[int, ...] = ()
    seen = [sample for sample in samples if sample.stop is StopReason.VERDICT]
    # Without a whole sample there is no verdict, although each response may have scores.
    if seen and not stop.unscored:
        stop, detail = StopReason.VERDICT, ""
        best = (
            highest(scores, 2)
            if _alone(first)
            # If no sample chose a single candidate, all verdicts are ties, and the first one stands.
            else most_chosen([sample.choice for sample in samples], shares) or seen[0].best
        )
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
        decided=_carried(samples, best, ended=stop is StopReason.VERDICT),
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
    carrying = [
        part.decided for part in parts if (part.scores if alone else part.best and part.best == tuple(best))
    ]
    # If no part of the model has the verdict, it is that of the checked criteria.
    return all_decided(carrying or [checked])


def by_criteria(
    task: JudgeTask,
    parts: Sequence[Judgment],
    satisfied_from: float = SATISFIED_FROM,
    *,
    checked: Checked = UNCHECKED,
    kind: str = "",
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
    if found.decided(count):
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
        decided=_carried(parts, found.best, ended=stop is StopReason.VERDICT, checked=bool(checked)),
        evidence=bool(parts) and all(part.evidence for part in parts),
    )


def _verdict_on(criterion: Criterion, part: Judgment, count: int, satisfied_from: float) -> JudgedCriterion:
    return JudgedCriterion.of(
        criterion,
        count,
        best=part.best,
        scores=part.scores,
        satisfied_from=satisfied_from if _alone(part) else None,
        stop=part.stop.value,
        detail=part.detail,
    )


def highest(scores: Mapping[int, float], least: int) -> tuple[int, ...]:
    """Return the candidates with the highest score, sorted; empty unless `least` candidates have one."""
    if not scores or len(scores) < least:
        return ()
    top = max(scores.values())
    return tuple(sorted(index for index, score in scores.items() if score == top))


def _alone(judged: Judgment) -> bool:
    """Return True if each response was shown alone."""
    return all(len(one.view.order) == 1 for one in judged.trajectories)


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
    """Return an episode as a sample of another number."""
    if episode.sample == sample:
        return episode
    trajectories = tuple(replace(one, sample=sample) for one in episode.trajectories)
    return replace(episode, sample=sample, trajectories=trajectories)


def _verdicts(trajectories: Iterable[Trajectory]) -> list[Verdict]:
    return [one.verdict for one in trajectories if one.verdict is not None]


def most_chosen(choices: Sequence[int | None], weights: Sequence[float]) -> tuple[int, ...]:
    """Return the candidates with the greatest weight of votes, sorted; a choice of None is no vote."""
    votes: dict[int, float] = {}
    for choice, weight in zip(choices, weights, strict=True):
        if choice is not None:
            votes[choice] = round(votes.get(choice, 0.0) + weight, _DIGITS)
    return tuple(sorted(index for index, count in votes.items() if count == max(votes.values())))


def _named(verdict: Verdict, view: View) -> tuple[int, ...]:
    """Return the candidates that a view puts first; none if it only gives scores."""
    if verdict.tie:
        return view.order
    return () if verdict.choice is None else (verdict.choice,)


def _mean_scores(verdicts: Iterable[tuple[Verdict, float]]) -> dict[int, float]:
    """Return the mean score of each candidate by verdicts with their weights."""
    given: dict[int, list[tuple[float, float]]] = {}
    for verdict, weight in verdicts:
        for index, score in verdict.scores.items():
            given.setdefault(index, []).append((score, weight))
    return {index: fmean(*zip(*pairs, strict=True)) for index, pairs in given.items()}


@dataclass(frozen=True, slots=True)
class Aggregate:
    """The outcome of all criteria of a row."""

    best: tuple[int, ...]
    """Responses with the highest aggregate: one is a choice, several are a tie. Empty for a single response
    and where an unknown verdict could change it."""
    scores: Mapping[int, float]
    """Index of a response to its aggregate from 0 to 1, where no unknown verdict can change it."""

    def decided(self, count: int) -> bool:
        """Return True if no unknown verdict can change the outcome for `count` responses."""
        return bool(self.best) if count > 1 else bool(self.scores)


def aggregate(verdicts: Sequence[JudgedCriterion], count: int) -> Aggregate:
    """Combine the verdicts on all criteria of a row with `count` responses.

    The aggregate of a response is the weighted share of the criteria that it satisfies, and 0 if it does not
    satisfy a must-have. The highest aggregate is the choice, and equal highest ones are a tie. Raises
    ValueError for weights that add up to 0, which only an edited file has.
    """
    if not sum(one.weight for one in verdicts):
        raise ValueError("the weights of the criteria add up to 0")
    bounds = [_bounds(verdicts, index) for index in range(count)]
    scores = {index: low for index, (low, high) in enumerate(bounds) if low == high}
    if count < 2:
        return Aggregate((), scores)
    top = max(low for low, _ in bounds)
    within_reach = tuple(index for index, (_, high) in enumerate(bounds) if high >= top)
    # Several that may be first are a tie only if each is known.
    decided = len(within_reach) == 1 or all(index in scores for index in within_reach)
    return Aggregate(within_reach if decided else (), scores)


def _bounds(verdicts: Sequence[JudgedCriterion], index: int) -> tuple[float, float]:
    """Return the lowest and the highest aggregate that a response may have."""
    required = [one.satisfied[index] for one in verdicts if one.must_have]
    if 0 in required:
        return 0.0, 0.0
    total = sum(one.weight for one in verdicts)
    known = [(one.weight, one.satisfied[index]) for one in verdicts]
    low = sum(weight * share for weight, share in known if share is not None) / total
    open_weight = sum(weight for weight, share in known if share is None) / total
    return (
        0.0 if None in required else round(low, _DIGITS),
        round(low + open_weight, _DIGITS),
    )


def common_threshold(thresholds: Iterable[float | None]) -> float:
    """Return the `satisfied_from` of a row's criteria, which is an option of the run and the same for all.

    It is the default where the responses were compared. Criteria that checkers decided have one of their own.
    """
    return next((one for one in thresholds if one is not None), SATISFIED_FROM)
