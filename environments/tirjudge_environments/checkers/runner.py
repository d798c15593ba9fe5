"""Checkers run in the sandbox: each response of each row in a program of its own, see `programs.checks`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tirjudge_environments.checkers.file import Checker
from tirjudge_environments.checkers.rules import Value
from tirjudge_environments.programs.checks import Check, CheckOutcome, outcomes
from tirjudge_sandbox import Program, Sandbox


class CheckersDown(RuntimeError):
    """The sandbox failed, which says nothing about a checker; the message is one line."""


@dataclass(frozen=True, slots=True)
class Case:
    """One response for a checker."""

    response: str
    prompt: Any
    """The conversation as JSON values, see `messages.conversation_data`."""
    values: Mapping[str, Value] = field(default_factory=dict)
    """Values of the rule's fields."""


def program_of(checker: Checker, case: Case) -> Program:
    """Return the program that runs a checker on one response, for a record that others can run again."""
    values = "".join(f", {name}={value!r}" for name, value in case.values.items())
    source = f"{checker.source}\n\nprint(check(response, prompt{values}))\n"
    return Program(source, bindings={"response": case.response, "prompt": case.prompt})


class CheckerRunner:
    """Runs checkers in an open sandbox; `seed` draws the order in which responses are checked."""

    def __init__(self, sandbox: Sandbox, *, seed: int = 0) -> None:
        self._sandbox, self._seed = sandbox, seed

    async def run(self, checker: Checker, cases: Sequence[Case]) -> list[CheckOutcome]:
        """Return the outcome of each case; raises CheckersDown if the sandbox fails."""
        checks = [Check(checker.source, (case.response, case.prompt), case.values) for case in cases]
        found = await outcomes(self._sandbox, checks, seed=self._seed)
        if down := next((one.down for one in found if one.down), ""):
            raise CheckersDown(down)
        return found
