"""What one dialogue may use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Bounds of one trajectory. None of them is a wall clock, or a busy machine would teach the policy."""

    turns: int = 8
    """Turns of the model."""
    tool_calls: int = 3
    """Programs that are run; a further one is refused, and the reply says so (TIR section 4.2)."""
    tokens: int = 8192
    """The whole response: what the model and the sandbox wrote, without the prompt (TIR section 5.1).

    Exact with token ids; without, it is what the endpoint reports, and the sandbox's part is not counted.
    """
    cpu_seconds: float = 30.0
    """Of all programs together; once it is spent, asking for another one ends the dialogue."""

    def __post_init__(self) -> None:
        if self.turns < 1 or self.tokens < 1 or self.tool_calls < 0 or self.cpu_seconds <= 0:
            raise ValueError(f"a budget needs at least one turn, one token and some CPU time, not {self}")
