"""verl: the sandbox as a tool of its own agent loops."""

from __future__ import annotations

from typing import Any

from verl.tools.base_tool import BaseTool
from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse

from tirjudge_environments.adapters.sandbox_thread import SandboxThread
from tirjudge_environments.adapters.settings import JudgeSettings
from tirjudge_environments.formats.tir import RUN_PYTHON
from tirjudge_environments.outputs import output_text
from tirjudge_environments.types import Refused
from tirjudge_sandbox import Program, Status

_COUNT = "tirjudge_programs"
_OUTPUT_CHARS = 2000


class PythonTool(BaseTool):
    """`run_python(code)` for `tool_agent`. Its budget of programs holds for a trajectory; it gives no reward.

    Name the class in the file at `multi_turn.tool_config_path`, with `config: {type: native}` and any of
    `JudgeSettings` beside the type. For a judge's reward there is `JudgeLoop`: a tool never sees the verdict.
    """

    def __init__(self, config: dict[str, Any], tool_schema: OpenAIFunctionToolSchema | None) -> None:
        """Raises ValueError for bad settings."""
        super().__init__(config, tool_schema or self.get_openai_tool_schema())
        options = {name: value for name, value in config.items() if name != "type"}
        self._settings = JudgeSettings.model_validate(options)
        self._thread = SandboxThread.shared(self._settings.sandbox, self._settings.sandbox_options)

    def get_openai_tool_schema(self) -> OpenAIFunctionToolSchema:
        function = {
            "name": RUN_PYTHON.name,
            "description": RUN_PYTHON.description,
            "parameters": dict(RUN_PYTHON.parameters),
        }
        return OpenAIFunctionToolSchema.model_validate({"type": "function", "function": function})

    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **kwargs: Any
    ) -> tuple[ToolResponse, float, dict[str, Any]]:
        """Raises RuntimeError where the sandbox failed: that is no program's output."""
        done = kwargs["agent_data"].extra_fields
        number = done[_COUNT] = done.get(_COUNT, 0) + 1
        if number > self._settings.tool_calls:
            spent = Refused(f"The budget of {self._settings.tool_calls} programs is spent: this was not run.")
            return ToolResponse(text=output_text(spent, _OUTPUT_CHARS)), 0.0, {}
        program = Program(source=str(parameters.get("code", "")), seed=self._settings.seed)
        execution = await self._thread.awaited(self._thread.sandbox.run(program, self._settings.limits))
        if execution.status is Status.SANDBOX_FAILED:
            raise RuntimeError(f"the sandbox failed: {execution.detail}")
        return ToolResponse(text=output_text(execution, _OUTPUT_CHARS)), 0.0, {}
