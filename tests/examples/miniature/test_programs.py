"""The reference judge's programs, run in the sandbox, agree with the verifiers."""

from __future__ import annotations

from random import Random

import pytest

from examples.miniature.constraints import CHECKABLE, HELD_OUT, TRAIN, Family
from tirjudge_environments import TirListwise, TirPairwise, TirPointwise
from tirjudge_environments.types import Completion, Finish, JudgeTask, Message, RunCode
from tirjudge_sandbox import Program, open_sandbox

FORMATS = ((TirPointwise, "pointwise", 1), (TirPairwise, "pairwise", 2), (TirListwise, "listwise", 4))


def judged(family: Family, shown: str, count: int, seed: int) -> tuple[Program, list[bool]]:
    """Return a program with a session's variables, and the verifier's result for each response."""
    rng, split = Random(seed), (TRAIN, HELD_OUT)[seed % 2]
    constraint = family.draw(rng, split)
    candidates = tuple(constraint.write(rng, split, good=rng.random() < 0.5) for _ in range(count))
    task = JudgeTask(id=str(seed), prompt=(Message("user", constraint.text),), candidates=candidates)
    environment = next(kind for kind, name, _ in FORMATS if name == shown)(prompts="mini")
    view = environment.views(task)[0]
    text = f"```python\n{family.program(shown)}\n```\n"
    reading = environment.read(task, view, Completion(text=text, finish=Finish.STOP))
    assert isinstance(reading, RunCode)
    verdicts = [constraint.holds(candidates[index]) for index in view.order]
    return Program(source=reading.source, bindings=reading.bindings), verdicts


@pytest.mark.slow
async def test_programs_print_the_verifiers_answers() -> None:
    async with open_sandbox(preload=()) as sandbox:
        for family in CHECKABLE:
            for seed in range(4):
                for _, shown, count in FORMATS:
                    program, expected = judged(family, shown, count, seed)
                    execution = await sandbox.run(program)
                    assert execution.stdout.split() == printed(shown, expected), (family.name, program)


def printed(shown: str, expected: list[bool]) -> list[str]:
    """Return the expected output: True or False for each response, or the letters of passing responses."""
    if shown == "listwise":
        return [letter for letter, kept in zip("ABCD", expected, strict=True) if kept]
    return [str(kept) for kept in expected]
