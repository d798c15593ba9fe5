"""Dialogues inside a framework: rows and rewards of single views, messages or tool calls, and a sandbox."""

from __future__ import annotations

import asyncio
import atexit
import json
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from inspect import Parameter, Signature
from keyword import iskeyword
from typing import Any, TypeVar

from pydantic import TypeAdapter

from tirjudge_environments.adapters.settings import JudgeSettings
from tirjudge_environments.base import Environment, LateText
from tirjudge_environments.boundary import shown_prompt
from tirjudge_environments.messages import whole_text
from tirjudge_environments.programs.recording import RecordingSandbox, ReplaySandbox
from tirjudge_environments.quoting import quote_control_tokens
from tirjudge_environments.registry import with_tools
from tirjudge_environments.session import JudgeSession
from tirjudge_environments.tasks import Columns, read_task
from tirjudge_environments.tokenization import without_surrogates
from tirjudge_environments.tools import open_tools
from tirjudge_environments.tools.base import Tool
from tirjudge_environments.tools.python import RUN_PYTHON
from tirjudge_environments.types import (
    Completion,
    Episode,
    Finish,
    JudgeTask,
    Reward,
    Score,
    StopReason,
    ToolCall,
    ToolSpec,
    Trajectory,
    Unscored,
    View,
    derive_seed,
)
from tirjudge_sandbox import Execution, Program, Sandbox, open_sandbox
from tirjudge_sandbox.blocking import EventLoopThread, Work

T = TypeVar("T")

_open: dict[str, SandboxThread] = {}
_opening = threading.Lock()


class SandboxThread:
    """A sandbox and further tools in a thread, opened at first use and shared by all dialogues with them.

    It is closed when Python exits, or by `close_all`.
    """

    def __init__(self, settings: JudgeSettings) -> None:
        self._thread, self._stack = EventLoopThread("tirjudge-sandbox"), AsyncExitStack()
        self.sandbox: Sandbox
        self.tools: tuple[Tool, ...]
        self.run(self._enter(settings))

    @classmethod
    def shared(cls, settings: JudgeSettings) -> SandboxThread:
        """Return the shared sandbox and tools for these settings.

        Raises what `open_sandbox` raises, and SandboxUnavailable if the sandbox or a tool cannot be opened.
        """
        tools = settings.tools.model_dump()
        key = json.dumps([settings.sandbox, dict(settings.sandbox_options), tools], sort_keys=True)
        with _opening:
            if key not in _open:
                _open[key] = cls(settings)
            return _open[key]

    @classmethod
    def close_all(cls) -> None:
        """Close the shared sandboxes and their processes; the next dialogue opens a new one."""
        with _opening:
            while _open:
                _open.popitem()[1].close()

    def run(self, work: Work[T]) -> T:
        """Run a coroutine on the sandbox's loop and wait for it in the calling thread."""
        return self._thread.run(work)

    async def awaited(self, work: Work[T]) -> T:
        """Run a coroutine on the sandbox's loop and await it; cancellation cancels the coroutine."""
        return await asyncio.wrap_future(self._thread.submit(work))

    def close(self) -> None:
        self.run(self._stack.aclose())
        self._thread.close()

    async def _enter(self, settings: JudgeSettings) -> None:
        async with AsyncExitStack() as stack:
            sandbox = open_sandbox(settings.sandbox, **settings.sandbox_options)
            self.sandbox = await stack.enter_async_context(sandbox)
            self.tools = await stack.enter_async_context(open_tools(settings.tools, self.sandbox))
            # Only now, so that a tool that cannot be opened closes the sandbox too.
            self._stack = stack.pop_all()


atexit.register(SandboxThread.close_all)


VIEW_COLUMN = "view"
"""The column that names the view of a row, for tasks with several views."""
TASK_COLUMN = "task"
"""The column with a task as JSON, which may take the place of the columns of a judge's row: Parquet gives all
rows of a column the same fields, and tasks have different ones."""
VERL_MANAGER = "tirjudge_environments.adapters.verl_views.JudgeLoopManager"
"""verl's manager of agent loops for a judge with linked views."""
_TASKS = TypeAdapter(JudgeTask)

_WHO_CAN = (
    "use our own trainer (`tirjudge train`), or TRL with the rollout_func "
    "`tirjudge_training.rl.trl_rollout.JudgeRolloutFunc`, or verl by `tirjudge launch verl`"
)


class LinkedViews(ValueError):
    """The reward of this judge needs several rollouts; the message names the trainers that support it."""


def write_task(task: JudgeTask) -> str:
    """Return a task as JSON, for the column `task` of a row, see `without_surrogates`."""
    return without_surrogates(json.dumps(_TASKS.dump_python(task, mode="json"), ensure_ascii=False))


