"""The judge of RM-R1: it writes a rubric or a solution before its verdict (RM-R1 Fig. 3, 5, 6 and 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

from tirjudge_environments.base import JudgeCard
from tirjudge_environments.formats.reward_terms import Scored, Term, correct, failed, unlabelled
from tirjudge_environments.formats.rm_r1_rubrics import CHATBOTS, ChainOfRubrics
from tirjudge_environments.formats.text_only import TextPair, Wording, written
from tirjudge_environments.messages import is_transcript, response_text
from tirjudge_environments.quoting import quote_lines, starts_with
from tirjudge_environments.registry import RewardOnly
from tirjudge_environments.templates import load_template
from tirjudge_environments.turn_reader import behind_thinking, elements
from tirjudge_environments.types import (
    Episode,
    JudgeTask,
    Malformed,
    Message,
    Prompt,
    Trajectory,
    Unscored,
    Verdict,
    View,
)

Style = Literal["instruct", "reasoning", "no-categories", "no-rubrics", "answer-only"]
RELEASED_TAIL = 80
"""The number of characters at the end of an answer that the authors' reward looks at."""


class RmR1(TextPair):
    """A judge of two chatbots, A and B, that answers `<answer>[[A]]</answer>`."""

    card: ClassVar[JudgeCard] = JudgeCard(
        views="a pair in one order",
        answer="`<answer>[[A]]</answer>`",
        reward="+1 for the label, else -1 (Eq. 8); `cold-start`: label + format, 1 each (Eq. 11)",
        source="RM-R1 §2.3, App. A, G.1; Fig. 3, 5, 6, 7",
    )

    marks: ClassVar[tuple[str, ...]] = (
        *("answer", "think", "type", "rubric", "justify", "solution", "eval"),
        *(f"{kind}_{chatbot}" for kind in ("quote", "summary") for chatbot in CHATBOTS),
    )

    style: Style = "instruct"
    """`instruct`: the chain of rubrics (Fig. 3); `reasoning`: for models that think, without a system message
    (Fig. 5); the ablations `no-categories` (Fig. 6) and `no-rubrics` (Fig. 7); `answer-only`: the letter
    alone, the authors' prompt for the fine-tuning of Table 3."""
    variant: Literal["released", "paper"] = "released"
    """The system message of the authors' code, which their checkpoints know, or of the figure. They
    differ for `instruct` and `no-categories` only."""
    reward: RewardOnly[Literal["correct", "cold-start", "released"]] = "correct"
    """`correct` is Eq. 8, `cold-start` Eq. 11, and `released` Eq. 8 as the authors' code computes it from the
    last characters of the text."""

    @property
    def wording(self) -> Wording:
        if self.style == "reasoning":
            return Wording("rm-r1-reasoning-pair")
        varies = self.style in ("instruct", "no-categories")
        return Wording(
            "rm-r1-pair", f"rm-r1-{self.style}-{self.variant}" if varies else f"rm-r1-{self.style}"
        )

    def prompt(self, task: JudgeTask, view: View) -> Prompt:
        """Return the prompt; a conversation of several messages is repeated for each chatbot.

        With tools, a reference or criteria it is not: they follow the conversation, and the responses follow
        them.
        """
        prompt = super().prompt(task, view)
        if [message.role for message in task.prompt] == ["user"] or task.reference or task.criteria:
            return prompt
        if task.tools or is_transcript(task.prompt):
            return prompt
        template = load_template(self.wording.user.replace("pair", "conversation"))
        told = [
            _conversation(task.prompt, response_text(task.candidates[candidate]), chatbot)
            for chatbot, candidate in zip(CHATBOTS, view.order, strict=True)
        ]
        return replace(prompt, messages=(*prompt.messages[:-1], Message("user", template.fill("", told))))

    def verdict(self, task: JudgeTask, view: View, text: str) -> Verdict | Malformed:
        answer = behind_thinking(text)
        if answer is None:
            return Malformed("the thinking was not closed")
        chosen = self._chosen(answer)
        if isinstance(chosen, Malformed):
            return chosen
        named = {one.body for one in elements(answer, "answer")} & {f"[[{one}]]" for one in CHATBOTS}
        return Verdict(
            choice=view.order[CHATBOTS.index(chosen)],
            parsed=ChainOfRubrics(answer).parsed(view.order),
            contested=len(named) > 1,
        )

    def well_formed(self, text: str) -> bool:
        """Return True if the text has every part that its style asks for, in order.

        Eq. 11 does not define the format; this definition is ours.
        """
        answer = behind_thinking(text)
        if answer is None or isinstance(self._chosen(answer), Malformed):
            return False
        chain = ChainOfRubrics(answer)
        match self.style:
            case "instruct":
                return chain.follows_figure_3()
            case "no-categories":
                return chain.follows_figure_6()
            case "answer-only":
                return True
            case _:
                return chain.ends_with_answer()

    @property
    def own_terms(self) -> Mapping[str, Term]:
        if self.reward != "cold-start":
            return {"correct": Term(correct)}
        form = Term(lambda seen: float(self.well_formed(written(seen.trajectory))))
        return {"correct": Term(correct), "format": form}

    def equation(self, parts: Mapping[str, float]) -> float:
        """Return Eq. 11, or Eq. 8: 1 for a right verdict and -1 for any other."""
        return super().equation(parts) if self.reward == "cold-start" else 2.0 * parts["correct"] - 1.0

    def scored(self, episode: Episode) -> Sequence[Scored | Unscored]:
        return [
            unlabelled(episode) or failed(trajectory) or self._scored(episode.task, trajectory)
            for trajectory in episode.trajectories
        ]

    def _scored(self, task: JudgeTask, trajectory: Trajectory) -> Scored:
        right = self._choice(trajectory, written(trajectory)) == task.label
        return Scored(task, trajectory, right, right)

    def _choice(self, trajectory: Trajectory, text: str) -> int | None:
        if self.reward != "released":
            return trajectory.verdict.choice if trajectory.verdict else None
        tail = text[-RELEASED_TAIL:]
        named = [f"<answer>[[{chatbot}]]</answer>" in tail for chatbot in CHATBOTS]
        return trajectory.view.order[named.index(True)] if sum(named) == 1 else None

    def _chosen(self, answer: str) -> str | Malformed:
        """Return the chatbot that the text after the thinking names."""
        if self.style == "answer-only":
            letter = answer.strip().strip('"')
            return letter if letter in CHATBOTS else Malformed("neither A nor B, and nothing else")
        chain = ChainOfRubrics(answer)
        if chain.answer is None:
            return Malformed("no complete <answer>")
        if chain.answer_is_quoted:
            return Malformed("the last <answer> stands inside a quotation")
        named = {f"[[{chatbot}]]": chatbot for chatbot in CHATBOTS}.get(chain.answer.body)
        return named or Malformed("the last <answer> is neither [[A]] nor [[B]]")


def _conversation(messages: Sequence[Message], response: str, chatbot: str) -> str:
    """Return turns as the authors' code writes them; they have no name for a system message."""
    names = {"user": "User", "assistant": f"Chatbot {chatbot}", "system": "System"}
    turns = [f"{names[message.role]}: {message.content}" for message in messages]
    said = quote_lines(response, starts_with(f"{name}:" for name in names.values()))
    return "\n".join((*turns, f"Chatbot {chatbot}: {said}"))
