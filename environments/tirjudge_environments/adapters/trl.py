"""TRL: a judge as an `environment_factory`, with programs as native calls of `run_python`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from tirjudge_environments.adapters.dialogues import SandboxThread, ToolDialogue, calling
from tirjudge_environments.adapters.settings import JudgeSettings
from tirjudge_environments.tools.python import RUN_PYTHON
from tirjudge_environments.types import Reward, Score


class JudgeEnv:
    """A judge as TRL's environment; TRL offers every public method except `reset` to the model as a tool.

        settings = JudgeSettings(options={"protocol": "tool"}, columns=Columns(prompt="question"))
        GRPOTrainer(
            model,
            environment_factory=partial(JudgeEnv, settings),
            reward_funcs=judge_reward,
            args=GRPOConfig(max_tool_calling_iterations=settings.turns - 1, ...),
            train_dataset=rows,
            ...
        )

    The settings' further tools are methods too. TRL's column `prompt` is the policy's chat and is optional;
    the judged prompt is in another column. TRL limits a dialogue's tokens (`max_completion_length`) and
    turns, and gives tool outputs a mask of 0. There is no `get_reward`, because TRL calls it without the
    model's last turn, which holds the verdict; `judge_reward` sees all turns.
    """

    def __new__(cls, settings: JudgeSettings) -> JudgeEnv:
        """Return an instance of a class with a method for each further tool, since TRL looks at the class."""
        tools = SandboxThread.shared(settings).tools
        methods = {tool.spec.name: calling(tool.spec, cls._call) for tool in tools}
        if taken := methods.keys() & {*dir(cls), "get_reward", "score"}:
            raise ValueError(f"TRL's environment_factory cannot offer a tool named {', '.join(taken)}")
        return super().__new__(type(cls.__name__, (cls,), methods) if methods else cls)

    def __init__(self, settings: JudgeSettings) -> None:
        self.score: Score | None = None
        """The score of the last dialogue, set by `judge_reward`."""
        self._settings = settings
        self._thread = SandboxThread.shared(settings)

    def reset(self, **row: Any) -> str:
        """Return the judge's prompt for a row.

        Raises RowError, LinkedViews, and ValueError for a judge that does not work with TRL's native tools.
        """
        self._dialogue = ToolDialogue(
            self._settings, row, framework="TRL's environment_factory", tools=self._thread.tools
        )
        return self._dialogue.prompt

    def _call(self, name: str, arguments: Mapping[str, Any]) -> str:
        return self._thread.run(self._dialogue.call(name, arguments, self._thread.sandbox))

    # TRL calls a method with whatever arguments the model wrote. One that has only `code` would raise for any
    # other, before the call is recorded, and the dialogue could not be replayed.
    run_python = calling(RUN_PYTHON, _call)

    def _finish(self, messages: Sequence[Mapping[str, Any]]) -> Score:
        self.score = self._thread.run(self._dialogue.score(messages, self._dialogue.executions))
        return self.score


def judge_reward(
    completions: Sequence[Sequence[Mapping[str, Any]]],
    environments: Sequence[JudgeEnv],
    log_metric: Callable[[str, float], None] | None = None,
    **columns: Any,
) -> list[float | None]:
    """The reward function of JudgeEnv: one total per rollout, None for an unscored one.

    TRL excludes a None from the group's baseline. The means of the parts of the reward, and of `right` and
    `teaches`, are logged.
    """
    scores = [
        environment._finish(messages) for environment, messages in zip(environments, completions, strict=True)
    ]
    rewards = [score for score in scores if isinstance(score, Reward)]
    if log_metric is not None and rewards:
        for name in rewards[0].metrics:
            log_metric(f"judge/{name}", fmean(reward.metrics[name] for reward in rewards))
    return [score.total if isinstance(score, Reward) else None for score in scores]
