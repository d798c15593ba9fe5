"""A reward function for TRL's trainers that asks a judge server; imports no TRL."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from tirjudge.serve.client import client_of_this_loop
from tirjudge.serve.messages import Question

Turns = str | Sequence[Mapping[str, Any]]
"""A text, or chat messages with `role` and `content`."""


class JudgeReward:
    """The served judge's score of every completion: `GRPOTrainer(reward_funcs=JudgeReward(url), ...)`.

    A completion that the judge ends without a score for gets None, which TRL leaves out of its group; how
    many they are is the metric `judge/no_verdict`. A server that stays down raises GeneratorFailed, which
    stops the training: no reward is made up.
    """

    __name__ = "judge"

    def __init__(self, url: str, *, token: str | None = None) -> None:
        """As for `JudgeClient`."""
        self._url, self._token = url, token

    async def __call__(
        self, prompts: Sequence[Turns], completions: Sequence[Turns], **columns: Any
    ) -> list[float | None]:
        """TRL's call: a prompt and a completion each, and the rest by name."""
        client = client_of_this_loop(self._url, self._token)
        pairs = zip(prompts, completions, strict=True)
        answers = await asyncio.gather(*(client.judge(_question(*pair)) for pair in pairs))
        scores = [answer.scores[0] if answer.scores else None for answer in answers]
        if log := columns.get("log_metric"):
            log("judge/no_verdict", scores.count(None) / len(scores))
        return scores


def _question(prompt: Turns, completion: Turns) -> Question:
    """Of a completion in chat messages the last one is judged."""
    response = completion if isinstance(completion, str) else completion[-1]["content"]
    asked = prompt if isinstance(prompt, str) else [dict(message) for message in prompt]
    return Question.model_validate({"prompt": asked, "responses": [response]})
