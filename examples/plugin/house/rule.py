"""A judge by rule, the floor that a model should pass: the same program decides on every response."""

from __future__ import annotations

from pathlib import Path

from tirjudge.generation import GeneratorFailed, Sampling
from tirjudge_environments import By, Completion, Context, Finish


class Rule:
    """Asks for the program of a file, and passes a response if that prints True. For the format `checked`."""

    encoder = None
    """It has no tokens."""

    def __init__(self, model: str, *, max_rows: int = 32):
        """`model` is the file; any number of rows may ask at once. Raises GeneratorFailed without one."""
        self.model = model
        try:
            self._program = Path(model).read_text(encoding="utf-8")
        except OSError as error:
            raise GeneratorFailed(f"no rule at {model!r}: {error.strerror}") from error

    async def generate(self, context: Context, sampling: Sampling) -> Completion:
        outputs = [segment.text for segment in context.segments if segment.by is By.SANDBOX]
        if not outputs:
            return Completion(text=f"```python\n{self._program}```\n", finish=Finish.END)
        answer = "pass" if "True" in outputs[-1] else "fail"
        return Completion(text=f"<check>{answer}</check>", finish=Finish.END)

    async def close(self) -> None:
        """Nothing is held."""
