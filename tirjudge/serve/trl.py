"""A reward function for TRL's trainers that asks a judge server; it does not import TRL."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from tirjudge.serve.client import client_of_this_loop
from tirjudge.serve.messages import JudgeRequest

Turns = str | Sequence[Mapping[str, Any]]
"""A text, or chat messages with `role` and `content`."""


class JudgeReward:
    """The served judge's score of every completion: `GRPOTrainer(reward_funcs=JudgeReward(url), ...)`.

    A completion without a score gets None, which TRL leaves out of its group; the metric `judge/no_verdict`
    is their share. A server that stays down raises GeneratorFailed, which stops the training: a reward is
    never invented.
    """

    __name__ = "judge"

    def __init__(self, url: str, *, token: str | None = None) -> None:
        """Take the arguments of `JudgeClient`."""
        self._url, self._token = url, token

    async def __call__(
        self, prompts: Sequence[Turns], completions: Sequence[Turns], **columns: Any
    ) -> list[float | None]:
        """Score completions, called by TRL with equally many prompts and further columns by name."""
        client = client_of_this_loop(self._url, self._token)
        pairs = zip(prompts, completions, strict=True)
        answers = await asyncio.gather(*(client.judge(_question(*pair)) for pair in pairs))
        scores = [answer.scores[0] if answer.scores else None for answer in answers]
        if log := columns.get("log_metric"):
            log("judge/no_verdict", scores.count(None) / len(scores))
        return scores


def _question(prompt: Turns, completion: Turns) -> JudgeRequest:
    """Return the question; the last of several chat messages of a completion is judged."""
    response = completion if isinstance(completion, str) else completion[-1]["content"]
    asked = prompt if isinstance(prompt, str) else [dict(message) for message in prompt]
    return JudgeRequest.model_validate({"prompt": asked, "responses": [response]})
