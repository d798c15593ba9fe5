"""One dialogue between a judge and the sandbox, driven by the code that owns the model."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from tirjudge_environments.base import OUTPUT_PLACE, Environment, LateText, ToolEnvironment
from tirjudge_environments.boundary import is_exposed, marks_of, replaced_marks, shown_later, shown_prompt
from tirjudge_environments.messages import response_data
from tirjudge_environments.programs.check_harness import completed
from tirjudge_environments.programs.evidence import ended_well
from tirjudge_environments.quoting import with_look_alikes, without_look_alikes
from tirjudge_environments.tokenization import Encoder
from tirjudge_environments.tools.base import Tool, called
from tirjudge_environments.tools.python import PythonTool
from tirjudge_environments.types import (
    Budget,
    By,
    Call,
    Completion,
    Context,
    Continue,
    Episode,
    Finish,
    JudgeTask,
    Malformed,
    Prompt,
    Reading,
    Refused,
    RunCode,
    Segment,
    StopReason,
    Trajectory,
    Usage,
    Verdict,
    View,
    derive_seed,
    model_turns,
)
from tirjudge_sandbox import Execution, Limits, Sandbox, Status

_ATTEMPTS = 2
"""Maximum number of attempts to run a program, or to call a tool, while what runs it fails."""
_FAILED_ANSWERS = 2
"""Answers in a row without anything whole and with an unknown end, after which the server is down."""
_PAUSES = {True: 3, False: 16}
"""Most pauses of a dialogue by whether the dialogue is text only; after a pause the model continues the turn.
A server of texts rereads the whole dialogue after every pause."""
_VERDICT_TOKENS = 256
"""Tokens of counts, chat template and verdict that are kept back with a text that is shown later."""
QUESTION = (
    "Your answer does not contain the verdict in the form that was asked for. Write the verdict alone, in "
    "exactly that form, with its tag and without anything else."
)
"""The beginning of the turn that asks for the verdict alone, see `JudgeSession`."""
GIVE_VERDICT = "Give your verdict now, without a further program."
"""The end of a refusal of a program for which there is no budget left."""


class JudgeSession:
    """The state of one dialogue: prompt, segments, programs and budget.

    The caller generates at most `remaining_tokens` from `context` and passes the completion to `step`, until
    `done`; then `trajectory` holds the whole dialogue.

    With an encoder, every completion must carry its token ids. They are kept as sampled, including an
    end-of-sequence token in the middle of the dialogue, and are never re-encoded.

    Without ids the dialogue is text only. Text that an endpoint wrote after a program is dropped before the
    output is appended. An answer that stopped at another fence than a program's is asked for once more, and
    `context` has no stop strings from then on: an endpoint cannot go on in the middle of its own answer.
    """

    def __init__(
        self,
        environment: Environment,
        task: JudgeTask,
        view: View,
        sandbox: Sandbox,
        *,
        tools: Iterable[Tool] = (),
        encoder: Encoder | None = None,
        budget: Budget = Budget(),
        limits: Limits = Limits(),
        sample: int = 0,
        seed: int = 0,
        ask_for_verdict: bool = False,
    ) -> None:
        """Start a dialogue; `limits` apply to each program, which is seeded by `seed` and its number.

        `tools` are the tools besides Python that the format offers (see `registry.with_tools`). With
        `ask_for_verdict`, a text-only dialogue whose last turn has no readable verdict goes on with one more
        turn, which asks for the verdict alone.

        Raises ValueError for native tool calls with an encoder, since only an endpoint can render those, and
        for a prompt that the encoder cannot render.
        """
        self.prompt: Prompt = shown_prompt(environment, task, view)
        """With an encoder, its prefill begins with the thinking that the chat template opened, if it did."""
        if encoder is not None and self.prompt.tools:
            raise ValueError(
                "native tool calls need an endpoint that speaks them; use the `fence` protocol here"
            )
        self._environment, self._task, self._view = environment, task, view
        self._late = environment if isinstance(environment, LateText) else None
        self._exposed = is_exposed(environment, task, view)
        self._tools: dict[str, Tool] = {tool.spec.name: tool for tool in tools}
        self._python, self._encoder, self._budget = PythonTool(sandbox, limits), encoder, budget
        self._sample, self._seed = sample, seed
        self._responses: dict[str, Any] = {
            "responses": [response_data(task.candidates[index]) for index in view.order]
        }
        if task.files:
            self._responses["files"] = [task.files[index] for index in view.order]
        self._prompt_ids: tuple[int, ...] | None = None
        if encoder is not None:
            # The reader must see thinking that the template opened: answers inside do not count.
            self.prompt = replace(self.prompt, prefill=encoder.opening(self.prompt))
            self._prompt_ids = tuple(encoder.prompt(self.prompt))
        self._later = shown_later(environment, task, view)
        self._reserved = self._later_tokens()
        if not budget.late_text:
            self._budget = budget = replace(budget, tokens=budget.tokens + self._reserved)
        self._segments: list[Segment] = []
        self._calls: list[Call] = []
        self._turns = 0
        self._used_tokens = 0
        self._contested = False
        self._may_ask = ask_for_verdict
        self._asked = False
        self._answers = _EndpointAnswers()
        self._pauses = self._added = 0
        self._usage = Usage()
        self._started = time.monotonic()
        self._trajectory: Trajectory | None = None
        if self._reserved >= budget.tokens:
            self.fail(
                StopReason.TOKEN_BUDGET,
                f"the responses need {self._reserved} tokens, and the budget is {budget.tokens}",
            )

    @property
    def done(self) -> bool:
        """True once the dialogue has ended; `trajectory` then says how."""
        return self._trajectory is not None

    @property
    def trajectory(self) -> Trajectory:
        """The finished dialogue; raises RuntimeError before it is done."""
        if self._trajectory is None:
            raise RuntimeError("the dialogue has not ended yet")
        return self._trajectory

    @property
    def context(self) -> Context:
        """The input of the next request to the generator."""
        ids = self._prompt_ids
        for segment in self._segments:
            ids = ids + segment.ids if ids is not None and segment.ids is not None else None
        prompt = self.prompt if self._answers.stops else replace(self.prompt, stop=())
        return Context(prompt, tuple(self._segments), ids)

    @property
    def calls(self) -> tuple[Call, ...]:
        """The programs and calls so far, refused ones included."""
        return tuple(self._calls)

    @property
    def remaining_tokens(self) -> int:
        """The tokens left in the budget, an upper bound for the next completion.

        Tokens of a text that is shown later, and of the verdict after it, are kept back until then.
        """
        return max(0, self._budget.tokens - self._used_tokens - self._reserved)

    async def step(self, completion: Completion) -> tuple[Segment, ...]:
        """Append a completion, run what it asks for, and return the segments of the sandbox and the tools.

        Nothing is returned if the turn continues or the dialogue has ended; `done` distinguishes the two.
        Raises RuntimeError once the dialogue is done, and ValueError for a completion without the token ids
        that an encoder needs.
        """
        if self.done:
            raise RuntimeError("the dialogue has ended")
        before = tuple(self._segments), self._turns, self._used_tokens
        begins = not (self._segments and self._segments[-1].by is By.MODEL)
        completion = self._answers.completed(completion, begins)
        if begins and _is_empty(completion):
            # Its tokens were spent all the same.
            self._usage += completion.usage
            turn, readings, text_only = completion, [], True
        else:
            turn = self._take(completion)
            readings, text_only = self._readings(turn), self._segments[-1].ids is None
        if self._answers.asks_again(completion, readings, text_only and self.remaining_tokens > 0):
            segments, self._turns, self._used_tokens = before
            self._segments = list(segments)
            return ()
        if failure := self._answers.failure(completion, readings):
            self.fail(*failure)
            return ()
        appended: list[Segment] = []
        for number, reading in enumerate(readings):
            if number and self._later:
                # The output of an earlier call of this turn may have shown the text that comes later.
                reading = self._readings(replace(turn, outputs=self._outputs()))[number]
            segment = await self._act(reading, turn)
            if segment is None:
                break
            self._segments.append(segment)
            appended.append(segment)
            if verdict := self._settled():
                self._end(StopReason.VERDICT, verdict, "")
                break
        return tuple(appended)

    def fail(self, stop: StopReason, detail: str) -> None:
        """End the dialogue without a verdict, for example because the generator failed."""
        self._end(stop, None, detail)

    def _later_tokens(self) -> int:
        if not self._later:
            return 0
        size = len(self._encoder.text(self._later)) if self._encoder else len(self._later) // 4 + 1
        return size + _VERDICT_TOKENS

    def _take(self, completion: Completion) -> Completion:
        """Append a completion to the open turn of the model, and return the whole turn."""
        if self._encoder is not None and completion.token_ids is None:
            raise ValueError("a session with an encoder needs the token ids of every completion")
        self._added = len(completion.text)
        if self._segments and self._segments[-1].by is By.MODEL:
            written = _joined(self._segments.pop(), completion)
        else:
            self._turns += 1
            written = _joined(None, completion)
        # Decoding the ids of the whole turn joins characters that were split between two completions.
        if self._encoder is not None and written.ids is not None:
            written = replace(written, text=self._encoder.decode(written.ids))
        self._segments.append(written)
        self._usage += completion.usage
        self._used_tokens += _size(completion)
        *earlier, turn = model_turns(self.prompt, self._segments)
        return replace(completion, text=turn, earlier=tuple(earlier), outputs=self._outputs())

    def _outputs(self) -> tuple[str, ...]:
        return tuple(segment.text for segment in self._segments if segment.by is By.SANDBOX)

    def _readings(self, turn: Completion) -> list[Reading]:
        """Return one reading, or one per native call if there are several, since each needs an answer."""
        single = [replace(turn, tool_calls=(call,)) for call in turn.tool_calls]
        return [self._environment.read(self._task, self._view, part) for part in single or [turn]]

    async def _act(self, reading: Reading, turn: Completion) -> Segment | None:
        if isinstance(reading, RunCode) and self._asked:
            reading = Malformed("a program in place of the verdict that was asked for")
        if isinstance(reading, RunCode):
            self._drop_overhang(reading)
            return await self._answer(self._written_back(reading))
        self._contested = not isinstance(reading, Continue) and reading.contested
        if isinstance(reading, Verdict):
            self._end(StopReason.VERDICT, reading, "")
        elif isinstance(reading, Malformed):
            if self._asks_for_verdict():
                return Segment(by=By.SANDBOX, text=self._question())
            self.fail(StopReason.MALFORMED, reading.reason)
        elif turn.finish is Finish.LENGTH or not self.remaining_tokens:
            self.fail(StopReason.TOKEN_BUDGET, "the model's turn was cut before a verdict")
        else:
            self._pause(turn)
        return None

    def _asks_for_verdict(self) -> bool:
        """Return True, once, if one more turn may ask for the verdict alone."""
        text_only = self._segments[-1].ids is None
        if not (self._may_ask and text_only and not self._asked and self._spent() is None):
            return False
        self._asked = True
        return True

    def _question(self) -> str:
        """Return `QUESTION` with the answers that the format allows, or the form that its card describes."""
        card, told = getattr(self._environment, "card", None), ""
        if allowed := getattr(self._environment, "allowed_answers", None):
            told = allowed(self._task, self._view)
        elif card is not None:
            told = card.answer.replace("`", "")
        return f"{QUESTION} The form: {told}" if told else QUESTION

    def _pause(self, turn: Completion) -> None:
        """Let the model continue the turn; end the dialogue after a repetition or too many pauses."""
        self._pauses += 1
        written, text_only = self._segments[-1], self._segments[-1].ids is None
        added = turn.text[len(turn.text) - self._added :].strip()
        earlier = written.text[: len(written.text) - self._added]
        if text_only and added and added in earlier:
            self.fail(StopReason.MALFORMED, "the model repeats its text in place of a program or a verdict")
        elif self._pauses > _PAUSES[text_only]:
            self.fail(
                StopReason.MALFORMED, f"the model paused {self._pauses} times without a program or a verdict"
            )

    def _drop_overhang(self, request: RunCode) -> None:
        written = self._segments[-1]
        if written.by is By.MODEL and written.ids is None and request.end is not None:
            prefill = len(self.prompt.prefill) if len(self._segments) == 1 else 0
            self._segments[-1] = replace(written, text=written.text[: request.end - prefill])

    def _written_back(self, request: RunCode) -> RunCode:
        """Return a request whose source has the tokens that the judge copied as look-alikes."""
        source = without_look_alikes(request.source, replaced_marks(self._environment))
        changed = source != request.source
        return replace(request, source=source, written=request.source) if changed else request

    async def _answer(self, request: RunCode) -> Segment | None:
        """Run or refuse a program; return None if that ended the dialogue."""
        spent = self._spent()
        if spent is not None:
            self._calls.append(Call(request, Refused(spent[1])))
            self.fail(*spent)
            return None
        call = await self._call(request)
        self._calls.append(call)
        outcome = call.outcome
        if isinstance(outcome, Execution) and outcome.status is Status.SANDBOX_FAILED:
            self.fail(StopReason.SANDBOX_DOWN, outcome.detail or "the sandbox failed")
            return None
        segment = self._shown(request, outcome)
        size = len(segment.ids or ())
        if size >= self.remaining_tokens and not self._settled():
            self.fail(StopReason.TOKEN_BUDGET, "a program's output left no token for the model")
            return None
        self._used_tokens += size
        return segment

    def _settled(self) -> Verdict | None:
        return self._late.settled(self._view, self._calls) if self._late else None

    def _spent(self) -> tuple[StopReason, str] | None:
        """Return the budget that forbids another turn after this one, if any."""
        if self._used_tokens >= self._budget.tokens:
            return StopReason.TOKEN_BUDGET, f"the budget of {self._budget.tokens} tokens is spent"
        if self._turns >= self._budget.turns:
            return StopReason.TURN_BUDGET, f"the budget of {self._budget.turns} turns is spent"
        cpu = sum(call.outcome.cpu_seconds for call in self._calls if isinstance(call.outcome, Execution))
        if cpu >= self._budget.cpu_seconds:
            return (
                StopReason.CPU_BUDGET,
                f"the programs' {self._budget.cpu_seconds:g} s of CPU time are spent",
            )
        return None

    async def _call(self, request: RunCode) -> Call:
        """Run a program or call another tool, unless the budget of both is spent."""
        number = len(self._calls)
        if number >= self._budget.tool_calls:
            spent = f"The budget of {self._budget.tool_calls} programs is spent: this one was not run."
            return Call(request, Refused(f"{spent} {GIVE_VERDICT}"))
        if request.fault:
            return Call(request, Refused(request.fault))
        seed = derive_seed(self._seed, number)
        outcome = await self._run(request, request.bindings, seed)
        exchanged = None
        for bindings in request.exchanged if outcome.status is Status.OK else ():
            # With the same seed, so that only the exchange can change the output.
            exchanged = await self._run(request, bindings, seed)
            if ended_well(Call(request, exchanged)) and exchanged.stdout != outcome.stdout:
                break
        return Call(request, outcome, seed, exchanged)

    async def _run(self, request: RunCode, bindings: Mapping[str, Any], seed: int) -> Execution:
        if request.tool and request.tool not in self._tools:
            raise TypeError(f"the format offers the tool {request.tool}, which the session was not given")
        # A sandbox failure is no property of the program, so the run is retried before the rollout is lost.
        for _ in range(_ATTEMPTS):
            if request.tool:
                tool = self._tools[request.tool]
                outcome = await called(tool, request.source, bindings=self._responses, seed=seed)
            else:
                code = completed(request.source) if request.is_check else request.source
                outcome = await self._python.call({"code": code}, bindings=bindings, seed=seed)
            if outcome.status is not Status.SANDBOX_FAILED:
                break
        return outcome

    def _shown(self, request: RunCode, outcome: Execution | Refused) -> Segment:
        if not isinstance(self._environment, ToolEnvironment):
            raise TypeError(
                f"{type(self._environment).__name__} asked for a program and has no `show`: a format whose "
                "readings are RunCode must be a ToolEnvironment"
            )
        text = self._environment.show(request, outcome)
        replaced = with_look_alikes(text, marks_of(self._environment))
        if replaced_marks(self._environment):
            text = replaced
        self._exposed |= text != replaced
        later = ""
        if self._late and self._late.shows_later(request, outcome) and not self._settled():
            later, _, question = self._later.rpartition(OUTPUT_PLACE)
            text, self._reserved = f"{later}{text}{question}\n", 0
        # An output fence must begin a line, also if the model stopped in the middle of one.
        elif request.call_id is None and not self._segments[-1].text.endswith("\n"):
            text = "\n" + text
        ids = None
        if self._encoder is not None:
            # An untrained model reads a request for another answer only as a turn of the user.
            asks, before = later or request.repairable, self._segments[-1].ids or ()
            ids = tuple(self._encoder.turn(text, before) if asks else self._encoder.text(text))
        return Segment(by=By.SANDBOX, text=text, ids=ids, call_id=request.call_id, later=len(later))

    def _end(self, stop: StopReason, verdict: Verdict | None, detail: str) -> None:
        self._trajectory = Trajectory(
            view=self._view,
            sample=self._sample,
            prompt=self.prompt,
            prompt_ids=self._prompt_ids,
            segments=tuple(self._segments),
            calls=tuple(self._calls),
            stop=stop,
            verdict=verdict,
            detail=detail,
            usage=self._usage,
            seconds=time.monotonic() - self._started,
            contested=self._contested,
            exposed=self._exposed,
        )


@dataclass(slots=True)
class _EndpointAnswers:
    """The reading of answers that endpoints end for an unknown reason or at an odd place, or leave empty."""

    stops: bool = True
    """False once the model is asked to write its turns whole, without stop strings."""
    _set_aside: str | None = None
    """A text that stopped at a fence, kept in case the model writes nothing when it is asked again."""
    _failed: int = 0
    """Answers in a row without anything whole and with an unknown end."""

    def completed(self, completion: Completion, begins: bool) -> Completion:
        """Return a completion with the text that was set aside, and with the end that the session reads."""
        if _is_empty(completion) and (self._set_aside is not None or not begins):
            # The model had nothing to add, so that its turn ends here.
            finish = Finish.LENGTH if completion.finish is Finish.LENGTH else Finish.END
            return replace(completion, text=self._set_aside or "", finish=finish)
        if completion.finish is Finish.STOP and not self.stops:
            return replace(completion, finish=Finish.END)
        return completion

    def asks_again(self, completion: Completion, readings: Sequence[Reading], may_stop: bool) -> bool:
        """Return True if a completion is dropped, so that the model is asked for it again.

        A completion that stopped at another fence than a program's is dropped if `may_stop` is true.
        """
        whole = readings and all(isinstance(reading, RunCode | Verdict) for reading in readings)
        if completion.finish is Finish.UNKNOWN and not whole:
            self._failed += 1
            return self._failed < _FAILED_ANSWERS
        stopped = self.stops and may_stop and completion.finish is Finish.STOP
        if stopped and any(isinstance(reading, Continue) for reading in readings):
            self.stops, self._set_aside = False, completion.text
            return True
        self._failed, self._set_aside = 0, None
        return False

    def failure(self, completion: Completion, readings: Sequence[Reading]) -> tuple[StopReason, str] | None:
        """Return why a completion that is not asked for again ends the dialogue unread, or None."""
        if self._failed:
            word = completion.finish_word or "nothing"
            reason = f"the answer ended for an unknown reason ({word})"
            return StopReason.GENERATOR_DOWN, f"{reason}, and holds neither a whole program nor a verdict"
        if readings:
            return None
        stop = StopReason.TOKEN_BUDGET if completion.finish is Finish.LENGTH else StopReason.MALFORMED
        return (
            stop,
            f"the model wrote {'only hidden thinking' if completion.reasoning.strip() else 'nothing'}",
        )


def _is_empty(completion: Completion) -> bool:
    return not (completion.text or completion.token_ids or completion.tool_calls)


def is_question(segment: Segment) -> bool:
    """Return True for the turn that asked for the verdict alone; a tool may answer with such a text."""
    return segment.by is By.SANDBOX and segment.call_id is None and segment.text.startswith(QUESTION)


def strict(episode: Episode) -> Episode:
    """Return the episode as it would be if no dialogue had asked for the verdict alone."""
    trajectories = tuple(
        replace(one, stop=StopReason.MALFORMED, verdict=None, detail="no verdict in the form asked for")
        if one.stop is StopReason.VERDICT and any(map(is_question, one.segments))
        else one
        for one in episode.trajectories
    )
    return replace(episode, trajectories=trajectories)


def _size(completion: Completion) -> int:
    """Count tokens from the ids, else from the usage, else as one per four characters."""
    if completion.token_ids is not None:
        return len(completion.token_ids)
    return completion.usage.completion_tokens or len(completion.text) // 4 + 1


def _joined(before: Segment | None, completion: Completion) -> Segment:
    """Append a completion to a segment; ids and logprobs are kept only if every part has them."""
    before = before or Segment(by=By.MODEL, text="", ids=(), logprobs=())
    has_ids = before.ids is not None and completion.token_ids is not None
    has_logprobs = before.logprobs is not None and completion.logprobs is not None
    return Segment(
        by=By.MODEL,
        text=before.text + completion.text,
        ids=(before.ids or ()) + (completion.token_ids or ()) if has_ids else None,
        logprobs=(before.logprobs or ()) + (completion.logprobs or ()) if has_logprobs else None,
        reasoning=before.reasoning + completion.reasoning,
        tool_calls=before.tool_calls + completion.tool_calls,
        further={**before.further, **completion.further},
    )


@dataclass(frozen=True, slots=True)
class Transcript:
    """A trajectory as aligned token ids, mask and logprobs, for trainers; without torch.

    Ids are exactly as sampled, and the three completion fields have the same length.
    """

    prompt_ids: tuple[int, ...]
    """The ids of the prompt, its prefill included."""
    completion_ids: tuple[int, ...]
    """The ids of the model and the sandbox, in order."""
    mask: tuple[int, ...]
    """1 where the model wrote, 0 where the sandbox did."""
    logprobs: tuple[float, ...] | None
    """Natural logarithms, 0.0 where the sandbox wrote; None if a turn has none."""

    @classmethod
    def of(cls, trajectory: Trajectory) -> Self:
        """Convert a trajectory; raises ValueError if its generator returned no token ids."""
        ids: list[int] = []
        mask: list[int] = []
        logprobs: list[float] | None = []
        for segment in trajectory.segments:
            if segment.ids is None:
                raise ValueError("this trajectory has no token ids: its generator speaks text only")
            ids += segment.ids
            by_model = segment.by is By.MODEL
            mask += [int(by_model)] * len(segment.ids)
            if by_model and segment.logprobs is None:
                logprobs = None
            elif logprobs is not None:
                logprobs += segment.logprobs if by_model and segment.logprobs else [0.0] * len(segment.ids)
        if trajectory.prompt_ids is None:
            raise ValueError("this trajectory has no prompt ids: its generator speaks text only")
        return cls(
            trajectory.prompt_ids, tuple(ids), tuple(mask), None if logprobs is None else tuple(logprobs)
        )
