"""SkyRL-gym: a judge as a `BaseTextEnv`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput, ConversationType

from tirjudge_environments.adapters.dialogues import ChatDialogue, reward_of
from tirjudge_environments.adapters.settings import JudgeSettings


class JudgeEnv(BaseTextEnv):
    """One dialogue of a judge. Register it under any name:

        register(id="judge", entry_point="tirjudge_environments.adapters.skyrl:JudgeEnv")

    `env_config` holds `JudgeSettings`, and `extras["extra_info"]` the row in the format that `tirjudge judge`
    reads. Set the generator's stop strings to those of the judge (`stop` of an instance) and keep them in the
    output. SkyRL's generator puts a loss mask of 0 on observations.
    """

    def __init__(self, env_config: Mapping[str, Any], extras: Mapping[str, Any]) -> None:
        """Start a dialogue; raises ValueError for a bad row, LinkedViews for a judge with linked views."""
        super().__init__()
        settings = JudgeSettings.model_validate(dict(env_config))
        self._dialogue = ChatDialogue(settings, extras["extra_info"], framework="SkyRL")
        self.stop = self._dialogue.stop
        self.max_turns = settings.turns
        self._parts: Mapping[str, float] = {}

    def init(self, prompt: ConversationType) -> tuple[ConversationType, dict[str, Any]]:
        """Return the judge's own prompt; that of the dataset is not used."""
        return self._dialogue.messages, {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Process one turn; raises RuntimeError for an unscored rollout, which SkyRL cannot represent."""
        self.turns += 1
        reply = self._dialogue.step(action)
        if reply.score is None:
            return BaseTextEnvStepOutput(observations=reply.messages, reward=0.0, done=False, metadata={})
        reward = reward_of(reply.score, self._dialogue.task)
        self._parts = reward.metrics
        metadata = {"parts": reward.metrics, "stop": str(reply.stop)}
        return BaseTextEnvStepOutput(
            observations=reply.messages, reward=reward.total, done=True, metadata=metadata
        )

    def get_metrics(self) -> dict[str, float]:
        """Return the named parts of the reward, and `right` and `teaches` as 0 or 1."""
        return dict(self._parts)
