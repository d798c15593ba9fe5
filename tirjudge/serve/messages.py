"""The request and the response of `/v1/judge`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag

from tirjudge.judging.judge_engine import Kind
from tirjudge.selection.group_rewards import GroupOptions, GroupRewards
from tirjudge_environments import JudgeTask, derive_seed
from tirjudge_environments.tasks import LARGEST_WEIGHT, read_task
from tirjudge_sandbox.http.fields import Message, Text

MOST_QUESTIONS = 256
"""The most questions in one request."""
MOST_RESPONSES = 64
"""The most responses to one question."""
MOST_CRITERIA = 64
"""The most criteria of one question."""


class ChatMessage(Message):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: Text


Prompt = Annotated[Text, Field(min_length=1)] | Annotated[list[ChatMessage], Field(min_length=1)]
"""A text, or the chat messages so far."""


class CriterionRequest(Message):
    """One thing that the responses are judged by."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: Annotated[Text, Field(min_length=1)]
    weight: Annotated[float, Field(ge=0, le=LARGEST_WEIGHT)] = 1.0
    polarity: Literal["positive", "negative"] = "positive"
    must_have: bool = False


Criteria = Annotated[list[Text | CriterionRequest], Field(min_length=1, max_length=MOST_CRITERIA)]
"""Criteria that responses are judged by, each in a dialogue of its own."""


class JudgeRequest(Message):
    """A prompt, and the responses to judge."""

    prompt: Prompt
    responses: Annotated[list[Text], Field(min_length=1, max_length=MOST_RESPONSES)]
    kind: Kind | None = None
    """None: one response is scored, the better of two or the best of more is chosen."""
    id: Text = ""
    """Returned with the answer. It seeds the order in which responses are shown, and the sampling."""
    domain: Text = ""
    """Such as `math` or `safety`, for formats that depend on it."""
    reference: Text | None = None
    """A reference answer that the judge is shown."""
    criteria: Criteria | None = None
    """Criteria that the responses are judged by, each in a dialogue of its own; None: the whole prompt."""

    def task(self) -> JudgeTask:
        """Return the task; without an id its text gives it one, so equal questions get equal answers.

        Raises RowError for a prompt without text, and for criteria that repeat each other or have no weight.
        """
        row = self.model_dump(include={"prompt", "responses", "domain", "id", "reference", "criteria"})
        return read_task(row, default_id=f"{derive_seed(repr(row['prompt']), *self.responses):08x}")


class GroupRequest(Message):
    """A prompt, and the completions to compare: a request to `/v1/group`."""

    prompt: Prompt
    completions: Annotated[list[Text], Field(min_length=1, max_length=MOST_RESPONSES)]
    options: GroupOptions = GroupOptions()
    domain: Text = ""
    """Such as `math` or `safety`, for formats that depend on it."""
    reference: Text | None = None
    """A reference answer that the judge is shown."""
    criteria: Criteria | None = None
    """Criteria that every comparison is judged by, each in a dialogue of its own; None: the whole prompt."""

    def task(self) -> JudgeTask:
        """Return the task.

        Raises RowError for a prompt without text, and for criteria that repeat each other or have no weight.
        """
        row = self.model_dump(include={"prompt", "domain", "reference", "criteria"})
        row["responses"] = self.completions
        return read_task(row, default_id="group")


class MemberRequest(Message):
    """One completion of a group that is sent one by one: a request to `/v1/group/member`."""

    prompt: Prompt
    completion: Text
    size: Annotated[int, Field(ge=1, le=MOST_RESPONSES)]
    """Completions of the group. Its members agree in everything but the completion and their name."""
    member: Annotated[Text, Field(min_length=1)]
    """A name that no other request has; a request that is repeated keeps it."""
    group: Text = ""
    """Tells groups of the same prompt apart, where a framework can name them."""
    options: GroupOptions = GroupOptions()
    domain: Text = ""
    reference: Text | None = None
    criteria: Criteria | None = None
    """As in a `GroupRequest`."""
    wait_seconds: Annotated[float, Field(gt=0, le=3600)] = 300.0
    """Seconds in which the other members must arrive."""

    @property
    def key(self) -> str:
        """The group's name: what its members agree in."""
        named = self.prompt, self.size, self.group, self.options, self.domain
        return repr((*named, self.reference, self.criteria))

    def whole(self, completions: Sequence[str]) -> GroupRequest:
        """Return the request of the group."""
        return GroupRequest(
            prompt=self.prompt,
            completions=[*completions],
            options=self.options,
            domain=self.domain,
            reference=self.reference,
            criteria=self.criteria,
        )


class MemberAnswer(Message):
    """The reward of one completion."""

    reward: float | None
    group: GroupRewards
    """The rewards of the whole group, in the order in which its members arrived."""


def _count(body: Any) -> str:
    return "many" if isinstance(body, list) else "one"


Several = Annotated[list[JudgeRequest], Field(min_length=1, max_length=MOST_QUESTIONS)]

Questions = Annotated[
    Annotated[JudgeRequest, Tag("one")] | Annotated[Several, Tag("many")], Discriminator(_count)
]
"""One question, or a list of questions; the location of an error says which of the two was read."""
