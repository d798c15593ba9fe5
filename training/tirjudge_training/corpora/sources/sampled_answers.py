"""Sources of questions to which answers are sampled, and sorted by a gold answer or a noisy question."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel

from tirjudge_environments import Message
from tirjudge_environments.turn_reader import behind_thinking
from tirjudge_sandbox import Sandbox
from tirjudge_training.corpora.answers import Solved, last_boxed
from tirjudge_training.corpora.base import Answer, Sampler, Skipped, Source, SourceCard, SourceItem
from tirjudge_training.corpora.hub import EVERY


class DapoRow(BaseModel):
    """A row of DAPO-Math-17k, whose answers are sampled (TIR Table 6, "dapo_bigmath")."""

    prompt: str
    solution: str
    """The final answer alone."""


class DapoBigmath(Solved[DapoRow]):
    """Takes the English problems.

    The name in Table 6 may include Big-Math, which section 4.1 does not mention.
    """

    card: ClassVar[SourceCard] = SourceCard(
        dataset="open-r1/DAPO-Math-17k-Processed",
        parts=(("en", "train"),),
        domain="math",
        about="sampled answers, sorted by math-verify",
        licence="Apache-2.0",
        needs=frozenset({"generators"}),
    )

    def question(self, row: DapoRow) -> SourceItem | Skipped:
        return SourceItem(prompt=(Message("user", row.prompt),), known={"gold": row.solution})


class LoongRow(BaseModel):
    """A row of Loong: seed problems of all domains, whose answers are sampled (TIR Table 6, "Loong")."""

    question: str
    final_answer: str


class Loong(Solved[LoongRow]):
    """Takes every configuration, one per domain; math-verify drops problems whose answer is a text."""

    card: ClassVar[SourceCard] = SourceCard(
        dataset="camel-ai/loong",
        parts=((EVERY, "train"),),
        domain="reasoning",
        about="sampled answers, sorted by math-verify",
        licence="MIT",
        needs=frozenset({"generators"}),
    )

    def question(self, row: LoongRow) -> SourceItem | Skipped:
        return SourceItem(prompt=(Message("user", row.question),), known={"gold": row.final_answer})


class MathRow(BaseModel):
    """A row of MATH: training problems, whose answers are sampled (TIR Table 6, "MATH")."""

    problem: str
    solution: str


class Math(Solved[MathRow]):
    """Takes answers as right if they end in the boxed result of the reference solution."""

    card: ClassVar[SourceCard] = SourceCard(
        dataset="DigitalLearningGmbH/MATH-lighteval",
        parts=(("default", "train"),),
        domain="math",
        about="sampled answers, sorted by math-verify against the boxed result of the solution",
        licence="MIT",
        needs=frozenset({"generators"}),
    )

    def question(self, row: MathRow) -> SourceItem | Skipped:
        gold = last_boxed(row.solution)
        if gold is None:
            return Skipped("a solution without a boxed answer")
        return SourceItem(prompt=(Message("user", row.problem),), known={"gold": gold})


Grade = Literal["Yes", "No"]


class S1Row(BaseModel):
    """A row of s1K-1.1: hard problems with two models' graded attempts (TIR Table 6, "s1")."""

    question: str
    solution: str
    gemini_attempt: str
    gemini_grade: Grade
    deepseek_attempt: str
    deepseek_grade: Grade


class S1(Solved[S1Row]):
    """Pairs a right attempt with a wrong one; adds sampled answers if both have the same grade (ours)."""

    card: ClassVar[SourceCard] = SourceCard(
        dataset="simplescaling/s1K-1.1",
        domain="math",
        about="attempts by their grade, completed with sampled answers sorted by math-verify",
        licence="MIT",
        needs=frozenset({"generators"}),
    )

    def question(self, row: S1Row) -> SourceItem | Skipped:
        graded = ((row.gemini_attempt, row.gemini_grade), (row.deepseek_attempt, row.deepseek_grade))
        return SourceItem(
            prompt=(Message("user", row.question),),
            good=tuple(attempt for attempt, grade in graded if grade == "Yes"),
            bad=tuple(attempt for attempt, grade in graded if grade == "No"),
            known={"gold": last_boxed(row.solution) or row.solution},
        )

    async def fill(self, question: SourceItem, sampler: Sampler, sandbox: Sandbox) -> SourceItem | Skipped:
        if question.good and question.bad:
            return question
        return await super().fill(question, sampler, sandbox)


CHECKABLE = frozenset(
    {"Expression", "Float", "Fraction", "Integer", "Matrix", "Multiple Choice", "Percentage"}
)
"""The answer types that math-verify can compare; others, such as texts and lists, are left out (ours)."""


class WebInstructRow(BaseModel):
    """A row of WebInstruct-verified: questions of all subjects, whose answers are sampled (TIR Table 6)."""

    question: str
    answer: str
    answer_type: str


class WebInstruct(Solved[WebInstructRow]):
    """Takes questions whose answers can be compared by a rule."""

    card: ClassVar[SourceCard] = SourceCard(
        dataset="TIGER-Lab/WebInstruct-verified",
        domain="reasoning",
        about="sampled answers, sorted by math-verify, for answer types that it can compare",
        licence="Apache-2.0",
        needs=frozenset({"generators"}),
    )

    def question(self, row: WebInstructRow) -> SourceItem | Skipped:
        if row.answer_type not in CHECKABLE:
            return Skipped("an answer type that math-verify cannot compare")
        return SourceItem(prompt=(Message("user", row.question),), known={"gold": row.answer})


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
    """A row of WildChat: prompts; answers to them and to noisy variants are sampled (J1, section 2.2)."""

    conversation: list[WildChatTurn]
    language: str
    toxic: bool


class WildChat(Source[WildChatRow]):
    """Takes an answer to the instruction as good, and an answer to a noisy variant of it as bad."""

    card: ClassVar[SourceCard] = SourceCard(
        dataset="allenai/WildChat",
        domain="chat",
        about="first turns, English and not toxic (ours); answers to them and to noisy variants are sampled",
        licence="ODC-BY",
        needs=frozenset({"generators"}),
    )

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
