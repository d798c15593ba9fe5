"""The base classes of judges without tools: one prompt from a data file, one turn, read where it ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tirjudge_environments.formats.reward_terms import Rewarded, Scored, Term, correct, scored_apart
from tirjudge_environments.messages import response_text
from tirjudge_environments.orders import Order, ordered_views, require_pair, single_views
from tirjudge_environments.templates import Template, load_template, question_text
from tirjudge_environments.turn_reader import behind_thinking, elements
from tirjudge_environments.types import (
    By,
    Completion,
    Continue,
    Episode,
    Finish,
    JudgeTask,
    Malformed,
    Message,
    Prompt,
    Question,
    Reading,
    Trajectory,
    Unscored,
    Verdict,
    View,
)


@dataclass(frozen=True, slots=True)
class Wording:
    """The names of a judge's prompt files, without `.txt`, and the start of its answer."""

    user: str
    """The template of the user message (see `templates`)."""
    system: str = ""
    """The system message, used without filling slots; empty: no system message."""
    prefill: str = ""
    """The start of the answer, written for the model; read with the answer."""


class TextOnly(Rewarded, ABC):
    """A judge that answers from the text alone and runs no program.

    A format defines its prompt, its views, how an answer is read and its reward: `wording`, `views`,
    `verdict`, `own_terms` and `scored`. Everything that these depend on is an option.
    """

    def model_post_init(self, context: Any) -> None:
        """Load the prompts now, so that a missing prompt fails before a run."""
        self._messages()

    @property
    @abstractmethod
    def wording(self) -> Wording:
        """The prompt files to fill, and the start of the answer."""

    @property
    def linked(self) -> bool:
        return False

    @abstractmethod
    def views(self, task: JudgeTask) -> tuple[View, ...]: ...

    @abstractmethod
    def verdict(self, task: JudgeTask, view: View, text: str) -> Verdict | Malformed:
        """Read the whole turn, prefill included, in time linear in its length; any text has a result."""

    def prompt(self, task: JudgeTask, view: View) -> Prompt:
        user, system = self._messages()
        shown = [response_text(task.candidates[index]) for index in view.order]
        text = user.fill(question_text(task), shown)
        instructed = (Message("system", system.text),) if system else ()
        return Prompt(messages=(*instructed, Message("user", text)), prefill=self.wording.prefill)

    def read(self, task: JudgeTask, view: View, completion: Completion) -> Reading:
        text = _with_reasoning(completion.text, completion.reasoning, self.wording.prefill)
        reading = self.verdict(task, view, text)
        # A turn that was cut is not malformed: the session ends it as `token_budget`.
        cut = completion.finish is Finish.LENGTH and isinstance(reading, Malformed)
        return Continue() if cut else reading

    def questions(self, group: Sequence[Episode]) -> tuple[Question, ...]:
        return ()

    def _messages(self) -> tuple[Template, Template | None]:
        wording = self.wording
        return load_template(wording.user), load_template(wording.system) if wording.system else None


class TextPair(TextOnly):
    """A judge without tools that sees two responses at once."""

    order: Order = "random"
    """Order of the responses: one drawn from (seed, task id); as given; or as given and reversed."""
    seed: int = 0

    def views(self, task: JudgeTask) -> tuple[View, ...]:
        require_pair(task)
        return ordered_views(task, self.order, self.seed)


class TextScore(TextOnly):
    """A judge without tools that sees each response alone, and rates it with a whole number on a scale.

    A format defines `wording` and `scale`. The judge may think first, and its answer is `<score>N</score>`;
    several answers must be equal. Both views of a pair are rewarded if the labelled response is rated higher.
    """

    scale: ClassVar[tuple[int, int]]
    """The lowest and the highest rating, which `--satisfied-from` and people's ratings are compared with."""
    marks: ClassVar[tuple[str, ...]] = ("score", "think")
    linked: ClassVar[bool] = True

    def views(self, task: JudgeTask) -> tuple[View, ...]:
        return single_views(task)

    def verdict(self, task: JudgeTask, view: View, text: str) -> Verdict | Malformed:
        answer = behind_thinking(text)
        if answer is None:
            return Malformed("the thinking was not closed")
        given = {element.body for element in elements(answer, "score")}
        low, high = self.scale
        ratings = {str(rating): float(rating) for rating in range(low, high + 1)}
        if len(given) != 1 or (rating := ratings.get(next(iter(given)))) is None:
            return Malformed(f"no single <score> with a whole number from {low} to {high}", len(given) > 1)
        return Verdict(scores={view.order[0]: rating})

    @property
    def own_terms(self) -> Mapping[str, Term]:
        return {"correct": Term(correct)}

    def scored(self, episode: Episode) -> Sequence[Scored | Unscored]:
        return scored_apart(episode, [one.verdict for one in episode.trajectories])


def written(trajectory: Trajectory) -> str:
    """Return the text of a dialogue as read: the prefill and all that the model wrote."""
    turns = [segment for segment in trajectory.segments if segment.by is By.MODEL]
    prefill = trajectory.prompt.prefill
    text = prefill + "".join(turn.text for turn in turns)
    return _with_reasoning(text, "".join(turn.reasoning for turn in turns), prefill)


def _with_reasoning(text: str, reasoning: str, prefill: str) -> str:
    """Put thinking that an endpoint returned separately back in front of the answer."""
    if not reasoning or "</think>" in text:
        return text
    # The prefill opens the thinking, which is put back as a whole.
    return f"<think>{reasoning}</think>{text.removeprefix(prefill)}"
