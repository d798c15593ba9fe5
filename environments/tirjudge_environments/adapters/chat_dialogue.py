"""One dialogue for chat frameworks: messages in, program outputs back as text, a score at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tirjudge_environments.adapters.sandbox_thread import SandboxThread
from tirjudge_environments.adapters.settings import JudgeSettings
from tirjudge_environments.adapters.single_views import row_view, score_alone
from tirjudge_environments.quoting import quote_control_tokens
from tirjudge_environments.session import JudgeSession
from tirjudge_environments.tasks import read_task
from tirjudge_environments.types import Completion, Finish, Score, StopReason


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to one turn of the model."""

    text: str
    """The program's output; empty if the turn continues or the dialogue has ended."""
    score: Score | None
    """None until the dialogue has ended."""
    stop: StopReason | None
    """The reason why it ended; None until then."""

    @property
    def done(self) -> bool:
        return self.score is not None


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
        self.task = read_task(row, default_id="row", columns=settings.columns)
        self._environment = settings.environment
        self._thread = SandboxThread.shared(settings.sandbox, settings.sandbox_options)
        view = row_view(self._environment, self.task, row, framework)
        self._session = JudgeSession(
            self._environment,
            self.task,
            view,
            self._thread.sandbox,
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
        """Process a turn of the model and wait for its program; raises RuntimeError once it is done."""
        paused = text.endswith(self.stop) if self.stop else False
        completion = Completion(text=text, finish=Finish.STOP if paused else Finish.END)
        appended = self._thread.run(self._session.step(completion))
        if not self._session.done:
            shown = "".join(segment.text for segment in appended)
            return Reply(quote_control_tokens(shown), None, None)
        trajectory = self._session.trajectory
        return Reply("", score_alone(self._environment, self.task, trajectory), trajectory.stop)
