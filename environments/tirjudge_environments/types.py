"""The vocabulary of the package: every type that flows from a row to a reward, budgets and seeds."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict

from tirjudge_environments.files.folder import NO_FILES, Folder
from tirjudge_sandbox import Execution


class FrozenModel(BaseModel):
    """A model that cannot be changed and refuses unknown keys: the base class of configurations."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True, slots=True)
class Later:
    """Marks a field that earlier versions lack, as in `margin: Annotated[float, Later(0.0)] = 0.1`.

    A run that was recorded without the field resumes with `before`, and a hash of the settings leaves the
    field out while it has this value. See `tirjudge.storage.run_settings`.
    """

    before: Any
    """The value that behaves like all versions without the field. The default may differ."""
    hashed: bool = False
    """True if hashes contain the field whatever the value, since hashes had it before the recorded runs."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A native tool call, as the judge or an agent that is judged made it."""

    id: str
    """Given by the model's server; the result of the call repeats it."""
    name: str
    """The tool that is called."""
    arguments: str
    """Unparsed JSON text. The model wrote it, so it may be anything."""
    further: Annotated[Mapping[str, Any], Later({})] = field(default_factory=dict, repr=False, hash=False)
    """Further fields that the model's server gave the call, such as Gemini's signature of the thinking. They
    go back to the server with the call."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool that the `tool` protocol offers to the judge, or that was offered to an agent that is judged."""

    name: str
    description: str
    """The purpose of the tool, which the model reads before it calls the tool by its `name`."""
    parameters: Mapping[str, Any]
    """JSON schema of the arguments."""


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message of the conversation or the transcript that is judged, or of the judge's own prompt."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    """Empty where OpenAI's form has null, next to calls of tools."""
    tool_calls: tuple[ToolCall, ...] = ()
    """The calls of tools that an assistant's message makes."""
    tool_call_id: str = ""
    """The id of the call whose result a message of the role `tool` is."""
    name: str = ""
    """The name of the author, or of the tool; empty if it has none."""

    def __repr__(self) -> str:
        """Describe the message without empty fields, on which some seeds depend."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        shown = (f"{name}={value!r}" for name, value in given.items() if value or name == "content")
        return f"Message({', '.join(shown)})"


Response = str | tuple[Message, ...]
"""A response: a text, or the messages of a transcript."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """One thing that responses are judged by, apart from everything else."""

    text: str
    """A statement that a response fulfils or not, such as "names the year"."""
    weight: float = 1.0
    """Its share of the aggregate, 0 or more."""
    polarity: Literal["positive", "negative"] = "positive"
    """`positive`: fulfilling the criterion is good. `negative`: fulfilling it is bad."""
    must_have: bool = False
    """True if a response that does not satisfy it has an aggregate of 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeTask:
    """A prompt, its candidate responses and, when known, the index of the best response."""

    id: str
    """Unique in a run: seeds and random orders are drawn from it."""
    prompt: tuple[Message, ...]
    candidates: tuple[Response, ...]
    label: int | None = None
    """Index of the best response in `candidates`; None when unknown."""
    domain: str = ""
    """`safety`, `helpfulness`, `math`, ...: some rewards and prompts depend on it. Empty when unknown."""
    gold: Mapping[str, Any] = field(default_factory=dict)
    """Further ground truth for a reward: gold scores, a human checklist."""
    tags: tuple[str, ...] = ()
    """Free labels that result rows repeat; no prompt and no reward depends on them."""
    reference: str = ""
    """A reference answer that the judge is shown; empty without one."""
    criteria: tuple[Criterion, ...] = ()
    """Criteria for judging the responses; without criteria, the whole prompt is the standard. A prompt shows
    all criteria, and the judge engine by default asks about each criterion in a separate dialogue."""
    sources: tuple[str, ...] = ()
    """Name of the model or person behind each candidate, which no prompt shows; empty when unknown."""
    tools: tuple[ToolSpec, ...] = ()
    """The tools that were offered to whoever responded; empty when unknown."""
    files: tuple[Folder, ...] = ()
    """The files that each candidate left behind; empty if no candidate has files."""
    prompt_files: Folder = NO_FILES
    """The files that whoever responded was given."""

    def __post_init__(self) -> None:
        if self.files and len(self.files) != len(self.candidates):
            raise ValueError(f"{len(self.files)} folders of files for {len(self.candidates)} candidates")


@dataclass(frozen=True, slots=True)
class View:
    """The part of a task that one rollout sees: some candidates, in some order."""

    name: str
    """Unique within the task: `AB`, `BA`, `0`, ...; the advantage baseline is per (task, view)."""
    order: tuple[int, ...]
    """The candidate's index at each shown position: (1, 0) shows candidate 1 as Response A."""
    criterion: int | None = None
    """Index of the criterion that the rollout was about; None if it was about the whole task. Names of views
    are unique within a criterion."""


