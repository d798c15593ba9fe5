"""Criteria that are proposed from labelled rows: they tell better from worse responses as the labels do.

A model contrasts the labelled response of a row with its other responses (OpenRubrics, arXiv 2510.07743), and
a proposal is kept if the judge's verdict on it alone is the label of the row. Text of responses may steer the
proposals, but nothing that disagrees with a label is kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tirjudge.generation.base import GeneratorFailed
from tirjudge.judging.empty_answers import with_content
from tirjudge.judging.judge_engine import JudgeEngine
from tirjudge.judging.questions import Kind
from tirjudge.rollout import all_or_none
from tirjudge_environments import Criterion, JudgeTask
from tirjudge_environments.boundary import shown
from tirjudge_environments.messages import response_text
from tirjudge_environments.tasks import RowError
from tirjudge_environments.templates import Template, load_template, question_text
from tirjudge_environments.turn_reader import behind_thinking

MOST_CONTRASTS = 3
"""Worse responses of a row, from the first, that are contrasted with the better response."""
_LISTED = re.compile(r"\s*(?:[-*\u2022]|[0-9]{1,2}[.)])\s+(\S.{2,499})", re.ASCII)
"""A line of a list, with a criterion of at most 500 characters."""


@dataclass(frozen=True, slots=True)
class ProposedCriteria:
    """The criteria that a model proposed for a row."""

    kept: tuple[str, ...]
    """Criteria by which the judge prefers the labelled response."""
    dropped: tuple[str, ...]


async def propose_criteria(
    engine: JudgeEngine, task: JudgeTask, kind: Kind | None = None, *, most: int = 8
) -> ProposedCriteria:
    """Propose at most `most` criteria for a labelled task with an open engine, and judge the task by each.

    Criteria that the task has are ignored. Raises RowError for a task without a label or without another
    response, GeneratorFailed if the model or the sandbox failed, and what `JudgeEngine.judge` raises.
    """
    better = task.label
    if better is None or len(with_content(task)) < 2:
        raise RowError(
            "criteria tell a labelled response from others: the row needs a label and two responses with text"
        )
    task = replace(task, criteria=())
    worse = [index for index in range(len(task.candidates)) if index != better][:MOST_CONTRASTS]
    said = await all_or_none(engine.ask(_question(task, better, one, most)) for one in worse)
    proposed = list(dict.fromkeys(criterion for text in said for criterion in listed(text)))[:most]
    judged = await all_or_none(
        engine.judge(replace(task, criteria=(Criterion(text=text),)), kind) for text in proposed
    )
    for result in judged:
        if result.stop.unscored:
            raise GeneratorFailed(f"{result.stop}: {result.detail}")
    agrees = {text: result.choice == better for text, result in zip(proposed, judged, strict=True)}
    return ProposedCriteria(
        tuple(text for text in proposed if agrees[text]), tuple(text for text in proposed if not agrees[text])
    )


def listed(text: str) -> list[str]:
    """Return the items of a list that a model wrote, one in each line, behind its thinking."""
    lines = (behind_thinking(text) or "").splitlines()
    return [found[1].strip() for line in lines if (found := _LISTED.fullmatch(line.rstrip()))]


def _question(task: JudgeTask, better: int, worse: int, most: int) -> str:
    task = shown(task, ("think",))
    asked = load_template("criteria-proposal").with_values({"count": str(most)})
    responses = [response_text(task.candidates[index]) for index in (better, worse)]
    return Template(asked).fill(question_text(task), responses)
