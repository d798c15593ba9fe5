"""SkyRL-gym: a judge as a `BaseTextEnv`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput, ConversationType

from tirjudge_environments.adapters.chat_dialogue import ChatDialogue
from tirjudge_environments.adapters.settings import JudgeSettings
from tirjudge_environments.adapters.single_views import reward_of


class JudgeEnv(BaseTextEnv):
    """One dialogue. Register it under any name:

        register(id="judge", entry_point="tirjudge_environments.adapters.skyrl:JudgeEnv")

    `env_config` holds `JudgeSettings`, and `extras["extra_info"]` the row, a pair say, as `tirjudge judge`
    reads it. Set the generator's stop strings to the judge's (`JudgeEnv.stop` of an instance) and let it keep
    them. Its generator puts a loss mask of 0 on observations.
    """

    def __init__(self, env_config: Mapping[str, Any], extras: Mapping[str, Any]) -> None:
        """Raises ValueError, LinkedViews among it, for a row or a judge that cannot be had here."""
        super().__init__()
        settings = JudgeSettings.model_validate(dict(env_config))
        self._dialogue = ChatDialogue(settings, extras["extra_info"], framework="SkyRL")
        self.stop = self._dialogue.stop
        self.max_turns = settings.turns
        self._parts: Mapping[str, float] = {}

    def init(self, prompt: ConversationType) -> tuple[ConversationType, dict[str, Any]]:
        """The judge's own prompt; the data set's is not used."""
        return self._dialogue.messages, {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Raises RuntimeError for a rollout that cannot be scored: SkyRL has no place for one."""
        self.turns += 1
        reply = self._dialogue.step(action)
        if reply.score is None:
            shown = [{"role": "user", "content": reply.text}] if reply.text else []
            return BaseTextEnvStepOutput(observations=shown, reward=0.0, done=False, metadata={})
        reward = reward_of(reply.score, self._dialogue.task)
        self._parts = reward.parts
        metadata = {"parts": dict(reward.parts), "stop": str(reply.stop)}
        return BaseTextEnvStepOutput(observations=[], reward=reward.total, done=True, metadata=metadata)

    def get_metrics(self) -> dict[str, float]:
        """The named parts of the reward."""
        return dict(self._parts)
