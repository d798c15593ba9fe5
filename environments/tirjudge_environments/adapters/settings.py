"""What a framework's configuration says about a judge: its format, its sandbox and its budget."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_serializer

from tirjudge_environments.base import Environment
from tirjudge_environments.registry import open_environment
from tirjudge_environments.tasks import Columns
from tirjudge_environments.types import Budget, JudgeTask, View, derive_seed
from tirjudge_sandbox import Limits


def _plain(value: Any) -> Any:
    """OmegaConf's containers, in which verl and SkyRL hand a configuration over, as dicts and lists."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(part) for part in value]
    return value


Options = Annotated[Mapping[str, Any], BeforeValidator(_plain)]


class JudgeSettings(BaseModel):
    """Plain values only, so that it fits any framework's YAML, JSON or keyword arguments."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    judge: str = "tir-pairwise"
    """A judge format by name, a third party's too."""
    options: Options = Field(default_factory=dict)
    """The format's own."""
    columns: Columns = Columns()
    """Where a row holds the parts of its task."""
    sandbox: str = "local"
    """What runs the programs, by name. One sandbox serves all dialogues of a process."""
    sandbox_options: Options = Field(default_factory=dict)
    tool_calls: int = Field(default=3, ge=0)
    """Programs of one dialogue; a further one is refused, and the reply says so."""
    turns: int = Field(default=8, ge=1)
    tokens: int = Field(default=8192, ge=1)
    """The whole response. In a framework that shows an environment only text this is a guess from its
    length: set the framework's own limit too."""
    cpu_seconds: float = Field(default=30.0, gt=0)
    """CPU time of a dialogue's programs together."""
    program_cpu_seconds: float = Field(default=10.0, gt=0)
    """CPU time of one program."""
    seed: int = 0
    """Of the programs' random numbers."""

    @field_serializer("columns")
    def _named_columns(self, columns: Columns) -> dict[str, str]:
        """A column that was named must be there, so a copy names no others."""
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
        """As our own engine's for the first sample: no framework tells which sample a rollout is."""
        return derive_seed(self.seed, task.id, view.name, 0)


@lru_cache
def _opened(judge: str, options: str) -> Environment:
    """Opened once: every dialogue asks for it, and formats hold no state."""
    return open_environment(judge, **json.loads(options))
