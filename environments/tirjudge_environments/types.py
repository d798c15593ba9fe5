"""The vocabulary: every noun that flows from a row to a reward."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from tirjudge_sandbox import Execution


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message of the conversation that is judged, or of the judge's own prompt."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeTask:
    """What is to be judged: a prompt, its candidate responses and, when known, the best of them."""

    id: str
    prompt: tuple[Message, ...]
    candidates: tuple[str, ...]
    label: int | None = None
    """Index into `candidates` of the best one; None when it is not known."""
    domain: str = ""
    """`safety`, `helpfulness`, `math`, ...: some rewards and prompts depend on it. Empty when unknown."""
    gold: Mapping[str, Any] = field(default_factory=dict)
    """What a reward needs beyond the label: gold scores, a human checklist."""
    tags: tuple[str, ...] = ()
    """Free words that result rows repeat; no prompt and no reward depends on them."""


@dataclass(frozen=True, slots=True)
class View:
    """What one rollout sees of a task."""

    name: str
    """Unique within the task: `AB`, `BA`, `0`, ...; the advantage baseline is per (task, view)."""
    order: tuple[int, ...]
    """The candidate's index at each shown position: (1, 0) shows candidate 1 as Response A."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A native tool, offered to the model by the `tool` protocol."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON schema of the arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What the judge is asked."""

    messages: tuple[Message, ...]
    prefill: str = ""
    """The start of the judge's answer, written for it; it belongs to the prompt (mask 0)."""
    stop: tuple[str, ...] = ()
    """Strings after which generation pauses so that the completion can be read."""
    tools: tuple[ToolSpec, ...] = ()
    """Offered as native calls; empty under the `fence` protocol and for text-only judges."""


