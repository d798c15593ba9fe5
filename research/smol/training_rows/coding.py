"""Rows about MBPP's problems, with the asserts in the prompt: reference code against copies with an error."""

from __future__ import annotations

import ast
import asyncio
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from research.smol.training_rows.requests import BadSources, read_rows
from research.smol.training_rows.rows import IMPORTS, LISTWISE, POINTWISE, Draft, output_lines
from tirjudge_sandbox import Limits, Program, Status, open_sandbox
from tirjudge_sandbox.base import Sandbox
from tirjudge_training.corpora.decontamination import OverlapIndex

EVALUATED, HELD_OUT, TRAINED = range(11, 511), range(511, 601), range(601, 975)
"""MBPP's own split by task id: test, validation, training."""
FAMILY = "mbpp"
LIMITS = Limits(wall_seconds=4, cpu_seconds=1)
_MOST_CHARS = 600
_CHECK = (
    IMPORTS
    + r"""
tests = re.findall("assert .*", prompt)
def check(r):
    code = "\n".join(re.findall(r"```\w*\n(.*?)```", r, re.S)) or r
    kept = []
    for test in tests:
        try:
            exec(code + "\n" + test, {})
            kept.append(True)
        except Exception:
            kept.append(False)
    return kept
"""
)
_PROMPTS = (
    "{text}\n\nYour code should satisfy these tests:\n{tests}",
    "{text} Your code should pass these tests:\n\n{tests}",
    "{text}\n\n{tests}",
    "You are a Python programmer. {text} It has to pass:\n{tests}",
    "{text}\nThe following asserts must hold:\n{tests}",
    "Please help me with this task: {text}\n\nI will run:\n{tests}",
    "{text}\n\n```python\n{tests}\n```",
    "My tests are:\n{tests}\n\nTask: {text}",
)
_ANSWERS = (
    "{code}",
    "```python\n{code}\n```",
    "```python\n{code}\n```",
    "```\n{code}\n```",
    "Here is the function:\n\n```python\n{code}\n```",
    "Sure! You can solve it like this.\n\n```python\n{code}\n```\n\nThe function passes the tests.",
    "```python\n{code}\n```\n\nIt goes through the input once and returns the result.",
    "This should work:\n\n```python\n{code}\n```\n\nLet me know if you need more.",
)
_SWAPS: Sequence[tuple[type[ast.AST], type[ast.AST]]] = (
    (ast.Add, ast.Sub),
    (ast.Sub, ast.Add),
    (ast.Mult, ast.Add),
    (ast.FloorDiv, ast.Mult),
    (ast.Div, ast.Mult),
    (ast.Mod, ast.FloorDiv),
    (ast.Lt, ast.LtE),
    (ast.LtE, ast.Lt),
    (ast.Gt, ast.GtE),
    (ast.GtE, ast.Gt),
    (ast.Eq, ast.NotEq),
    (ast.NotEq, ast.Eq),
    (ast.And, ast.Or),
    (ast.Or, ast.And),
)


@dataclass(frozen=True)
class Problem:
    """One problem of MBPP."""

    id: int
    text: str
    code: str
    tests: str
    setup: str