def read_stored_task(text: str) -> JudgeTask:
    """Return the task that `write_task` wrote; raises ValueError for anything else."""
    return _TASKS.validate_json(text)


def read_row(row: Mapping[str, Any], columns: Columns) -> JudgeTask:
    """Return the task of a framework's row; raises RowError.

    A row without an id is named by its texts: the order in which its responses are shown is drawn from the
    id, and rows of the same name would all be shown in the same order.
    """
    task = read_task(row, default_id="", columns=columns)
    if task.id:
        return task
    files = [folder.digest for folder in (*task.files, task.prompt_files) if folder.files]
    return replace(task, id=f"{derive_seed(*map(whole_text, (task.prompt, *task.candidates)), *files):08x}")


def row_view(environment: Environment, task: JudgeTask, row: Mapping[str, Any], framework: str) -> View:
    """Return the view of a row.

    Raises LinkedViews for a judge whose reward compares several views, since the reward of a single one would
    be wrong. Raises ValueError if the task has several views and the row does not name one in its column
    `view`.
    """
    views = environment.views(task)
    if environment.linked:
        raise LinkedViews(
            f"this judge's reward links the views of a task, and {framework} scores one rollout at a time: "
            + _WHO_CAN
        )
    require_one_answer(environment, task, framework)
    named = {view.name: view for view in views}
    if len(views) == 1:
        return views[0]
    if row.get(VIEW_COLUMN) not in named:
        raise ValueError(
            f"task {task.id!r} has the views {', '.join(named)}: give one row per view, "
            f"with its name in the column `{VIEW_COLUMN}`"
        )
    return named[str(row[VIEW_COLUMN])]


def require_one_answer(environment: Environment, task: JudgeTask, framework: str) -> None:
    """Raise ValueError for a dialogue with several answers, since a reward is for one."""
    if getattr(environment, "per_criterion", False) and len(task.criteria) > 1:
        raise ValueError(
            f"task {task.id!r} has {len(task.criteria)} criteria, and with per_criterion an answer to each, "
            f"while {framework} rewards one: leave per_criterion out, or give one row for each criterion"
        )


def score_alone(environment: Environment, task: JudgeTask, trajectory: Trajectory) -> Score:
    """Score one rollout; Unscored if the reward needs the answers of another model."""
    return score_together(environment, task, (trajectory,))[0]


def score_together(
    environment: Environment, task: JudgeTask, trajectories: Sequence[Trajectory]
) -> tuple[Score, ...]:
    """Score one rollout of each view of a task; Unscored if the reward needs the answers of another model."""
    group = [Episode(task, trajectories[0].sample, tuple(trajectories))]
    if environment.questions(group):
        reason = f"the reward needs the answers of another model, and adapters ask none: {_WHO_CAN}"
        return (Unscored(reason),) * len(trajectories)
    return environment.score(group, {})[0]


def reward_of(score: Score, task: JudgeTask) -> Reward:
    """Return the reward, for frameworks without unscored rollouts; raises RuntimeError for an Unscored."""
    if isinstance(score, Unscored):
        raise RuntimeError(f"task {task.id!r} cannot be scored: {score.reason}")
    return score


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to one turn of the model."""

    text: str
    """The program's output; empty if no program ran."""
    score: Score | None
    """None until the dialogue has ended."""
    stop: StopReason | None
    """The reason why it ended; None until then."""

    @property
    def done(self) -> bool:
        return self.score is not None

    @property
    def messages(self) -> list[dict[str, str]]:
        """The text as the next message; empty without one."""
        return [{"role": "user", "content": self.text}] if self.text else []


class ChatDialogue:
    """A row's dialogue under the `fence` protocol, with outputs as separate messages.

    The framework's sampling must stop at `stop`. Without token ids the session drops text that the model
    wrote after a program, but the framework has already kept it.
    """

    def __init__(self, settings: JudgeSettings, row: Mapping[str, Any], *, framework: str) -> None:
        """Start a dialogue for a row.

        Raises RowError for a bad row, LinkedViews for a judge whose reward needs several rollouts, and
        ValueError for a judge with a prefill or native tools.
        """
        self.task = read_row(row, settings.columns)
        self._thread = SandboxThread.shared(settings)
        self._environment = with_tools(settings.environment, self._thread.tools)
        view = row_view(self._environment, self.task, row, framework)
        self._session = JudgeSession(
            self._environment,
            self.task,
            view,
            self._thread.sandbox,
            tools=self._thread.tools,
            budget=settings.budget,
            limits=settings.limits,
            seed=settings.dialogue_seed(self.task, view),
        )
        prompt = self._session.prompt
        if prompt.prefill or prompt.tools:
            raise ValueError(
                f"{framework} passes only text to its environments: this judge "
                + ("has a prefill" if prompt.prefill else "needs the `fence` protocol")
            )
        self.stop = prompt.stop

    @property
    def messages(self) -> list[dict[str, str]]:
        """The judge's prompt as chat messages, which the framework encodes: control tokens are quoted."""
        return [
            {"role": message.role, "content": quote_control_tokens(message.content)}
            for message in self._session.prompt.messages
        ]

    def step(self, text: str) -> Reply:
        """Process a turn and wait for its program; raises RuntimeError once the dialogue is done."""
        paused = text.endswith(self.stop) if self.stop else False
        completion = Completion(text=text, finish=Finish.STOP if paused else Finish.END)
        # A dialogue without room for the responses that are shown later ended before its first turn.
        begun = not self._session.done or self._session.context.segments
        appended = self._thread.run(self._session.step(completion)) if begun else ()
        shown = quote_control_tokens("".join(segment.text for segment in appended))
        if not self._session.done:
            return Reply(shown, None, None)
        trajectory = self._session.trajectory
        return Reply(shown, score_alone(self._environment, self.task, trajectory), trajectory.stop)


