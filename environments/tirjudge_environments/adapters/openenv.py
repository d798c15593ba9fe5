"""OpenEnv: a judge behind an OpenEnv server, and its client."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from openenv.core import EnvClient
from openenv.core.client_types import StepResult
from openenv.core.env_server import Action, Environment, Observation, State, create_app
from pydantic import Field

from tirjudge_environments.adapters.dialogues import ChatDialogue, Reply
from tirjudge_environments.adapters.settings import JudgeSettings
from tirjudge_environments.types import Reward, StopReason

if TYPE_CHECKING:
    from fastapi import FastAPI


class JudgeAction(Action):
    """One turn of the model."""

    text: str


class JudgeObservation(Observation):
    """The next input of the model; `reward` is None until `done`, and for an unscored rollout."""

    messages: list[dict[str, str]]
    """The prompt after a reset, the program's output after a turn; empty if the turn continues."""
    stop: list[str] = Field(default_factory=list)
    """Strings at which sampling must stop; set after a reset."""
    parts: dict[str, float] = Field(default_factory=dict)
    """The named parts of the reward, and `right` and `teaches` as 0 or 1."""
    unscored: str = ""
    """The reason why there is no reward."""
    ended: StopReason | None = None
    """The reason why the dialogue ended."""


class JudgeState(State):
    """The state of a dialogue: OpenEnv's own fields and the task."""

    task: str = ""
    """The id of the task."""


class JudgeEnv(Environment[JudgeAction, JudgeObservation, JudgeState]):
    """A judge as an OpenEnv environment: `reset(row={...})`, then `step`; sessions run concurrently."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, settings: JudgeSettings) -> None:
        super().__init__()
        self._settings = settings
        self._dialogue: ChatDialogue | None = None
        self._state = JudgeState()

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        *,
        row: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> JudgeObservation:
        """Start the dialogue of a row, in the format that `tirjudge judge` reads.

        Raises ValueError for a bad row, and its subclass LinkedViews for a judge that cannot be trained here.
        """
        settings = self._settings if seed is None else self._settings.model_copy(update={"seed": seed})
        self._dialogue = ChatDialogue(settings, row or {}, framework="OpenEnv")
        self._state = JudgeState(episode_id=episode_id or str(uuid4()), task=self._dialogue.task.id)
        return JudgeObservation(messages=self._dialogue.messages, stop=list(self._dialogue.stop))

    def step(self, action: JudgeAction, timeout_s: float | None = None, **options: Any) -> JudgeObservation:
        """Process one turn; raises RuntimeError before a reset.

        `timeout_s` is ignored, since no wall clock ends a dialogue.
        """
        if self._dialogue is None:
            raise RuntimeError("no dialogue: call `reset(row={...})` first")
        self._state.step_count += 1
        return _observation(self._dialogue.step(action.text))

    @property
    def state(self) -> JudgeState:
        return self._state


class JudgeClient(EnvClient[JudgeAction, JudgeObservation, JudgeState]):
    """The client: `async with JudgeClient(base_url=...) as env: await env.reset(row={...})`."""

    def _step_payload(self, action: JudgeAction) -> dict[str, Any]:
        return {"text": action.text}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[JudgeObservation]:
        outer = {"reward": payload.get("reward"), "done": payload.get("done", False)}
        observation = JudgeObservation.model_validate(payload["observation"] | outer)
        return StepResult(observation=observation, reward=observation.reward, done=observation.done)

    def _parse_state(self, payload: dict[str, Any]) -> JudgeState:
        return JudgeState.model_validate(payload)


def judge_app(settings: JudgeSettings, *, sessions: int = 64) -> FastAPI:
    """Return OpenEnv's server for a judge, for uvicorn; at most `sessions` dialogues run at once.

    It has no authentication: run it where only the trainer can reach it.
    """
    return create_app(
        partial(JudgeEnv, settings),
        JudgeAction,
        JudgeObservation,
        env_name="tirjudge",
        max_concurrent_envs=sessions,
        state_cls=JudgeState,
    )


def _observation(reply: Reply) -> JudgeObservation:
    observation = JudgeObservation(messages=reply.messages, done=reply.done, ended=reply.stop)
    if isinstance(reply.score, Reward):
        observation.reward, observation.parts = reply.score.total, dict(reply.score.metrics)
    elif reply.score is not None:
        observation.unscored = reply.score.reason
    return observation
