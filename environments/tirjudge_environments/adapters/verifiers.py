"""verifiers v1: a judge as a taskset of self-scoring tasks, and the sandbox as the toolset."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MethodType
from typing import Any

import verifiers.v1 as vf
from pydantic import ConfigDict, Field, TypeAdapter

from tirjudge_environments.adapters.dialogues import SandboxThread, ToolDialogue, calling, reward_of
from tirjudge_environments.adapters.settings import JudgeSettings
from tirjudge_environments.tools.python import RUN_PYTHON
from tirjudge_sandbox import Execution

_EXECUTIONS = TypeAdapter(tuple[Execution, ...])
_NATIVE = JudgeSettings(options={"protocol": "tool"})


class JudgeData(vf.TaskData):
    """A row and the settings of its judge."""

    row: dict[str, Any]
    settings: JudgeSettings

    @property
    def dialogue(self) -> ToolDialogue:
        """The dialogue; raises ValueError for a bad row, and LinkedViews for a judge with linked views."""
        # Reading rows needs the specifications of further tools, and opens no sandbox without them.
        further = self.settings.tools.servers
        tools = SandboxThread.shared(self.settings).tools if further else ()
        return ToolDialogue(self.settings, self.row, framework="verifiers' Taskset", tools=tools)


class JudgeState(vf.State):
    """The state that the tool server shares with the host."""

    executions: str = "[]"
    """The executions of the programs in order, as JSON."""


@cache
def _any_arguments() -> type[Any]:
    """Return a model of arguments that a call has as the model wrote them."""
    from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase

    class AnyArguments(ArgModelBase):
        model_config = ConfigDict(extra="allow")

        def model_dump_one_level(self) -> dict[str, Any]:
            return dict(self.model_extra or {})

    return AnyArguments


class PythonConfig(vf.ToolsetConfig):
    """The configuration of the toolset: only verifiers' own fields."""


class PythonToolset(vf.Toolset[PythonConfig, JudgeState]):
    """The tool `run_python`, and the further tools of the settings, for one rollout."""

    TOOL_PREFIX = None

    async def setup_task(self, task: JudgeData) -> None:
        self._dialogue = task.dialogue
        self._thread = SandboxThread.shared(task.settings)

    def register(self, mcp: Any) -> None:
        super().register(mcp)
        for spec in (RUN_PYTHON, *(tool.spec for tool in self._thread.tools)):
            method = MethodType(calling(spec, PythonToolset._call), self)
            mcp.add_tool(self._with_state(method), name=spec.name, description=spec.description)
            # The server would refuse other arguments before the call is recorded, so that the replay would
            # give the outputs of later calls to earlier ones. The dialogue answers them itself.
            tool = mcp._tool_manager.get_tool(spec.name)
            tool.fn_metadata = tool.fn_metadata.model_copy(update={"arg_model": _any_arguments()})

    async def _call(self, name: str, arguments: Mapping[str, Any]) -> str:
        call = self._dialogue.call(name, arguments, self._thread.sandbox)
        shown = await self._thread.awaited(call)
        self.state.executions = _EXECUTIONS.dump_json(self._dialogue.executions).decode()
        return shown


class JudgeTask(vf.Task[JudgeData, JudgeState]):
    """One dialogue; its reward is the judge's total, and the parts are metrics."""

    @classmethod
    def toolsets(cls, config: vf.TaskConfig) -> list[vf.Toolset]:
        return [PythonToolset(PythonConfig())]

    @vf.reward
    async def judge(self, trace: vf.Trace) -> float:
        """Score a rollout; raises RuntimeError for an unscored one, which the trace keeps as its error."""
        messages = [node.message.model_dump(exclude_none=True) for node in trace.nodes]
        executions = _EXECUTIONS.validate_json(trace.state.executions)
        dialogue = self.data.dialogue
        reward = reward_of(await dialogue.score(messages, executions), dialogue.task)
        trace.record_metrics(reward.metrics)
        return reward.total


class JudgeTasksetConfig(vf.TasksetConfig):
    """The file of rows and the settings of the judge."""

    rows: Path | None = None
    """A file of JSON lines in the format that `tirjudge judge` reads."""
    settings: JudgeSettings = Field(default=_NATIVE)


class JudgeTaskset(vf.Taskset[JudgeTask, JudgeTasksetConfig]):
    """A taskset with one task per row of a file."""

    def load(self) -> Iterator[JudgeTask]:
        """Yield the tasks; raises ValueError if no file is given, or if a row or judge does not fit."""
        if self.config.rows is None:
            raise ValueError("no rows: set taskset.rows to a file of JSON lines")
        with self.config.rows.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                row = {"id": str(number), **json.loads(line)}
                data = JudgeData(row=row, settings=self.config.settings)
                yield JudgeTask(data.model_copy(update={"prompt": data.dialogue.prompt}), self.config.task)


__all__ = ["JudgeTaskset"]

if __name__ == "__main__":
    PythonToolset.run()
