"""SkyRL-gym: an environment of one turn, whose reward compares the completions of a prompt."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from pydantic import Field
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput, ConversationType

from tirjudge.selection.group_rewards import GroupOptions
from tirjudge.serve.client import JudgeClient
from tirjudge.serve.messages import MemberAnswer, MemberRequest
from tirjudge_environments.tasks.host_rows import HostColumns, HostRow


class GroupSettings(GroupOptions):
    """The settings of `GroupEnv`, as plain values for SkyRL's configuration."""

    url: str
    """The address of `tirjudge serve`."""
    group_size: int = Field(ge=2)
    """Samples per prompt: `generator.n_samples_per_prompt`."""
    token: str | None = None
    """None takes TIRJUDGE_SERVE_TOKEN if it is set."""
    reference_key: str = ""
    criteria_key: str = ""
    """Places in the row's extras of a reference answer and of criteria: `reward_spec.ground_truth`."""
    wait_seconds: float = Field(default=300.0, gt=0)
    """Seconds in which the other members of the group must arrive."""


class GroupEnv(BaseTextEnv):
    """One completion of a group. Register it under any name:

        register(id="judged-group", entry_point="tirjudge.adapters.skyrl:GroupEnv")

    `env_config` holds `GroupSettings`. The prompt is the dataset's. `step` waits until the server has all
    completions of the prompt, so SkyRL's generator needs as many environment workers as completions are
    generated at once (`environment.skyrl_gym.max_env_workers`). `extras["group"]`, if there is one, tells
    rows with equal prompts apart.
    """

    def __init__(self, env_config: Mapping[str, Any], extras: Mapping[str, Any] | None = None) -> None:
        """Raises ValueError for invalid settings."""
        super().__init__()
        self._settings = GroupSettings.model_validate(dict(env_config))
        self._extras = dict(extras or {})
        self._columns = HostColumns(
            prompt="prompt",
            reference=self._settings.reference_key,
            criteria=self._settings.criteria_key,
            group="group" if "group" in self._extras else "",
        )
        self._prompt: ConversationType = []
        self._metrics: dict[str, float] = {}

    def init(self, prompt: ConversationType) -> tuple[ConversationType, dict[str, Any]]:
        """Return the dataset's prompt, which the judge sees as well."""
        self._prompt = prompt
        return prompt, {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Wait for the group and return the reward of this completion.

        Raises GeneratorFailed if the server stays down or the group is not complete in time, and RuntimeError
        for a completion without any verdict, which SkyRL cannot represent.
        """
        self.turns += 1
        answer = asyncio.run(self._answer(action))
        if answer.reward is None:
            raise RuntimeError("the judge ended without a verdict on any comparison of this completion")
        self._metrics = {
            "judge_calls": answer.group.calls / self._settings.group_size,
            "judge_ties": answer.group.ties / max(1, answer.group.comparisons),
        }
        return BaseTextEnvStepOutput(observations=[], reward=answer.reward, done=True, metadata={})

    async def _answer(self, completion: str) -> MemberAnswer:
        settings = self._settings
        row = {**self._extras, "prompt": self._prompt}
        read = HostRow.read(row, completion, self._columns, where="a row of SkyRL")
        options = settings.model_dump(include=set(GroupOptions.model_fields))
        member = MemberRequest.of(read, settings.group_size, options, settings.wait_seconds)
        async with JudgeClient(settings.url, token=settings.token) as client:
            return await client.member(member)

    def get_metrics(self) -> dict[str, float]:
        """Return the calls per completion, and the share of comparisons that were ties."""
        return self._metrics
