"""A reward function for verl (as of 0.9.1) that asks a judge server; it does not import verl.

reward.custom_reward_function.path=pkg://tirjudge.serve.verl
reward.custom_reward_function.name=compute_score
+reward.custom_reward_function.reward_kwargs.url=http://127.0.0.1:8082
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tirjudge.generation.base import GeneratorFailed
from tirjudge.serve.client import client_of_this_loop
from tirjudge.serve.messages import JudgeRequest


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    url: str,
    token: str | None = None,
    prompt_key: str = "question",
    no_verdict_reward: float | None = None,
    **_: Any,
) -> dict[str, float]:
    """Return the served judge's score of one response, and further metrics that verl logs.

    `prompt_key` is the key of `extra_info` that holds the prompt (a text or chat messages), which verl does
    not pass otherwise. Raises ValueError without it, and GeneratorFailed when the server stays down or,
    unless `no_verdict_reward` is given, when the judge ends without a score: a reward is never invented.
    """
    prompt = (extra_info or {}).get(prompt_key)
    if prompt is None:
        raise ValueError(
            f"a row of {data_source!r} has no extra_info[{prompt_key!r}]: the judge needs the prompt"
        )
    asked = prompt if isinstance(prompt, str) else [dict(message) for message in prompt]
    question = JudgeRequest.model_validate({"prompt": asked, "responses": [solution_str]})
    answer = await client_of_this_loop(url, token).judge(question)
    score = answer.scores[0] if answer.scores else None
    reward = no_verdict_reward if score is None else score
    if reward is None:
        raise GeneratorFailed(f"the judge ended without a score: {answer.stop} {answer.detail}".rstrip())
    programs = float(len(answer.programs))
    return {"score": reward, "judge_programs": programs, "judge_no_verdict": float(score is None)}
