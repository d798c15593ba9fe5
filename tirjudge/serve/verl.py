"""Reward functions for verl (as of 0.9.1) that ask a judge server; this module does not import verl.

reward.custom_reward_function.path=pkg://tirjudge.serve.verl
reward.custom_reward_function.name=compute_score
+reward.custom_reward_function.reward_kwargs.url=http://127.0.0.1:8082

`compute_group_score` compares the responses to a prompt with each other instead, and needs
`+reward.custom_reward_function.reward_kwargs.group_size=N` in addition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tirjudge.generation.base import GeneratorFailed
from tirjudge.serve.client import MOST_MEMBERS, client_of_this_loop
from tirjudge.serve.messages import JudgeRequest, MemberRequest
from tirjudge_environments.tasks.host_rows import HostRow


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    url: str,
    token: str | None = None,
    prompt_key: str = "question",
    reference_key: str | None = None,
    criteria_key: str | None = None,
    no_verdict_reward: float | None = None,
    **further: Any,
) -> dict[str, float]:
    """Return the served judge's score of one response, and further metrics that verl logs.

    `prompt_key` is the key of `extra_info` that holds the prompt (a text or chat messages), which verl does
    not pass otherwise; `reference_key` and `criteria_key` name a reference answer, which may be
    `ground_truth`, and criteria. Raises ValueError for a key that a row lacks or that is no argument, and
    GeneratorFailed when the server stays down or, unless `no_verdict_reward` is given, when the judge ends
    without a score: a reward is never invented.
    """
    given = data_source, solution_str, ground_truth, extra_info, further, compute_score
    row = HostRow.of_verl(*given, prompt=prompt_key, reference=reference_key, criteria=criteria_key)
    answer = await client_of_this_loop(url, token).judge(JudgeRequest.of(row))
    score = answer.scores[0] if answer.scores else None
    reward = no_verdict_reward if score is None else score
    if reward is None:
        raise GeneratorFailed(f"the judge ended without a score: {answer.stop} {answer.detail}".rstrip())
    found = {"score": reward, "judge_programs": float(len(answer.programs))}
    return found | {"judge_decided": float(answer.decided is True), "judge_no_verdict": float(score is None)}


async def compute_group_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    url: str,
    group_size: int,
    method: str = "swiss",
    both_orders: bool = False,
    budget: int | None = None,
    keep_guesses: bool = False,
    token: str | None = None,
    prompt_key: str = "question",
    group_key: str | None = None,
    reference_key: str | None = None,
    criteria_key: str | None = None,
    wait_seconds: float = 300.0,
    no_verdict_reward: float | None = None,
    **further: Any,
) -> dict[str, float]:
    """Return the reward of one response from comparisons with the others of its group.

    verl scores every response by itself, in several processes; the server waits until all `group_size`
    responses to the prompt (`actor_rollout_ref.rollout.n`) have arrived, for up to `wait_seconds`, and judges
    a group while others are generated. `group_key` is a key of `extra_info` that tells rows with equal
    prompts apart; the other keys are as for `compute_score`. Raises as it does, also if the group
    is not complete in time.
    """
    given = data_source, solution_str, ground_truth, extra_info, further, compute_group_score
    row = HostRow.of_verl(
        *given, prompt=prompt_key, reference=reference_key, criteria=criteria_key, group=group_key
    )
    options = {"method": method, "both_orders": both_orders, "budget": budget, "keep_guesses": keep_guesses}
    member = MemberRequest.of(row, group_size, options, wait_seconds)
    answer = await client_of_this_loop(url, token, concurrency=MOST_MEMBERS).member(member)
    reward = no_verdict_reward if answer.reward is None else answer.reward
    if reward is None:
        raise GeneratorFailed("the judge ended without a verdict on any comparison of this response")
    calls = answer.group.calls / group_size
    return {"score": reward, "judge_calls": calls, "judge_no_verdict": float(answer.reward is None)}
