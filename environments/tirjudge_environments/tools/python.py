"""Python in the sandbox as a tool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tirjudge_environments.files.placing import program_of
from tirjudge_environments.types import ToolSpec
from tirjudge_sandbox import Execution, Limits, Sandbox, run_with_isolated

RUN_PYTHON = ToolSpec(
    name="run_python",
    description="Run a Python program by itself and return what it prints.",
    parameters={
        "type": "object",
        "properties": {"code": {"type": "string", "description": "The program."}},
        "required": ["code"],
        "additionalProperties": False,
    },
)


class PythonTool:
    """The tool `run_python`: each call is one program, with the bindings as its variables."""

    spec = RUN_PYTHON

    def __init__(self, sandbox: Sandbox, limits: Limits = Limits()) -> None:
        self._sandbox, self.limits = sandbox, limits

    async def call(
        self, arguments: Mapping[str, Any], *, bindings: Mapping[str, Any] | None = None, seed: int = 0
    ) -> Execution:
        program, limits = program_of(arguments["code"], bindings or {}, self.limits, seed=seed)
        return await run_with_isolated(self._sandbox, program, limits)
