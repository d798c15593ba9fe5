"""Reward functions for TRL's trainers that ask a judge; this module does not import TRL."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol

from pydantic import ValidationError

from tirjudge.selection.group_rewards import GroupOptions, GroupRewards
from tirjudge.selection.tournaments import check_method
from tirjudge.serve.client import client_of_this_loop
from tirjudge.serve.messages import GroupRequest, JudgeRequest
from tirjudge_environments.registry import first_fault
from tirjudge_environments.tasks.host_rows import HostColumns, HostRow

Turns = str | Sequence[Mapping[str, Any]]
"""A text, or chat messages with `role` and `content`."""


class JudgeReward:
    """The served judge's score of every completion: `GRPOTrainer(reward_funcs=JudgeReward(url), ...)`.

    A completion without a score gets None, which TRL leaves out of its group. Logged metrics: the shares of
    completions `judge/decided`, by a program, and `judge/no_verdict`. A server that stays down raises
    GeneratorFailed, which stops the training: a reward is never invented.
    """

    # TRL names the metrics of a reward by its `__name__`, which an object would lack.
    __name__ = "judge"

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        reference_column: str = "",
        criteria_column: str = "",
        tokenizer: Any = None,
    ) -> None:
        """`url` and `token` are those of `JudgeClient`; the others are as for `JudgeGroupReward`."""
        self._url, self._token = url, token
        self._columns = HostColumns(reference=reference_column, criteria=criteria_column)
        self._tokenizer = tokenizer

    async def __call__(
        self, prompts: Sequence[Turns], completions: Sequence[Turns], **columns: Any
    ) -> list[float | None]:
        """Score completions, called by TRL with equally many prompts and further columns by name."""
        client = client_of_this_loop(self._url, self._token)
        rows = self._columns.batch(prompts, completions, columns, self._tokenizer)
        answers = await asyncio.gather(*(client.judge(JudgeRequest.of(row)) for row in rows))
        scores = [answer.scores[0] if answer.scores else None for answer in answers]
        if log := columns.get("log_metric"):
            log("judge/decided", sum(answer.decided is True for answer in answers) / len(answers))
            log("judge/no_verdict", scores.count(None) / len(scores))
        return scores


class GroupSource(Protocol):
    """A judge in this process that rewards groups, such as `tirjudge.Judge`."""

    def areward_group(
        self,
        prompt: Turns,
        completions: Sequence[Turns],
        options: GroupOptions,
        *,
        criteria: Sequence[str | Mapping[str, Any]] | None,
        reference: str,
    ) -> Awaitable[GroupRewards]:
        """Return the rewards of the completions of one prompt."""


class JudgeGroupReward:
    """Rewards from comparisons within every group: `GRPOTrainer(reward_funcs=JudgeGroupReward(judge), ...)`.

    The completions of a batch are grouped by their prompt, and all groups are judged at the same time. A
    completion without any verdict gets None, which TRL leaves out of its group. A judge that stays down
    raises GeneratorFailed or SandboxUnavailable, which stops the training: a reward is never invented.
    Logged metrics: `judge/calls` and `judge/cached` (calls that were needed, and calls whose answers were
    known, per group), `judge/ties`, `judge/no_comparison` and `judge/no_verdict` (shares of comparisons and
    of completions) and `judge/duplicates` (share of completions).
    """

    __name__ = "judge_group"

    def __init__(
        self,
        judge: GroupSource | str,
        method: str = "swiss",
        *,
        both_orders: bool = False,
        budget: int | None = None,
        seed: int = 0,
        keep_guesses: bool = False,
        group_size: int | None = None,
        reference_column: str = "",
        criteria_column: str = "",
        tokenizer: Any = None,
        token: str | None = None,
    ) -> None:
        """`judge` is a `Judge`, which stays open, or the address of `tirjudge serve`.

        The options are the fields of `GroupOptions`, and `token` is the server's, as for `JudgeClient`. With
        `group_size` (TRL's num_generations) equal prompts in a batch stay apart: so many completions of a
        prompt, in their order, are a group. Without it all completions of equal prompts are one group.

        `reference_column` and `criteria_column` are columns of the dataset: a text, a number or a list of
        them, and a text, or a list of texts or of mappings with `text`, `weight`, `polarity` and `must_have`.
        Rows that differ in them are other groups. `tokenizer` is the policy's, whose special tokens at the
        end of a completion are no part of it; control tokens of known families never are.

        Raises ValueError, in one line, for an unknown method and an invalid option.
        """
        check_method(method)
        try:
            self._options = GroupOptions(
                method=method, both_orders=both_orders, budget=budget, seed=seed, keep_guesses=keep_guesses
            )
        except ValidationError as error:
            raise ValueError(first_fault(error)) from None
        self._judge, self._size, self._token = judge, group_size, token
        self._columns = HostColumns(reference=reference_column, criteria=criteria_column)
        self._tokenizer = tokenizer

    async def __call__(
        self, prompts: Sequence[Turns], completions: Sequence[Turns], **columns: Any
    ) -> list[float | None]:
        """Reward completions, called by TRL with equally many prompts and further columns by name.

        Raises ValueError, in one line, for a prompt with a single completion and for a missing column.
        """
        rows = self._columns.batch(prompts, completions, columns, self._tokenizer)
        groups: dict[str, list[int]] = {}
        for place, row in enumerate(rows):
            groups.setdefault(repr(row.question), []).append(place)
        members = [
            places[start : start + (self._size or len(places))]
            for places in groups.values()
            for start in range(0, len(places), self._size or len(places))
        ]
        if any(len(places) < 2 for places in members):
            raise ValueError(
                "a group of one cannot be compared: set num_generations to 2 or more, and "
                "per_device_train_batch_size to a multiple of it"
            )
        found = await asyncio.gather(*(self._group([rows[place] for place in places]) for places in members))
        rewards: list[float | None] = [None] * len(rows)
        for places, group in zip(members, found, strict=True):
            for place, reward in zip(places, group.rewards, strict=True):
                rewards[place] = reward
        if log := columns.get("log_metric"):
            _log_groups(log, rewards, found)
        return rewards

    async def _group(self, rows: Sequence[HostRow]) -> GroupRewards:
        asked, completions = rows[0].question, [row.completion for row in rows]
        if not isinstance(self._judge, str):
            return await self._judge.areward_group(
                asked["prompt"],
                completions,
                self._options,
                criteria=asked["criteria"],
                reference=asked["reference"] or "",
            )
        client = client_of_this_loop(self._judge, self._token)
        request = {**asked, "completions": completions, "options": self._options}
        return await client.group(GroupRequest.model_validate(request))


def _log_groups(log: Any, rewards: Sequence[float | None], groups: Sequence[GroupRewards]) -> None:
    comparisons = sum(group.comparisons for group in groups) or 1
    log("judge/calls", sum(group.calls for group in groups) / len(groups))
    log("judge/cached", sum(group.cached for group in groups) / len(groups))
    log("judge/ties", sum(group.ties for group in groups) / comparisons)
    if known := [group for group in groups if group.decided is not None]:
        of_known = sum(group.comparisons for group in known) or 1
        log("judge/decided", sum(group.decided or 0 for group in known) / of_known)
    log("judge/no_comparison", sum(group.no_verdict for group in groups) / comparisons)
    log("judge/no_verdict", rewards.count(None) / len(rewards))
    log("judge/duplicates", sum(group.duplicates for group in groups) / len(rewards))
