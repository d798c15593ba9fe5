"""verl's trainer for judges with linked views of a task; needs the package TransferQueue."""

from __future__ import annotations

from typing import Any

import ray
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

_Worker: Any = AgentLoopWorkerTQ.__ray_metadata__.modified_class
"""The class that verl made an actor of, which can be extended only as a plain class."""


class JudgeLoopWorker(_Worker):
    """A worker that stores each view of a rollout under a group of its own.

    verl takes several outputs of a rollout for one trajectory that was cut, and gives every output the reward
    and the advantage of the last. Here every view has its own reward, and is compared with the same view of
    the other rollouts of its task, as in our own trainer (TIR-Judge section 4.2, Eq. 2).
    """

    async def _agent_loop_postprocess(
        self, output: AgentLoopOutput | list[AgentLoopOutput], validate: bool, **row: Any
    ) -> None:
        views = output if isinstance(output, list) else [output]
        for number, view in enumerate(views):
            # verl's keys are TASK_SAMPLE_OUTPUT. It finds a task by the text before the first underscore, and
            # a group by all but the last two parts.
            group = {"uid": f"{row['uid']}_{number}"} if len(views) > 1 else {}
            await super()._agent_loop_postprocess(view, validate, **{**row, **group})


class JudgeLoopManager(AgentLoopManagerTQ):
    """Named at `actor_rollout_ref.rollout.agent.agent_loop_manager_class`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.agent_loop_workers_class = ray.remote(JudgeLoopWorker)
