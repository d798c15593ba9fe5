"""The request of OpenRLHF to a remote reward model, and the response (as in OpenRLHF 0.11.2)."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, JsonValue

from tirjudge.judging.judgment import Judgment
from tirjudge.serve.messages import MOST_QUESTIONS, JudgeRequest
from tirjudge_sandbox.http.fields import Message, Text
from tirjudge_sandbox.server.settings import FieldRefused

_ENDS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "</s>", "<eos>", "<end_of_turn>")
"""OpenRLHF decodes a query with its special tokens, of which the last is the policy's end of turn."""
_LONGEST_START = 40
"""Most characters of a tokenizer's first token, which may precede a query."""

Texts = Annotated[list[Text], Field(min_length=1, max_length=MOST_QUESTIONS)]


class RewardRequest(Message):
    """Prompts, and the same prompts followed by the policy's responses."""

    query: Texts
    """Prompt and response in one text."""
    prompts: Texts
    """One prompt per query, in the same order."""
    labels: list[JsonValue] | None = None
    """Sent by OpenRLHF and ignored."""

    def questions(self) -> list[JudgeRequest]:
        """Return one question per query. Raises FieldRefused for a query without its prompt."""
        if len(self.query) != len(self.prompts):
            text = f"has {len(self.prompts)} texts, query has {len(self.query)}"
            raise FieldRefused(text, "prompts")
        pairs = zip(self.query, self.prompts, strict=True)
        return [_question(index, query, prompt) for index, (query, prompt) in enumerate(pairs)]


class RewardResponse(Message):
    """One number for each query."""

    rewards: list[float]
    scores: list[float]
    """The same numbers, by which OpenRLHF filters groups."""
    extra_logs: dict[str, list[float]]
    """Logged by OpenRLHF with its own metrics."""

    @classmethod
    def of(cls, judgments: list[Judgment], rewards: list[float]) -> Self:
        calls = [float(sum(len(one.calls) for one in judgment.trajectories)) for judgment in judgments]
        no_verdict = [float(judgment.score is None) for judgment in judgments]
        logs: dict[str, Any] = {"judge_programs": calls, "judge_no_verdict": no_verdict}
        return cls(rewards=rewards, scores=rewards, extra_logs=logs)


def _question(index: int, query: str, prompt: str) -> JudgeRequest:
    if not prompt.strip():
        raise FieldRefused("is empty", "prompts", index)
    before, found, response = query.partition(prompt)
    # Only the tokenizer's first token may precede the prompt.
    if not found or len(before) > _LONGEST_START:
        raise FieldRefused("does not begin with its prompt", "query", index)
    return JudgeRequest(prompt=prompt, responses=[_without_end(response)])


def _without_end(response: str) -> str:
    text = response.rstrip()
    for end in _ENDS:
        if text.endswith(end):
            return text.removesuffix(end)
    return response