THINK = "<think>"
"""The tag with which a model, its chat template or a prefill opens the thinking."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The judge's input: messages, the start of its answer, stop strings and tools."""

    messages: tuple[Message, ...]
    prefill: str = ""
    """The start of the judge's answer, written for the model; it belongs to the prompt (mask 0). In a
    trajectory with token ids it begins with the thinking that the chat template opened, if it did."""
    stop: tuple[str, ...] = ()
    """Strings after which generation pauses so that the turn can be read."""
    tools: tuple[ToolSpec, ...] = ()
    """Tools offered as native calls; empty under the `fence` protocol and for text-only judges."""


class Finish(StrEnum):
    """The reason why a generator stopped."""

    END = "end"
    """The model ended its turn (end-of-sequence token)."""
    STOP = "stop"
    """A stop string of the prompt was generated."""
    LENGTH = "length"
    """`Sampling.max_tokens` or the end of the model's context was reached."""
    TOOL_CALL = "tool_call"
    UNKNOWN = "unknown"
    """The server gave a reason that nobody knows. Only a whole program or verdict is accepted then."""


@dataclass(frozen=True, slots=True)
class Usage:
    """`prompt_tokens` and `completion_tokens` of one or more requests, as the generator reported them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens that the provider had in its cache, which may cost less."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cached_tokens + other.cached_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The text, and if known the tokens, that a model wrote for one request."""

    text: str
    finish: Finish
    """Why the model stopped here."""
    finish_word: str = ""
    """The server's own word for UNKNOWN, in one line."""
    token_ids: tuple[int, ...] | None = None
    """The ids as sampled, including an end-of-sequence token; None if the endpoint does not return them."""
    logprobs: tuple[float, ...] | None = None
    """Natural logarithms, one per token id, under the distribution that was sampled from."""
    reasoning: str = ""
    """Thinking that the endpoint returned separately from the text."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Native calls of `run_python`, under the `tool` protocol."""
    further: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of a message with native calls, such as its thinking under the server's name for it.
    They go back to the server with the calls."""
    earlier: tuple[str, ...] = ()
    """The model's earlier turns, prefill included, which may have opened the thinking."""
    outputs: tuple[str, ...] = ()
    """The texts of the sandbox and the tools before this turn."""
    usage: Usage = Usage()
    """The tokens of this request."""
    queued_seconds: float = 0.0
    """Seconds that the request waited in a queue, as far as the generator knows."""


@dataclass(frozen=True, slots=True)
class RunCode:
    """A reading: the model asks for a program to be run, or calls another tool."""

    source: str
    """The program, or the arguments of the tool as the model wrote them: JSON, or anything else."""
    bindings: Mapping[str, Any] = field(default_factory=dict)
    """Variables of the program: the prompt and the responses of its view."""
    opened: bool = False
    """The model wrote the opening ```` ```output ```` fence itself."""
    call_id: str | None = None
    """Id of the native call; None under the `fence` protocol."""
    end: int | None = None
    """Offset in the turn's text where the request ends; None if unknown. Any text after it is an overhang."""
    exchanged: Sequence[Mapping[str, Any]] = ()
    """`bindings` with other responses, by default each response replaced by the next response of the view.
    The session reruns a successful program with each entry in turn, until the output changes."""
    tool: str = ""
    """Name of the tool; empty for a program."""
    fault: str = ""
    """The reason why the call cannot be made, which becomes the result of the call; else empty."""
    written: str = ""
    """The source as the judge wrote it, if it held look-alikes, which are turned back before it runs."""
    is_check: bool = False
    """True if `source` defines `check`, which `programs.check_harness` runs once for each response."""
    repairable: bool = False
    """True if the judge is asked for a corrected program where this one fails."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A reading: the answer of a view, in the candidate indices of the task."""

    choice: int | None = None
    """The preferred candidate; None for a tie and for a verdict that consists of scores alone."""
    scores: Mapping[int, float] = field(default_factory=dict)
    """Candidate index to score."""
    tie: bool = False
    """True if the judge said that no candidate is best."""
    parsed: Mapping[str, Any] = field(default_factory=dict)
    """Other parts of the answer as JSON values by name: a rubric, reasons; the choice ignores them."""
    criteria: tuple[tuple[Verdict, int], ...] = ()
    """The verdict on each criterion of a dialogue on several criteria, in their order, with the offset behind
    its answer in the text of the turn. The whole verdict has nothing else then."""
    contested: bool = field(default=False, compare=False)
    """True if the turn states another verdict as well."""


