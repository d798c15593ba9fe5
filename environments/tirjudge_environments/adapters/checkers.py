"""Checkers as the reward of a policy in any framework: the share of a row's rules that a response follows.

No model is asked. TRL takes a `CheckerReward` as a reward function, and verl takes `compute_score`:

    reward.custom_reward_function.path=pkg://tirjudge_environments.adapters.checkers
    reward.custom_reward_function.name=compute_score
    +reward.custom_reward_function.reward_kwargs.checkers=checkers.toml

Every other framework calls `CheckerReward.scores` in its own reward: a rubric of verifiers, the `step` of an
environment of SkyRL or OpenEnv.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from tirjudge_environments.adapters.dialogues import SandboxThread
from tirjudge_environments.adapters.settings import JudgeSettings
from tirjudge_environments.checkers.file import CheckerFile
from tirjudge_environments.checkers.runner import Case, CheckerRunner
from tirjudge_environments.messages import conversation_data, final_text
from tirjudge_environments.tasks import RowError
from tirjudge_environments.tasks.host_rows import HostColumns, HostRow
from tirjudge_environments.turn_reader import without_thinking
from tirjudge_environments.types import Criterion, JudgeTask

Turns = str | Sequence[Mapping[str, Any]]
"""A text, or chat messages with `role` and `content`."""


class CheckerReward:
    """The weighted share of the criteria that a completion satisfies, by the admitted checkers of a file.

        GRPOTrainer(reward_funcs=CheckerReward("checkers.toml"), ...)

    It is the score that the judge's criteria give a single response. A completion gets None, which TRL leaves
    out of its group, where a criterion has no checker or the checker abstains: a reward is never invented.
    The metric `checkers/undecided` is their share.
    """

    # TRL names the metrics of a reward by its `__name__`, which an object would lack.
    __name__ = "checkers"

    def __init__(
        self,
        file: str | Path,
        *,
        criteria_column: str | None = None,
        sandbox: str = "local",
        sandbox_options: Mapping[str, Any] | None = None,
        tokenizer: Any = None,
    ) -> None:
        """`criteria_column` is the column with the criteria of a row: `criteria`, if the dataset has it.

        Rows without criteria have the rules of the file. `tokenizer` is the policy's, whose special tokens at
        the end of a completion are no part of it; control tokens of known families never are.
        One sandbox serves all rewards of a process. Raises ValueError for a bad file, and SandboxUnavailable.
        """
        self._file, self._column = CheckerFile.read(Path(file)), criteria_column
        self._tokenizer = tokenizer
        if unmeasured := self._file.unmeasured(file):
            warnings.warn(f"{file}: of its checkers, {unmeasured}", stacklevel=2)
        settings = JudgeSettings(sandbox=sandbox, sandbox_options=sandbox_options or {})
        self._thread = SandboxThread.shared(settings)
        self._runner = CheckerRunner(self._thread.sandbox)

    def __call__(
        self, prompts: Sequence[Turns], completions: Sequence[Turns], **columns: Any
    ) -> list[float | None]:
        """Score completions, called by TRL with equally many prompts and further columns by name."""
        name = self._column or "criteria"
        if self._column and name not in columns:
            raise RowError(f"the dataset has no column {name!r}, which criteria_column names")
        criteria = columns.get(name) or [None] * len(prompts)
        scores = self.scores(prompts, completions, criteria)
        log: Callable[[str, float], None] | None = columns.get("log_metric")
        if log is not None and scores:
            log("checkers/undecided", scores.count(None) / len(scores))
        return scores

    def scores(
        self, prompts: Sequence[Turns], completions: Sequence[Turns], criteria: Sequence[Any]
    ) -> list[float | None]:
        """Return the score of each completion from 0 to 1, and None where checkers do not decide it.

        `criteria` has the criteria of each prompt as rows have them, or None for the rules of the file.
        Raises RowError for a row that cannot be read, and CheckersDown if the sandbox fails.
        """
        columns = HostColumns(criteria="criteria")
        given = {"criteria": list(criteria)}
        return self.rewards(columns.batch(prompts, completions, given, self._tokenizer))

    def rewards(self, rows: Sequence[HostRow]) -> list[float | None]:
        """Return what `scores` returns, for rows that have been read."""
        return self._thread.run(self._scores([self._task(*row) for row in enumerate(rows)]))

    def _task(self, number: int, row: HostRow) -> JudgeTask:
        task = row.task
        rules = task.criteria or tuple(Criterion(text=rule) for rule in self._file.rules)
        if not rules:
            raise RowError(f"row {number} has no criteria, and the file of checkers has no rules")
        said = without_thinking(final_text(task.candidates[0]))
        return replace(task, id=str(number), candidates=(said,), criteria=rules)

    async def _scores(self, tasks: Sequence[JudgeTask]) -> list[float | None]:
        return list(await asyncio.gather(*map(self._score, tasks)))

    async def _score(self, task: JudgeTask) -> float | None:
        found = await asyncio.gather(*(self._satisfied(task, one) for one in task.criteria))
        known = list(zip(task.criteria, found, strict=True))
        if any(one.must_have and satisfied is False for one, satisfied in known):
            return 0.0
        if None in found:
            return None
        return sum(one.weight for one, satisfied in known if satisfied) / sum(one.weight for one, _ in known)

    async def _satisfied(self, task: JudgeTask, criterion: Criterion) -> bool | None:
        match, response = self._file.match(criterion.text), task.candidates[0]
        if match is None or not isinstance(response, str):
            return None
        case = Case(response, conversation_data(task.prompt), match.values)
        (outcome,) = await self._runner.run(match.checker, [case])
        if outcome.passed is None:
            return None
        return outcome.passed != (criterion.polarity == "negative")


@lru_cache
def _reward(checkers: str) -> CheckerReward:
    return CheckerReward(checkers)


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    checkers: str,
    prompt_key: str = "question",
    criteria_key: str | None = None,
    undecided_reward: float | None = None,
    **further: Any,
) -> dict[str, float]:
    """Return the score of one response as verl (as of 0.9.1) takes it.

    `prompt_key` and `criteria_key` are keys of `extra_info`; the criteria are under `criteria` if it has
    them. Raises ValueError for a key that a row lacks or that is no argument, and for a response that
    checkers do not decide, unless `undecided_reward` is given: a reward is never invented.
    """
    if criteria_key is None:
        criteria_key = "criteria" if "criteria" in (extra_info or {}) else ""
    given = data_source, solution_str, ground_truth, extra_info, further, compute_score
    row = HostRow.of_verl(*given, prompt=prompt_key, criteria=criteria_key)
    (score,) = _reward(checkers).rewards([row])
    reward = undecided_reward if score is None else score
    if reward is None:
        raise ValueError(f"no checker decides a rule of a row of {data_source!r}: give undecided_reward")
    return {"score": reward, "checkers_undecided": float(score is None)}
