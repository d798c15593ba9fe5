"""What `/v1/judge` is asked and answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag

from tirjudge.judged_program import JudgedProgram, judged_programs
from tirjudge.judging import Kind
from tirjudge.judgment import Judgment
from tirjudge_environments import JudgeTask, derive_seed
from tirjudge_environments.tasks import read_task
from tirjudge_sandbox.http.fields import Message, Text

MOST_QUESTIONS = 256
"""In one request."""
MOST_RESPONSES = 64
"""To one question."""


class ChatMessage(Message):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: Text


class Question(Message):
    """A prompt, and the responses to it that are to be judged."""

    prompt: Annotated[Text, Field(min_length=1)] | Annotated[list[ChatMessage], Field(min_length=1)]
    """A text, or the chat messages so far."""
    responses: Annotated[list[Text], Field(min_length=1, max_length=MOST_RESPONSES)]
    kind: Kind | None = None
    """None: one response is scored, of two the better is named, of more the best."""
    id: Text = ""
    """Comes back with the answer. The order in which responses are shown, and every draw, depend on it."""
    domain: Text = ""
    """Such as `math` or `safety`, for formats that look at it."""

    def task(self) -> JudgeTask:
        """Without an id it gets one from its own words: the same question gets the same answer.

        Raises RowError for a prompt without any text.
        """
        row = self.model_dump(include={"prompt", "responses", "domain", "id"})
        return read_task(row, default_id=f"{derive_seed(repr(row['prompt']), *self.responses):08x}")


class Answer(Message):
    """A verdict, or why there is none."""

    id: str
    format: str
    """`pointwise`, `pairwise`, `listwise`, or the name of the server's own format."""
    verdict: str | None
    """Letter of the best response (the first is A), `tie`, or null."""
    choice: int | None
    """The same as an index from 0; null for a tie, and without a verdict."""
    scores: list[float | None] | None
    """One for each response, in the format's own range; null where the format gives none."""
    stop: str
    """`verdict`, or how the judge ended without one."""
    detail: str
    programs: tuple[JudgedProgram, ...]
    """What the verdict rests on."""
    prompt_tokens: int
    completion_tokens: int

    @classmethod
    def of(cls, judgment: Judgment) -> Self:
        task = judgment.episode.task
        every = [judgment.scores.get(index) for index in range(len(task.candidates))]
        return cls(
            id=task.id,
            format=judgment.kind,
            verdict=judgment.verdict,
            choice=judgment.choice,
            scores=every if judgment.scores else None,
            stop=judgment.stop.value,
            detail=judgment.detail,
            programs=judged_programs(judgment),
            prompt_tokens=judgment.usage.prompt_tokens,
            completion_tokens=judgment.usage.completion_tokens,
        )


def _count(body: Any) -> str:
    return "many" if isinstance(body, list) else "one"


Several = Annotated[list[Question], Field(min_length=1, max_length=MOST_QUESTIONS)]

Questions = Annotated[
    Annotated[Question, Tag("one")] | Annotated[Several, Tag("many")], Discriminator(_count)
]
"""One question, or a list of them. An error says in its place which of the two was read."""