@dataclass(frozen=True, slots=True)
class Continue:
    """A reading: there is nothing to act on yet, and generation continues in the same turn."""


@dataclass(frozen=True, slots=True)
class Malformed:
    """A reading: the turn ended with neither a program nor a readable verdict, for a `reason`."""

    reason: str
    contested: bool = field(default=False, compare=False)
    """True if the turn states several verdicts, none of which counts."""


Reading = RunCode | Verdict | Continue | Malformed


@dataclass(frozen=True, slots=True)
class Refused:
    """The outcome of a program or a call that was requested but not made, for a `reason`."""

    reason: str


@dataclass(frozen=True, slots=True)
class Call:
    """One request to run a program, or to call another tool, and its outcome."""

    request: RunCode
    outcome: Execution | Refused
    """The answer of a tool has the form of an execution, see `tools.base.Tool`."""
    seed: int | None = None
    """The seed of the program's run; None for a refused program and for a record without a seed."""
    exchanged: Execution | None = None
    """The last run with variables of `RunCode.exchanged`; None if the program was not run again. A failure of
    the sandbox in it says nothing about the dialogue, which goes on."""


class Evidence(StrEnum):
    """The relation of a trajectory's last successful program, or of a tool's answer, to the responses."""

    MISSING = "missing"
    """No program was run."""
    FAILED = "failed"
    """Every program that was run ended with an error."""
    UNCHECKED = "unchecked"
    """The program ended well and was not run again with exchanged responses, or the sandbox failed in that
    run."""
    TIE = "tie"
    """The program prints the same for exchanged responses, so that its output cannot decide between them."""
    SEPARATES = "separates"
    """The program prints something else for exchanged responses, or ends with an error."""
    TOOL = "tool"
    """The verdict rests on a tool other than Python, whose answer came after every successful program."""


class By(StrEnum):
    """The author of a segment."""

    MODEL = "model"
    SANDBOX = "sandbox"


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A part of a trajectory with one author; the loss mask derives from `by` (1 for the model)."""

    by: By
    text: str
    """The text of the author; the prefill of a turn belongs to the prompt."""
    ids: tuple[int, ...] | None = None
    """Its token ids, exactly as sampled; None if the generator returns none."""
    logprobs: tuple[float, ...] | None = None
    """One per id for segments of the model; None for segments of the sandbox."""
    reasoning: str = ""
    """Thinking that the endpoint returned separately from the text."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Native calls that the model made in this segment."""
    further: Annotated[Mapping[str, Any], Later({})] = field(default_factory=dict)
    """Further fields of the message with these calls, as in `Completion`."""
    call_id: str | None = None
    """Id of the native call that a sandbox segment answers."""
    later: int = 0
    """Characters at the start of `text` that show a part of the task, see `base.LateText`."""


@dataclass(frozen=True, slots=True)
class Context:
    """The input of a generator: the prompt and all segments that followed."""

    prompt: Prompt
    segments: tuple[Segment, ...] = ()
    ids: tuple[int, ...] | None = None
    """Prompt and segments as token ids, exactly as sampled; None without an encoder."""


def model_turns(prompt: Prompt, segments: Iterable[Segment]) -> list[str]:
    """Return the model's turns as a format reads them: the first one begins with the prefill."""
    first, *others = [segment.text for segment in segments if segment.by is By.MODEL] or [""]
    return [prompt.prefill + first, *others]


class StopReason(StrEnum):
    """The reason why a trajectory ended.

    VERDICT: with a verdict. MALFORMED: a turn had neither a program nor a readable verdict. The budgets: the
    turns, tokens or CPU time were spent. SANDBOX_DOWN, GENERATOR_DOWN and PROMPT_TOO_LONG say nothing about
    the judge. ABSTAINED: the verdict was left open for its low confidence.
    """

    VERDICT = "verdict"
    MALFORMED = "malformed"
    TURN_BUDGET = "turn_budget"
    TOKEN_BUDGET = "token_budget"
    CPU_BUDGET = "cpu_budget"
    SANDBOX_DOWN = "sandbox_down"
    """The sandbox, or the server of a tool, failed. Unscored: excluded from the baseline and the loss, and
    sampled again."""
    GENERATOR_DOWN = "generator_down"
    """The generator failed. Unscored, and sampled again."""
    PROMPT_TOO_LONG = "prompt_too_long"
    """The prompt leaves no room in the model's context. Unscored, and not sampled again."""
    ABSTAINED = "abstained"
    """The verdict was left open for its low confidence: the end of a judgment, never of a trajectory."""

    @property
    def down(self) -> bool:
        """True if the sandbox or the generator failed, so that a retry may help."""
        return self in (StopReason.SANDBOX_DOWN, StopReason.GENERATOR_DOWN)

    @property
    def unscored(self) -> bool:
        """True if the trajectory says nothing about the judge."""
        return self.down or self is StopReason.PROMPT_TOO_LONG


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One rollout: one sample of one view, from the prompt to its end."""

    view: View
    sample: int
    prompt: Prompt
    prompt_ids: tuple[int, ...] | None
    """The prompt as token ids; None if the generator returns none."""
    segments: tuple[Segment, ...]
    """The segments after the prompt, by the model and the sandbox in turn."""
    calls: tuple[Call, ...]
    """Calls in order of request, including refused calls and calls whose sandbox failed."""
    stop: StopReason
    verdict: Verdict | None
    """None unless `stop` is VERDICT."""
    detail: str = ""
    """For any other stop than VERDICT, a description of the problem in one line."""
    usage: Usage = Usage()
    """The tokens of all requests together."""
    seconds: float = 0.0
    """Wall-clock time from the first request to the end."""
    contested: bool = False
    """True if the last turn states two different verdicts."""
    exposed: bool = False
    """True if the format's `boundary` is off, and a shown text holds a token of the format."""


