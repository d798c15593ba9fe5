"""Juries: several models that vote, and escalation, which asks one model after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tirjudge.judging.abstention import Abstention
from tirjudge.judging.checked import UNCHECKED, Checked
from tirjudge.judging.combining import by_criteria, self_consistency
from tirjudge.judging.judgment import Judgment, verdict_name
from tirjudge.judging.juror import Juror
from tirjudge.records.verdicts import JurorVerdict
from tirjudge.rollout import all_or_none
from tirjudge_environments import JudgeTask
from tirjudge_environments.orders import Order


@dataclass(frozen=True, slots=True)
class Jury:
    """The jurors of a judge, in the given order; a single juror decides alone."""

    jurors: Sequence[Juror] = ()
    escalation: Abstention | None = None
    """The rule for asking the next juror; None lets all jurors vote."""

    async def judge(
        self,
        format: str,
        task: JudgeTask,
        order: Order | None = None,
        *,
        evidence: bool = True,
        checked: Checked = UNCHECKED,
    ) -> Judgment:
        """Judge a task by the only juror, by a vote, or by the first juror with enough confidence.

        The `checked` criteria are decided already. If they are all criteria, no juror is asked.
        """
        if task.criteria and len(checked) == len(task.criteria):
            return by_criteria(task, (), checked=checked, kind=format)
        if self.escalation is not None:
            return await self._escalated(self.escalation, format, task, order, evidence, checked)
        if len(self.jurors) == 1:
            return await self.jurors[0].judge(format, task, order, evidence=evidence, checked=checked)
        return await self._voted(format, task, order, evidence, checked)

    async def _voted(
        self, format: str, task: JudgeTask, order: Order | None, evidence: bool, checked: Checked
    ) -> Judgment:
        """Ask all jurors at once, and combine their answers by their weights."""
        found = await all_or_none(
            juror.answers(format, task, order, evidence=evidence, checked=checked) for juror in self.jurors
        )
        weights = [juror.weight for juror in self.jurors]
        ties = self.jurors[0].tie_guesses
        voted = [self_consistency(answers, weights, tie_guesses=ties) for answers in zip(*found, strict=True)]
        verdicts = tuple(
            juror_verdict(juror, juror.combined(task, answers, checked), number * juror.options.samples)
            for number, (juror, answers) in enumerate(zip(self.jurors, found, strict=True))
        )
        return replace(self.jurors[0].combined(task, voted, checked), jury=verdicts)

    async def _escalated(
        self,
        rule: Abstention,
        format: str,
        task: JudgeTask,
        order: Order | None,
        evidence: bool,
        checked: Checked,
    ) -> Judgment:
        """Ask jurors in order until a juror has enough confidence or fails."""
        asked: list[JurorVerdict] = []
        earlier = {}
        for juror in self.jurors:
            result = await juror.judge(format, task, order, evidence=evidence, checked=checked)
            verdict = juror_verdict(juror, result, 0)
            if result.stop.unscored or juror is self.jurors[-1]:
                break
            verdict = verdict.model_copy(update={"confidence": rule.value(result)})
            if rule.is_reached(verdict.confidence):
                break
            asked.append(verdict.model_copy(update={"samples": []}))
            earlier[juror.name] = result.trajectories
        return replace(result, jury=(*asked, verdict), earlier=earlier)


def juror_verdict(juror: Juror, judged: Judgment, first: int) -> JurorVerdict:
    """Return the record of a juror's verdict; its samples are numbered from `first` in the row."""
    judged = judged.tied_without_evidence() if juror.tie_guesses else judged
    known: dict[str, Any] = {} if judged.decided is None else {"decided": judged.decided}
    known |= {"guess": guess} if (guess := verdict_name(judged.guess)) else {}
    return JurorVerdict(
        model=juror.name,
        weight=juror.weight,
        verdict=judged.verdict,
        scores=judged.all_scores,
        correct=judged.credit,
        stop=judged.stop.value,
        samples=list(range(first, first + 1 + len(judged.further))),
        prompt_tokens=judged.usage.prompt_tokens,
        completion_tokens=judged.usage.completion_tokens,
        **known,
    )
