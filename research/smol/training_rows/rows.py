"""Rows of the training data: their fields, and the demonstration's program and its run in the sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from research.smol.training_rows.families.base import Constraint
from tirjudge_environments.orders import letters
from tirjudge_sandbox import Limits, Program, Sandbox, Status, open_sandbox

PAIRWISE, LISTWISE, POINTWISE = "tir-pairwise", "tir-listwise", "tir-pointwise"
IMPORTS = "import json, re"
"""The first line of every program: always the same, so that a model never leaves out a needed one."""

Shape = Literal["list", "lines", "quoted", "rules"]
"""Checks stand in a line, one a line, one a line below the words of its rule, or in a line below all."""

LIMITS = Limits(wall_seconds=10, cpu_seconds=3)
_BATCH = 400


@dataclass
class Draft:
    """A row before its program has run in the sandbox."""

    prompt: str
    responses: list[str]
    label: int
    domain: str
    environment: str
    families: list[str]
    source: str
    program: str | None = None
    kept: list[int] | None = None
    of: int | None = None
    tags: tuple[str, ...] = ()
    """Further facts, such as the attack in a response."""
    first: str | None = None
    """A program that runs first and ends in a tie; None without one."""

    def printed(self) -> list[str]:
        """Return what the program must print, for each of its runs."""
        if self.kept is None:
            return []
        counts = [f"{kept} of {self.of}" for kept in self.kept]
        if self.environment == POINTWISE:
            return counts
        return [
            "\n".join(f"{name} {count}" for name, count in zip(letters(len(counts)), counts, strict=True))
        ]

    def bindings(self) -> list[dict[str, Any]]:
        """Return the variables of each run of the program, as the formats bind them."""
        if self.environment == POINTWISE:
            return [{"prompt": self.prompt, "response": response} for response in self.responses]
        named = {f"response_{chr(97 + at)}": response for at, response in enumerate(self.responses)}
        return [{"prompt": self.prompt, "responses": self.responses, **named}]

    def for_checks(self) -> Draft:
        """Return the row for a judge that writes `check` before it sees the responses.

        Single responses become a pair, since the first turn about them is the same. Functions that `check`
        calls stand behind it, so that a judge names what a rule is about before it says how to find that.
        """
        program = self.program and self.program.removesuffix(f"\n{output_lines(self.environment)}")
        if program and (parts := program.partition("\ndef check(r):"))[1]:
            imports, newline, called = parts[0].partition("\n")
            program = f"{imports}{parts[1]}{parts[2]}{newline}{called}"
        return replace(
            self,
            environment="checks-listwise" if self.environment == LISTWISE else "checks-pairwise",
            program=program,
        )

    def row(self, id: str) -> dict[str, Any]:
        """Return the row as it is stored."""
        return {
            "id": id,
            "prompt": self.prompt,
            "responses": self.responses,
            "label": self.label,
            "domain": self.domain,
            "environment": self.environment,
            "families": self.families,
            **({"tags": list(self.tags)} if self.tags else {}),
            "demonstration": {
                **({"first": self.first} if self.first else {}),
                "program": self.program,
                "kept": self.kept,
                "of": self.of,
            },
        }


def unique_best(kept: Sequence[int]) -> bool:
    """Return True if exactly one response keeps the most."""
    return list(kept).count(max(kept)) == 1


def program(
    constraints: Sequence[Constraint], environment: str, shape: Shape = "list", prompt: str = ""
) -> str:
    """Return the demonstration's program, with the checks in the order of the prompt.

    A rule is quoted only if the prompt holds its words, so that rows are the same for every shape.
    """
    checks = [constraint.family.expression(constraint.given) for constraint in constraints]
    lines = [IMPORTS]
    # Several families may use the same function.
    lines += dict.fromkeys(one for each in constraints for one in each.family.definitions(each.given))
    words = [""] * len(checks)
    if shape in ("quoted", "rules"):
        found = (quotation(prompt, constraint.wording) for constraint in constraints)
        words = [f"# {one}" if one else "" for one in found]
    if shape == "rules":
        lines += filter(None, words)
    lines.append("def check(r):")
    if shape in ("lines", "quoted"):
        body = [
            line for word, check in zip(words, checks, strict=True) for line in (word, f"{check},") if line
        ]
        lines += ["    return [", *(f"        {line}" for line in body), "    ]"]
    else:
        lines.append(f"    return [{', '.join(checks)}]")
    return "\n".join([*lines, output_lines(environment)])


def quotation(prompt: str, wording: str) -> str:
    """Return the words of the prompt that are a wording, as the prompt writes them; empty if it has none."""
    wanted = wording.strip().rstrip(".!")
    at = prompt.lower().find(wanted.lower())
    return prompt[at : at + len(wanted)] if at >= 0 and "\n" not in wanted else ""


def output_lines(environment: str) -> str:
    """Return the end of every program, which prints how much each response keeps, under its letter."""
    if environment == POINTWISE:
        return 'print(sum(check(response)), "of", len(check(response)))'
    # A small model copies a letter from a line more reliably than it counts positions in a row of numbers.
    return 'for name, r in zip("ABCD", responses):\n    print(name, sum(check(r)), "of", len(check(r)))'


def confirmed(drafts: Sequence[Draft], say: Callable[[str], None]) -> list[bool]:
    """Return for each draft whether its program prints exactly what the verifiers count.

    A draft without a program is confirmed. Raises SandboxUnavailable.
    """
    return asyncio.run(_confirmed(drafts, say))


async def _confirmed(drafts: Sequence[Draft], say: Callable[[str], None]) -> list[bool]:
    found: list[bool] = []
    async with open_sandbox("local", preload=()) as box:
        for start in range(0, len(drafts), _BATCH):
            batch = drafts[start : start + _BATCH]
            found += await asyncio.gather(*(_agrees(box, draft) for draft in batch))
            say(f"programs: {len(found):,} of {len(drafts):,} rows run")
    return found


async def _agrees(box: Sandbox, draft: Draft) -> bool:
    if draft.program is None:
        return True
    outputs = await asyncio.gather(*(_output(box, draft.program, bindings) for bindings in draft.bindings()))
    return outputs == draft.printed()


async def _output(box: Sandbox, source: str, bindings: dict[str, object]) -> str | None:
    ran = await box.run(Program(source=source, bindings=bindings), LIMITS)
    return ran.stdout.strip() if ran.status is Status.OK else None