@dataclass(frozen=True, slots=True)
class Episode:
    """All views of one sample of a task. A group is a sequence of episodes of one task."""

    task: JudgeTask
    sample: int
    trajectories: tuple[Trajectory, ...]
    """One per view, in the order of `Environment.views`."""


@dataclass(frozen=True, slots=True)
class Reward:
    """The reward of a trajectory: its `total`, and the named `parts` that it was computed from."""

    total: float
    parts: Mapping[str, float]
    right: bool = field(kw_only=True)
    """True if the verdict is right by the label alone."""
    teaches: bool = field(kw_only=True)
    """True if the verdict is rewarded as right: by the label and, where the format asks for them, by evidence
    and by the other order. The group filter compares it, and held-out accuracy counts it."""
    settled: bool = False
    """True if no verdict could have changed it after the trajectory's programs. If no further program was
    allowed either, a trainer may leave the verdict out of the loss, which does not change the expected
    gradient and removes noise from it. Otherwise the turn could have been another program."""
    core: float | None = None
    """The total without terms that a recipe adds to the format's terms; None without added terms."""

    def full(self, least: float) -> bool:
        """Return True if the verdict teaches and the format's own terms give at least this reward.

        Supervised training learns from such trajectories, whatever terms a recipe adds.
        """
        return self.teaches and (self.total if self.core is None else self.core) >= least

    @property
    def metrics(self) -> dict[str, float]:
        """The parts, and `right` and `teaches` as 0 or 1, for whatever records numbers by name."""
        return {"right": float(self.right), "teaches": float(self.teaches), **self.parts}


@dataclass(frozen=True, slots=True)
class Unscored:
    """No reward, for a `reason`: the sandbox or the generator failed, or the task has no label."""

    reason: str


Score = Reward | Unscored


@dataclass(frozen=True, slots=True)
class Question:
    """A question to another model, a MetaJudge, whose answer a reward depends on."""

    key: str
    """A function of the question, so that a cached answer can be reused."""
    prompt: Prompt
    """The question to the other model."""
    readable: Callable[[str], bool] = field(default=lambda answer: True, compare=False)
    """True for an answer that the reward can read; the question is asked again otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of one trajectory.

    No limit is a wall-clock time: otherwise the load of the machine would influence what the policy
    learns.
    """

    turns: int = 8
    """Maximum number of turns of the model."""
    tool_calls: int = 3
    """Maximum number of programs and calls of other tools together; a further one is refused, and the reply
    says so (TIR section 4.2)."""
    tokens: int = 8192
    """Maximum size of the response: text of the model and the sandbox, without the prompt (TIR section 5.1).

    The count is exact with token ids. Without ids it is the usage that the endpoint reports, and the
    sandbox's part is not counted.
    """
    cpu_seconds: float = 30.0
    """CPU time of all programs together; once it is spent, a request for another one ends the dialogue.

    Second runs with exchanged responses do not count, since the judge did not ask for them.
    """
    late_text: bool = True
    """Count a text that is shown late, as the responses are in checks; a prompt is never counted."""

    def __post_init__(self) -> None:
        if self.turns < 1 or self.tokens < 1 or self.tool_calls < 0 or self.cpu_seconds <= 0:
            raise ValueError(f"a budget needs at least one turn, one token and some CPU time, not {self}")


def derive_seed(*parts: int | str) -> int:
    """Hash the parts to a seed from 0 to 2**32 - 1, equal on every machine and in every version."""
    # The type keeps 1 and "1" apart, and the separator ("a", "bc") and ("ab", "c").
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return int.from_bytes(digest, "big")
