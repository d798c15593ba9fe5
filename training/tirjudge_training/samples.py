"""Samples of supervised training: token ids, with labels on the tokens that the model wrote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from tirjudge_environments import By, Encoder, Message, Prompt, Trajectory, Transcript

IGNORED = -100
"""The label of a token that the loss ignores."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One dialogue; `ids` and `labels` have the same length."""

    ids: tuple[int, ...]
    labels: tuple[int, ...]
    """The token id where the model wrote; IGNORED on the prompt and on program outputs."""

    @property
    def taught(self) -> int:
        """The number of tokens in the loss."""
        return sum(label != IGNORED for label in self.labels)

    @classmethod
    def of(cls, trajectory: Trajectory) -> Self:
        """Return a sampled trajectory as a sample; raises ValueError if it has no token ids."""
        transcript = Transcript.of(trajectory)
        written = zip(transcript.completion_ids, transcript.mask, strict=True)
        return cls(
            transcript.prompt_ids + transcript.completion_ids,
            (IGNORED,) * len(transcript.prompt_ids) + tuple(i if own else IGNORED for i, own in written),
        )

    @classmethod
    def written(cls, trajectory: Trajectory, encoder: Encoder, end: int) -> Self:
        """Encode a dialogue without token ids, each segment separately; the last turn ends with `end`."""
        # Segment by segment, as the student will sample: a token never spans model and sandbox text.
        ids = list(encoder.prompt(trajectory.prompt))
        labels = [IGNORED] * len(ids)
        for segment in trajectory.segments:
            encoded = encoder.text(segment.text)
            ids += encoded
            labels += encoded if segment.by is By.MODEL else [IGNORED] * len(encoded)
        return cls((*ids, end), (*labels, end))

    @classmethod
    def answer(cls, encoder: Encoder, question: Prompt | str, answer: str, end: int) -> Self:
        """Return a prompt, or one user message, with its answer, which ends with the token `end`."""
        asked = Prompt(messages=(Message("user", question),)) if isinstance(question, str) else question
        prompt = tuple(encoder.prompt(asked))
        written = (*encoder.text(answer), end)
        return cls(prompt + written, (IGNORED,) * len(prompt) + written)