class Finish(StrEnum):
    """Why a generator stopped."""

    END = "end"
    """The model ended its turn (end-of-sequence token)."""
    STOP = "stop"
    """A stop string of the prompt was seen."""
    LENGTH = "length"
    """`Sampling.max_tokens`, or the model's context, was reached."""
    TOOL_CALL = "tool_call"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A native call as the model made it."""

    id: str
    name: str
    arguments: str
    """JSON text, unparsed: it is the model's and may be anything."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one or more requests, as the generator counted them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens, self.completion_tokens + other.completion_tokens
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What a model wrote in one turn."""

    text: str
    finish: Finish
    token_ids: tuple[int, ...] | None = None
    """As sampled, an end-of-sequence token included; None when the endpoint does not tell."""
    logprobs: tuple[float, ...] | None = None
    """Natural logarithm, one per token id, under the distribution that was sampled from."""
    reasoning: str = ""
    """Hidden thinking that the endpoint returned apart from the text."""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()


@dataclass(frozen=True, slots=True)
class RunCode:
    """The model asks for a program to be run."""

    source: str
    bindings: Mapping[str, Any] = field(default_factory=dict)
    """Names that the program finds defined: the prompt and the responses of its view."""
    opened: bool = False
    """The model wrote the opening ```` ```output ```` fence itself."""
    call_id: str | None = None
    """The native call that this answers; None under the `fence` protocol."""
    end: int | None = None
    """Offset in the turn's text behind the request; what the model wrote after it overhangs."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A view's answer, in the task's own candidate indices."""

    choice: int | None = None
    """The preferred candidate; None for a tie, and for a verdict that only gives scores."""
    scores: Mapping[int, float] = field(default_factory=dict)
    """Candidate index to score."""
    tie: bool = False
    parsed: Mapping[str, Any] = field(default_factory=dict)
    """What else the answer said, as JSON values by name: a rubric, reasons. The choice is made without it."""


@dataclass(frozen=True, slots=True)
class Continue:
    """Nothing to act on yet: generation goes on in the same turn."""


@dataclass(frozen=True, slots=True)
class Malformed:
    """The turn ended without a program or a readable verdict."""

    reason: str


Reading = RunCode | Verdict | Continue | Malformed


@dataclass(frozen=True, slots=True)
class Refused:
    """A program that was asked for and not run."""

    reason: str


@dataclass(frozen=True, slots=True)
class Call:
    """One request to run a program, and what came of it."""

    request: RunCode
    outcome: Execution | Refused


class By(StrEnum):
    """Who wrote a segment."""

    MODEL = "model"
    SANDBOX = "sandbox"


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A stretch of a trajectory with one author; the loss mask (1 for the model's) derives from `by`."""

    by: By
    text: str
    ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    """One per id for the model's segments; None for the sandbox's."""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None
    """For a sandbox segment that answers a native call."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a generator continues: the prompt and all that followed."""

    prompt: Prompt
    segments: tuple[Segment, ...] = ()
    ids: tuple[int, ...] | None = None
    """Prompt and segments as token ids, exactly as sampled; None without an encoder."""


class StopReason(StrEnum):
    """Why a trajectory ended."""

    VERDICT = "verdict"
    MALFORMED = "malformed"
    TURN_BUDGET = "turn_budget"
    TOKEN_BUDGET = "token_budget"
    CPU_BUDGET = "cpu_budget"
    SANDBOX_DOWN = "sandbox_down"
    """Unscored: out of the baseline and the loss, and drawn again."""
    GENERATOR_DOWN = "generator_down"
    """Unscored, likewise."""
    PROMPT_TOO_LONG = "prompt_too_long"
    """The prompt leaves the model's context no room: unscored, and no use to draw again."""

    @property
    def down(self) -> bool:
        """A part of the machinery failed: trying again may help."""
        return self in (StopReason.SANDBOX_DOWN, StopReason.GENERATOR_DOWN)

    @property
    def unscored(self) -> bool:
        """It says nothing about the judge."""
        return self.down or self is StopReason.PROMPT_TOO_LONG


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One view, one sample, from the prompt to its end."""

    view: View
    sample: int
    prompt: Prompt
    prompt_ids: tuple[int, ...] | None
    segments: tuple[Segment, ...]
    calls: tuple[Call, ...]
    """In the order asked for; one that was refused, or whose sandbox failed, included."""
    stop: StopReason
    verdict: Verdict | None
    """None unless `stop` is VERDICT."""
    detail: str = ""
    """For a stop other than VERDICT: what was wrong, in one line."""
    usage: Usage = Usage()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Episode:
    """All views of one sample of a task. A group is a list of episodes of one task."""

    task: JudgeTask
    sample: int
    trajectories: tuple[Trajectory, ...]
    """One per view, in the order of `Environment.views`."""


@dataclass(frozen=True, slots=True)
class Reward:
    """A trajectory's reward and the named parts it was made of."""

    total: float
    parts: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Unscored:
    """No reward can be given: the sandbox or the generator failed, or the task has no label."""

    reason: str


Score = Reward | Unscored


@dataclass(frozen=True, slots=True)
class Ask:
    """A question to another model (a MetaJudge) that a reward depends on."""

    key: str
    """The same for the same question: an answer that is kept need not be asked for again."""
    prompt: Prompt
    readable: Callable[[str], bool] = field(default=lambda answer: True, compare=False)
    """Whether the reward can read an answer; one that it cannot is asked for again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Bounds of one trajectory. None of them is a wall clock, or a busy machine would teach the policy."""

    turns: int = 8
    """Turns of the model."""
    tool_calls: int = 3
    """Programs that are run; a further one is refused, and the reply says so (TIR section 4.2)."""
    tokens: int = 8192
    """The whole response: what the model and the sandbox wrote, without the prompt (TIR section 5.1).

    Exact with token ids; without, it is what the endpoint reports, and the sandbox's part is not counted.
    """
    cpu_seconds: float = 30.0
    """Of all programs together; once it is spent, asking for another one ends the dialogue."""

    def __post_init__(self) -> None:
        if self.turns < 1 or self.tokens < 1 or self.tool_calls < 0 or self.cpu_seconds <= 0:
            raise ValueError(f"a budget needs at least one turn, one token and some CPU time, not {self}")


def derive_seed(*parts: int | str) -> int:
    """A number from 0 to 2**32 - 1, the same for the same parts on every machine and in every version."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return int.from_bytes(digest, "big")
