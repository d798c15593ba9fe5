"""Criteria that checkers decide without a dialogue, and the audit of some of them by the judge's model."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from tirjudge.records.verdicts import AuditedCriterion, JudgedCriterion
from tirjudge_environments import (
    By,
    Call,
    Criterion,
    JudgeTask,
    Prompt,
    RunCode,
    Segment,
    StopReason,
    ToolCall,
    Trajectory,
    Verdict,
    View,
    derive_seed,
)
from tirjudge_environments.checkers.file import Checker, CheckerFile
from tirjudge_environments.checkers.runner import Case, CheckerRunner, CheckersDown, program_of
from tirjudge_environments.messages import conversation_data
from tirjudge_environments.programs.checks import CheckOutcome
from tirjudge_environments.tools.python import RUN_PYTHON
from tirjudge_sandbox import Execution, Sandbox, Status

PASSED = 1.0
"""The score of a response that satisfies a checked criterion; the others have 0."""


@dataclass(frozen=True, slots=True)
class CheckedCriterion:
    """The decision of a checker on one criterion."""

    checker: str
    """Its name."""
    trajectories: tuple[Trajectory, ...]
    """One for each response: the program that decides it, without a model."""

    @property
    def scores(self) -> dict[int, float]:
        """The score of each response that has one: PASSED or 0."""
        return {
            index: score
            for one in self.trajectories
            if one.verdict is not None
            for index, score in one.verdict.scores.items()
        }

    @property
    def down(self) -> str:
        """Why the sandbox failed; empty if it did not."""
        return next((one.detail for one in self.trajectories if one.stop.down), "")

    def verdict(self, criterion: Criterion, count: int) -> JudgedCriterion:
        """Return the verdict on the criterion for `count` responses."""
        return JudgedCriterion.of(
            criterion,
            count,
            best=(),
            scores=self.scores,
            satisfied_from=PASSED,
            stop=StopReason.SANDBOX_DOWN if self.down else StopReason.VERDICT,
            detail=self.down,
            checker=self.checker,
        )


Checked = Mapping[int, CheckedCriterion]
"""The criteria of a task that checkers decide, by their index."""
_CALL = "checker"
UNCHECKED: Checked = MappingProxyType({})


def checked_of(criteria: Sequence[JudgedCriterion], trajectories: Sequence[Trajectory]) -> Checked:
    """Return what checkers decided among the criteria of a judgment, by its dialogues."""
    return {
        number: CheckedCriterion(
            one.checker, tuple(found for found in trajectories if found.view.criterion == number)
        )
        for number, one in enumerate(criteria)
        if one.checker
    }


def score_of(printed: str, criterion: Criterion) -> float | None:
    """Return the score of a response by what the program of a checker printed; None if it abstained."""
    passed = {"True": True, "False": False}.get(printed.strip())
    return None if passed is None else PASSED * (passed != (criterion.polarity == "negative"))


class CriteriaCheckers:
    """The admitted checkers of a file, in an open sandbox; belongs to one event loop."""

    def __init__(self, file: CheckerFile, sandbox: Sandbox, *, audit: float = 0.0, seed: int = 0) -> None:
        """`audit` is the share of rows, drawn by their ids, whose checked criteria the model judges too."""
        self.file, self._runner = file, CheckerRunner(sandbox, seed=seed)
        self._audit, self._seed = audit, seed

    def ruled(self, task: JudgeTask) -> JudgeTask:
        """Return the task with the file's rules as its criteria, if it has none of its own."""
        if task.criteria or not self.file.rules:
            return task
        return replace(task, criteria=tuple(Criterion(text=rule) for rule in self.file.rules))

    async def decide(self, task: JudgeTask) -> Checked:
        """Return the criteria that checkers decide for all responses of a task.

        A criterion without a checker, and a criterion whose checker abstains on any response, is left to the
        judge. So are transcripts, which checkers do not read.
        """
        if not all(isinstance(one, str) for one in task.candidates):
            return {}
        found = [(number, self.file.match(one.text)) for number, one in enumerate(task.criteria)]
        matched = [(number, match) for number, match in found if match is not None]
        prompt = conversation_data(task.prompt)
        decided = await asyncio.gather(
            *(
                self._decided(
                    task.criteria[number],
                    match.checker,
                    [Case(str(response), prompt, match.values) for response in task.candidates],
                )
                for number, match in matched
            )
        )
        pairs = zip(matched, decided, strict=True)
        return {number: one for (number, _), one in pairs if one is not None}

    async def _decided(
        self, criterion: Criterion, checker: Checker, cases: Sequence[Case]
    ) -> CheckedCriterion | None:
        try:
            outcomes = await self._runner.run(checker, cases)
        except CheckersDown as error:
            down = Trajectory(
                view=View("0", (0,)),
                sample=0,
                prompt=Prompt(messages=()),
                prompt_ids=None,
                segments=(),
                calls=(),
                stop=StopReason.SANDBOX_DOWN,
                verdict=None,
                detail=str(error),
            )
            return CheckedCriterion(checker.name, (down,))
        if any(one.passed is None for one in outcomes):
            return None
        trajectories = (
            _trajectory(index, criterion, checker, case, outcome)
            for index, (case, outcome) in enumerate(zip(cases, outcomes, strict=True))
        )
        return CheckedCriterion(checker.name, tuple(trajectories))

    def is_audited(self, task: JudgeTask) -> bool:
        """Return True if the model judges the checked criteria of a task as well."""
        return derive_seed(self._seed, "audit", task.id) < self._audit * 2**32


