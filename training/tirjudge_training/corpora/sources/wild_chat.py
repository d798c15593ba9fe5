"""WildChat: prompts, with sampled answers to them and to noisy variants of them (J1, section 2.2)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel

from tirjudge_environments import Message
from tirjudge_environments.parsing import behind_thinking
from tirjudge_sandbox import Sandbox
from tirjudge_training.corpora.base import Answer, Sampler, Skipped, Source, SourceCard, SourceItem

NOISE = """\
This is what a user asked an AI assistant:

<instruction>
{instruction}
</instruction>

Write another instruction, on the same subject and of the same kind and length, but with another meaning: a \
good answer to yours would look like an answer to this one, and would not be a good one. Write your \
instruction alone, with nothing before or behind it, and do not answer it."""
"""Our prompt, after J1's description; the paper prints none."""


class WildChatTurn(BaseModel):
    """One turn of a conversation."""

    role: str
    content: str


class WildChatRow(BaseModel):
    """A row of WildChat."""

    conversation: list[WildChatTurn]
    language: str
    toxic: bool


class WildChat(Source[WildChatRow]):
    """Takes an answer to the instruction as good, and an answer to a noisy variant of it as bad."""

    card: ClassVar[SourceCard] = SourceCard(
        dataset="allenai/WildChat",
        parts=((None, "train"),),
        domain="chat",
        about="first turns, English and not toxic (ours); answers to them and to noisy variants are sampled",
        licence="ODC-BY",
        needs=frozenset({"generators"}),
    )
    row = WildChatRow

    def question(self, row: WildChatRow) -> SourceItem | Skipped:
        if row.toxic or row.language != "English":
            return Skipped("toxic, or not English")
        first = row.conversation[0] if row.conversation else None
        if first is None or first.role != "user" or not first.content.strip():
            return Skipped("no first turn by a user")
        return SourceItem(prompt=(Message("user", first.content),))

    async def fill(self, question: SourceItem, sampler: Sampler, sandbox: Sandbox) -> SourceItem | Skipped:
        instruction = question.prompt[0].content
        asked = Message("user", NOISE.format(instruction=instruction))
        noisy = _instruction(await sampler.answers(f"{question.key}/noise", (asked,)), instruction)
        if noisy is None:
            return Skipped("no noisy instruction that differs from the original")
        # The bad answer fits another instruction, so it is fluent but misses the point.
        good = await sampler.answers(question.key, question.prompt)
        bad = await sampler.answers(f"{question.key}/noisy", (Message("user", noisy),))
        filled = question.answered([one.text for one in good], [one.text for one in bad])
        return filled if filled.good and filled.bad else Skipped("an instruction without an answer")


def _instruction(answers: list[Answer], original: str) -> str | None:
    """Return the first answer that is not empty and differs from the original instruction."""
    texts = ((behind_thinking(answer.text) or "").strip() for answer in answers)
    return next((text for text in texts if text and text != original.strip()), None)