ENDED = "The dialogue has ended: this program was not run."
_UNLIMITED = sys.maxsize


class ToolDialogue:
    """A row's dialogue under the `tool` protocol.

    During the dialogue `call` runs programs and calls other tools. Afterwards `score` replays it from the
    framework's messages with the recorded executions, since the reward depends on all that the model wrote.
    """

    def __init__(
        self, settings: JudgeSettings, row: Mapping[str, Any], *, framework: str, tools: Iterable[Tool] = ()
    ) -> None:
        """Prepare a dialogue for a row; `tools` are those besides Python that the framework offers as well.

        Raises RowError for a bad row, LinkedViews for a judge whose reward needs several rollouts, and
        ValueError for a judge without native tool calls.
        """
        self.task = read_row(row, settings.columns)
        self._settings, self._tools = settings, tuple(tools)
        self._environment = with_tools(settings.environment, self._tools)
        self._view = row_view(self._environment, self.task, row, framework)
        prompt = shown_prompt(self._environment, self.task, self._view)
        if prompt.stop or prompt.prefill or len(prompt.messages) != 1:
            raise ValueError(
                f"{framework} needs native tools and one user message: open the judge with protocol='tool', "
                "or use TRL's rollout_func tirjudge_training.rl.trl_rollout.JudgeRolloutFunc"
            )
        self.prompt = quote_control_tokens(prompt.messages[0].content)
        """The framework encodes the prompt and the outputs: control tokens are quoted in both."""
        self._live: JudgeSession | None = None
        self._recorder: RecordingSandbox | None = None

    @property
    def executions(self) -> tuple[Execution, ...]:
        """The executions of the programs so far, and the answers of the tools, in order."""
        return tuple(self._recorder.executions) if self._recorder else ()

    async def call(self, name: str, arguments: Mapping[str, Any], sandbox: Sandbox) -> str:
        """Run a program, or call another tool; return the output or, in one line, why there is none."""
        if self._live is None:
            self._recorder = RecordingSandbox(sandbox)
            tools = [_RecordedTool(tool, self._recorder) for tool in self._tools]
            # Here every call is a turn, also one of several in a message: the replay counts real turns.
            self._live = self._session(self._recorder, tools, turns=_UNLIMITED)
        if self._live.done:
            return ENDED
        call = ToolCall("call", name, json.dumps(dict(arguments)))
        turn = Completion(text="", finish=Finish.TOOL_CALL, tool_calls=(call,))
        appended = await self._live.step(turn)
        return quote_control_tokens(appended[0].text) if appended else ENDED

    async def score(self, messages: Sequence[Mapping[str, Any]], executions: Sequence[Execution]) -> Score:
        """Score the whole dialogue.

        `messages` are in OpenAI's format; the arguments of a call may be a text or an object.
        """
        trajectory = await self._replay(messages, executions)
        return score_alone(self._environment, self.task, trajectory)

    async def _replay(
        self, messages: Sequence[Mapping[str, Any]], executions: Sequence[Execution]
    ) -> Trajectory:
        replay = ReplaySandbox(executions)
        tools = [_ReplayedTool(tool, replay) for tool in self._tools]
        session = self._session(replay, tools, turns=self._settings.turns)
        offered = {RUN_PYTHON.name, *(tool.spec.name for tool in self._tools)}
        for number, (completion, answered) in enumerate(_turns(messages), start=1):
            if session.done:
                break
            if isinstance(self._environment, LateText):
                # The responses were shown only if the framework called a program. The framework answers
                # calls of unknown tools itself, and ends the dialogue at a turn without a call.
                made = tuple(call for call in completion.tool_calls if call.name in offered)
                if completion.tool_calls and not made:
                    continue
                completion = replace(completion, tool_calls=made)
                if not made and not any(segment.later for segment in session.context.segments):
                    session.fail(StopReason.MALFORMED, "the turn called no program, so nothing was shown")
                    break
            # A last call without an answer means that the framework ran out of tokens before the output.
            if completion.tool_calls and not answered and number < self._settings.turns:
                session.fail(StopReason.TOKEN_BUDGET, "no room for a program's output")
                break
            await session.step(completion)
        if not session.done:
            session.fail(StopReason.TOKEN_BUDGET, "the dialogue was cut before a verdict")
        return session.trajectory

    def _session(self, sandbox: Sandbox, tools: Iterable[Tool], *, turns: int) -> JudgeSession:
        """Open a session without a token limit, which the framework enforces."""
        return JudgeSession(
            self._environment,
            self.task,
            self._view,
            sandbox,
            tools=tools,
            budget=replace(self._settings.budget, turns=turns, tokens=_UNLIMITED),
            limits=self._settings.limits,
            seed=self._settings.dialogue_seed(self.task, self._view),
        )


