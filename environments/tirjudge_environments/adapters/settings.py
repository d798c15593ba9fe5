"""The configuration of a judge inside a framework: format, sandbox and budget."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_serializer

from tirjudge_environments.base import Environment
from tirjudge_environments.registry import open_environment
from tirjudge_environments.tasks import Columns
from tirjudge_environments.tools.base import ToolSettings
from tirjudge_environments.types import Budget, FrozenModel, JudgeTask, View, derive_seed
from tirjudge_sandbox import Limits


def _plain(value: Any) -> Any:
    """Convert the OmegaConf containers of verl and SkyRL to dicts and lists."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(part) for part in value]
    return value


Options = Annotated[Mapping[str, Any], BeforeValidator(_plain)]


class JudgeSettings(FrozenModel):
    """Settings of a judge, as plain values for any framework's YAML, JSON or keyword arguments."""

    judge: str = "tir-pairwise"
    """Name of a judge format, including third-party ones."""
    options: Options = Field(default_factory=dict)
    """Options of the format."""
    columns: Columns = Columns()
    """Places of the parts of a task in a row."""
    sandbox: str = "local"
    """Name of the sandbox backend. One sandbox serves all dialogues of a process."""
    sandbox_options: Options = Field(default_factory=dict)
    """Options of the backend, such as `{"prepare": FILE}`; tell the judge what it defines by the format's
    option `prepared`."""
    tool_calls: int = Field(default=3, ge=0)
    """Maximum number of programs and calls of other tools in a dialogue; a further one is refused, and the
    reply says so."""
    turns: int = Field(default=8, ge=1)
    tokens: int = Field(default=8192, ge=1)
    """Maximum size of the response. A framework that passes only text to environments needs its own limit
    too, since the size is then estimated from the text's length."""
    cpu_seconds: float = Field(default=30.0, gt=0)
    """CPU time of a dialogue's programs together."""
    program_cpu_seconds: float = Field(default=10.0, gt=0)
    """CPU time of one program."""
    tools: Annotated[ToolSettings, BeforeValidator(_plain)] = ToolSettings()
    """Tools that the judge may call besides Python. Their servers serve all dialogues of a process."""
    seed: int = 0
    """Seed of the programs' random numbers."""

    @field_serializer("columns")
    def _named_columns(self, columns: Columns) -> dict[str, str]:
        """Serialize only the columns that were set, since a row must have every column that is set."""
        return columns.model_dump(exclude_unset=True)

    @property
    def environment(self) -> Environment:
        """Raises ValueError, in one line, for an unknown format or a bad option."""
        return _opened(self.judge, json.dumps(dict(self.options), sort_keys=True))

    @property
    def budget(self) -> Budget:
        return Budget(
            turns=self.turns, tool_calls=self.tool_calls, tokens=self.tokens, cpu_seconds=self.cpu_seconds
        )

    @property
    def limits(self) -> Limits:
        return Limits(cpu_seconds=self.program_cpu_seconds)

    def dialogue_seed(self, task: JudgeTask, view: View) -> int:
        """Return our engine's seed for sample 0, since no framework says which sample a rollout is."""
        return derive_seed(self.seed, task.id, view.name, 0)


@lru_cache
def _opened(judge: str, options: str) -> Environment:
    """Open a format once for all dialogues, since formats hold no state."""
    return open_environment(judge, **json.loads(options))