def read_problems(folder: Path) -> list[Problem]:
    """Return MBPP's problems. Raises BadSources."""
    path = folder / "mbpp" / "mbpp.jsonl"
    try:
        return [
            Problem(
                row["task_id"],
                row["text"].strip(),
                row["code"].replace("\r\n", "\n").replace("\t", "    ").strip(),
                "\n".join(row["test_list"]),
                row["test_setup_code"],
            )
            for row in read_rows(path)
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise BadSources(f"{path}: not the file of MBPP ({error!r})") from None


def usable(
    problems: Sequence[Problem], ids: range, index: OverlapIndex, dropped: Counter[str]
) -> list[Problem]:
    """Return the problems of a split that are short enough and that no benchmark shares."""
    found = []
    for problem in problems:
        if problem.id not in ids or problem.setup or len(problem.tests) + len(problem.text) > _MOST_CHARS:
            continue
        overlap = index.find([problem.text, problem.tests])
        if overlap is None:
            found.append(problem)
        else:
            dropped[overlap.benchmark] += 1
    return found


Pool = tuple[Problem, list[tuple[str, int]]]
"""A problem with codes and the number of asserts that each of them keeps, the reference first."""


def coding_pools(problems: Sequence[Problem], rng: random.Random) -> list[Pool]:
    """Return the problems whose reference keeps all asserts, with broken copies.

    Raises SandboxUnavailable.
    """
    return asyncio.run(_pools(problems, rng))


async def _pools(problems: Sequence[Problem], rng: random.Random) -> list[Pool]:
    codes = [[problem.code, *_broken(problem.code, rng)] for problem in problems]
    async with open_sandbox("local", preload=()) as box:
        counted = await asyncio.gather(
            *(
                asyncio.gather(*(_count(box, problem, code) for code in one))
                for problem, one in zip(problems, codes, strict=True)
            )
        )
    found = []
    for problem, one, counts in zip(problems, codes, counted, strict=True):
        of = problem.tests.count("assert ")
        pool = [
            (code, kept) for code, kept in zip(one, counts, strict=True) if kept is not None and kept < of
        ]
        if counts[0] == of and len(pool) > 2:
            found.append((problem, [(problem.code, of), *pool]))
    return found


def coding_drafts(pools: Sequence[Pool], environments: Sequence[str], rng: random.Random) -> list[Draft]:
    """Return a row for each of these formats."""
    drafts = []
    order = rng.sample(pools, len(pools))
    for turn, environment in enumerate(environments if pools else ()):
        problem, pool = order[turn % len(order)]
        count = rng.choice([3, 4]) if environment == LISTWISE else 2
        drafts.append(
            _draft(problem, [pool[0], *rng.sample(pool[1:], count - 1)], pool[0][1], environment, rng)
        )
    return drafts


def _draft(
    problem: Problem, chosen: list[tuple[str, int]], of: int, environment: str, rng: random.Random
) -> Draft:
    rng.shuffle(chosen)
    same = rng.choice(_ANSWERS)
    answers = [
        (same if rng.random() < 0.5 else rng.choice(_ANSWERS)).replace("{code}", _formatted(code, rng))
        for code, _ in chosen
    ]
    kept = [count for _, count in chosen]
    return Draft(
        prompt=rng.choice(_PROMPTS).replace("{tests}", problem.tests).replace("{text}", problem.text),
        responses=answers,
        label=kept.index(max(kept)),
        domain="code",
        environment=environment,
        families=[FAMILY],
        source="mbpp",
        program=_CHECK + output_lines(environment),
        kept=kept,
        of=of,
    )


async def _count(box: Sandbox, problem: Problem, code: str) -> int | None:
    """Return how many asserts hold; None if the program ends otherwise or prints more than the count."""
    bindings = {"prompt": problem.tests, "response": code}
    ran = await box.run(Program(source=_CHECK + output_lines(POINTWISE), bindings=bindings), LIMITS)
    printed = re.fullmatch(r"(\d+) of \d+", ran.stdout.strip())
    return int(printed[1]) if ran.status is Status.OK and printed else None


def _formatted(code: str, rng: random.Random) -> str:
    # The copies were written by `ast`, so that the reference must not be known by its style.
    try:
        return ast.unparse(ast.parse(code)) if rng.random() < 0.7 else code
    except SyntaxError:
        return code


def _broken(code: str, rng: random.Random) -> list[str]:
    """Return different copies of the code with one change each, most of which are errors."""
    try:
        nodes = list(ast.walk(ast.parse(code)))
    except SyntaxError:
        return []
    # A changed condition of a loop would rarely end.
    loops = {id(part) for loop in nodes if isinstance(loop, ast.While) for part in ast.walk(loop)}
    places = [place for place, node in enumerate(nodes) if id(node) not in loops]
    rng.shuffle(places)
    found: dict[str, None] = {}
    for place in places:
        tree = ast.parse(code)
        node = list(ast.walk(tree))[place]
        if _change(node, rng):
            try:
                changed = ast.unparse(ast.fix_missing_locations(tree))
            except (ValueError, AttributeError):
                continue
            found[changed] = None
        if len(found) == 5:
            break
    lines = code.split("\n")
    if len(lines) > 3:
        # An answer that was cut off.
        found["\n".join(lines[: len(lines) // 2])] = None
    found[re.sub(r"def (\w+)\(", r"def \1_new(", code)] = None
    return list(found)


def _change(node: ast.AST, rng: random.Random) -> bool:
    """Change a node in place; returns False if the kind of node is left alone."""
    if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp):
        for before, after in _SWAPS:
            if isinstance(node.op, before):
                node.op = after()  # type: ignore[assignment]
                return True
    if isinstance(node, ast.Compare):
        for before, after in _SWAPS:
            if isinstance(node.ops[0], before):
                node.ops[0] = after()  # type: ignore[call-overload]
                return True
    if isinstance(node, ast.Constant) and type(node.value) is int:
        node.value += rng.choice([-1, 1])
        return True
    if isinstance(node, ast.Return) and node.value is not None and rng.random() < 0.3:
        node.value = ast.Constant(value=None)
        return True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        other = {"max": "min", "min": "max", "sum": "max", "sorted": "list", "set": "list", "len": "sum"}
        if node.func.id in other:
            node.func.id = other[node.func.id]
            return True
    return False