_TYPES: Mapping[str, type] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
}


def calling(spec: ToolSpec, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method `spec.name` that is `call(self, spec.name, arguments)`.

    The method's signature and docstring follow the schema, for frameworks that describe tools by methods.
    Raises ValueError, in one line, for a parameter whose name no method can have.
    """

    def method(self: Any, **arguments: Any) -> Any:
        given = {name: one for name, one in arguments.items() if one is not None or name in required}
        return call(self, spec.name, given)

    properties: Mapping[str, Any] = spec.parameters.get("properties", {})
    # The schema of a property may also be a truth value.
    about = {name: one if isinstance(one, Mapping) else {} for name, one in properties.items()}
    unfit = next((name for name in about if not name.isidentifier() or iskeyword(name)), None)
    if unfit is not None:
        raise ValueError(
            f"this framework describes tools by methods, and none can have the parameter {unfit!r} of the "
            f"tool {spec.name}: name the other tools in `tools.allowed`"
        )
    kinds = {name: _TYPES.get(str(one.get("type")), str) for name, one in about.items()}
    required = spec.parameters.get("required", ())
    shown = [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            annotation=kind,
            default=Parameter.empty if name in required else about[name].get("default"),
        )
        for name, kind in kinds.items()
    ]
    method.__name__ = spec.name
    method.__annotations__ = {**kinds, "return": str}
    own = Parameter("self", Parameter.POSITIONAL_ONLY)
    method.__signature__ = Signature([own, *shown], return_annotation=str)  # type: ignore[attr-defined]
    lines = [f"    {name}: {_one_line(str(about[name].get('description', name)))}" for name in kinds]
    method.__doc__ = "\n".join(
        [_one_line(spec.description) or spec.name, *(["", "Args:"] if lines else []), *lines]
    )
    return method


def _one_line(text: str) -> str:
    return " ".join(text.split())


class _RecordedTool:
    """A tool whose answers are recorded among the executions of a sandbox."""

    def __init__(self, tool: Tool, recorder: RecordingSandbox) -> None:
        self.spec, self.limits = tool.spec, tool.limits
        self._tool, self._recorder = tool, recorder

    async def call(
        self, arguments: Mapping[str, Any], *, bindings: Mapping[str, Any] | None = None, seed: int = 0
    ) -> Execution:
        execution = await self._tool.call(arguments, bindings=bindings, seed=seed)
        self._recorder.executions.append(execution)
        return execution


class _ReplayedTool:
    """A tool that calls nothing and gives the answers that are recorded among executions."""

    def __init__(self, tool: Tool, replay: ReplaySandbox) -> None:
        self.spec, self.limits, self._replay = tool.spec, tool.limits, replay

    async def call(
        self, arguments: Mapping[str, Any], *, bindings: Mapping[str, Any] | None = None, seed: int = 0
    ) -> Execution:
        return await self._replay.run(Program(source=json.dumps(dict(arguments))))


def _turns(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Completion, bool]]:
    """Yield each turn of the model, with True if any message follows it."""
    for number, message in enumerate(messages):
        if message["role"] == "assistant":
            calls = tuple(_calls(message))
            finish = Finish.TOOL_CALL if calls else Finish.END
            text = message.get("content") or ""
            yield Completion(text=text, finish=finish, tool_calls=calls), number + 1 < len(messages)


def _calls(message: Mapping[str, Any]) -> Iterator[ToolCall]:
    for number, call in enumerate(message.get("tool_calls") or ()):
        function = call.get("function", call)
        arguments = function["arguments"]
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        yield ToolCall(f"call-{number}", function["name"], text)
