"""One dialogue in a framework that calls our tool itself and shows the messages only at the end."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tirjudge_environments.adapters.settings import JudgeSettings
from tirjudge_environments.adapters.single_views import row_view, score_alone
from tirjudge_environments.programs.recording import RecordingSandbox, ReplaySandbox
from tirjudge_environments.quoting import quote_control_tokens
from tirjudge_environments.session import JudgeSession
from tirjudge_environments.tasks import read_task
from tirjudge_environments.types import Completion, Finish, Score, StopReason, ToolCall, Trajectory
from tirjudge_sandbox import Execution, Sandbox

ENDED = "The dialogue has ended: this program was not run."
_UNLIMITED = sys.maxsize


class ToolDialogue:
    """A row's dialogue under the `tool` protocol.

    During the dialogue `call` runs programs. Afterwards `score` replays it from the framework's messages with
    the recorded executions, since the reward depends on everything that the model wrote.
    """

    def __init__(self, settings: JudgeSettings, row: Mapping[str, Any], *, framework: str) -> None:
        """Prepare a dialogue for a row.

        Raises RowError for a bad row, LinkedViews for a judge whose reward needs several rollouts, and
        ValueError for a judge without native tool calls.
        """
        self.task = read_task(row, default_id="row", columns=settings.columns)
        self._settings = settings
        self._view = row_view(settings.environment, self.task, row, framework)
        prompt = settings.environment.prompt(self.task, self._view)
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
        """The executions of the programs so far, in order."""
        return tuple(self._recorder.executions) if self._recorder else ()

    async def call(self, code: str, sandbox: Sandbox) -> str:
        """Run a program; return its output or, in one line, the reason why there is none."""
        if self._live is None:
            self._recorder = RecordingSandbox(sandbox)
            self._live = self._session(self._recorder, turns=_UNLIMITED)
        if self._live.done:
            return ENDED
        call = ToolCall("call", "run_python", json.dumps({"code": code}))
        turn = Completion(text="", finish=Finish.TOOL_CALL, tool_calls=(call,))
        appended = await self._live.step(turn)
        return quote_control_tokens(appended[0].text) if appended else ENDED

    async def score(self, messages: Sequence[Mapping[str, Any]], executions: Sequence[Execution]) -> Score:
        """Score the whole dialogue.

        `messages` are in OpenAI's format; the arguments of a call may be a text or an object.
        """
        trajectory = await self._replay(messages, executions)
        return score_alone(self._settings.environment, self.task, trajectory)

    async def _replay(
        self, messages: Sequence[Mapping[str, Any]], executions: Sequence[Execution]
    ) -> Trajectory:
        session = self._session(ReplaySandbox(executions), turns=self._settings.turns)
        for number, (completion, answered) in enumerate(_turns(messages), start=1):
            if session.done:
                break
            # A last call without an answer means that the framework ran out of tokens before the output.
            if completion.tool_calls and not answered and number < self._settings.turns:
                session.fail(StopReason.TOKEN_BUDGET, "no room for a program's output")
                break
            await session.step(completion)
        if not session.done:
            session.fail(StopReason.TOKEN_BUDGET, "the dialogue was cut before a verdict")
        return session.trajectory

    def _session(self, sandbox: Sandbox, *, turns: int) -> JudgeSession:
        """Open a session without a token limit, which the framework enforces."""
        return JudgeSession(
            self._settings.environment,
            self.task,
            self._view,
            sandbox,
            budget=replace(self._settings.budget, turns=turns, tokens=_UNLIMITED),
            limits=self._settings.limits,
            seed=self._settings.dialogue_seed(self.task, self._view),
        )


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