def _trajectory(
    index: int, criterion: Criterion, checker: Checker, case: Case, outcome: CheckOutcome
) -> Trajectory:
    """Return the decision on one response as a dialogue of one program, which others can run again."""
    program, printed = program_of(checker, case), f"{outcome.passed}\n"
    score = score_of(printed, criterion)
    call = Call(
        RunCode(source=program.source, bindings=program.bindings, call_id=_CALL),
        Execution(status=Status.OK, exit_code=0, stdout=printed),
        seed=program.seed,
    )
    return Trajectory(
        view=View(str(index), (index,)),
        sample=0,
        prompt=Prompt(messages=()),
        prompt_ids=None,
        segments=(Segment(by=By.MODEL, text="", tool_calls=(ToolCall(_CALL, RUN_PYTHON.name, ""),)),),
        calls=(call,),
        stop=StopReason.VERDICT,
        verdict=None if score is None else Verdict(scores={index: score}),
    )


def audited(
    checked: Sequence[JudgedCriterion], judged: Sequence[JudgedCriterion], numbers: Sequence[int]
) -> list[AuditedCriterion]:
    """Compare the decisions of checkers with the model's verdicts on the same criteria.

    `numbers` are the indices of the criteria in the row.
    """
    return [
        AuditedCriterion(
            criterion=number,
            agrees=_agrees(one.satisfied, other),
            satisfied=other.satisfied,
            stop=other.stop,
            detail=other.detail,
        )
        for number, one, other in zip(numbers, checked, judged, strict=True)
    ]


def _agrees(decided: Sequence[float | None], judged: JudgedCriterion) -> bool | None:
    """Return whether a model's verdict on a criterion is that of a checker; None if it cannot tell.

    A guess says nothing, nor does a choice of compared responses that all pass or all fail.
    """
    if None in judged.satisfied or None in decided or judged.decided is False:
        return None
    if judged.satisfied_from is not None:
        return list(decided) == list(judged.satisfied)
    best = {index for index, share in enumerate(judged.satisfied) if share}
    passing = {index for index, share in enumerate(decided) if share}
    everyone = set(range(len(decided)))
    if passing in (set(), everyone):
        return True if best == everyone else None
    return best <= passing
