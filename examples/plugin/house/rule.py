"""A rule-based judge, a baseline for models: the same program decides on every response."""

from __future__ import annotations

from pathlib import Path

from tirjudge.generation import GeneratorFailed, Sampling
from tirjudge_environments import By, Completion, Context, Finish


class Rule:
    """A generator that requests the program of a file and passes a response if it prints True.

    It answers in the form of the format `checked`.
    """

    encoder = None
    """None, since a rule has no tokens."""

    def __init__(self, model: str, *, max_rows: int = 32):
        """Read the program from the file `model`; raises GeneratorFailed if it cannot be read."""
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
        """Do nothing: there are no resources to release."""
