"""Pairs from MBPP: the reference code against a mutant that fails an assert of the prompt.

Both are printed from their syntax tree, so that neither layout nor comments tell them apart. The sandbox
confirms that the reference keeps every assert, and that the mutant runs and breaks at least one.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from random import Random
from typing import Any

from research.smol.sources import Fields, mbpp_problems
from research.smol.splits import Split, rank, split_of
from tirjudge_sandbox import Limits, Program, Sandbox, Status

_LIMITS = Limits(wall_seconds=10.0, cpu_seconds=4.0)
_TRIES = 12
"""Mutants of a problem that are run."""

_SWAPS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add, ast.FloorDiv),
    ast.Div: (ast.FloorDiv, ast.Mult),
    ast.FloorDiv: (ast.Div, ast.Mod),
    ast.Mod: (ast.FloorDiv,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
}
_CALLS = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "sorted": "list",
    "append": "remove",
    "sum": "len",
}


def mutants(source: str, draw: Random) -> Iterator[str]:
    """Yield the program with one small change each, in drawn order and without duplicates."""
    tree = ast.parse(source)
    changes: list[tuple[int, int]] = []
    for place, node in enumerate(ast.walk(tree)):
        changes += [(place, variant) for variant in range(len(_variants(node)))]
    draw.shuffle(changes)
    seen = {ast.unparse(tree)}
    for place, variant in changes:
        other = copy.deepcopy(tree)
        # Walking a copy visits its nodes in the same order.
        node = next(islice(ast.walk(other), place, None))
        _variants(node)[variant]()
        text = ast.unparse(ast.fix_missing_locations(other))
        if text not in seen:
            seen.add(text)
            yield text


def _variants(node: ast.AST) -> list[Callable[[], None]]:
    """Return the changes of one node, each of which alters it in place."""
    found: list[Callable[[], None]] = []

    def change(name: str, value: Any) -> None:
        found.append(lambda: setattr(node, name, value))

    if isinstance(node, ast.Compare):
        for swap in _SWAPS.get(type(node.ops[0]), ()):
            change("ops", [swap(), *node.ops[1:]])
    if isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign):
        for swap in _SWAPS.get(type(node.op), ()):
            change("op", swap())
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        change("value", not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        change("value", node.value + 1)
        change("value", node.value - 1)
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        change("test", ast.UnaryOp(ast.Not(), node.test))
    if isinstance(node, ast.Call) and len(node.args) == 2:
        change("args", node.args[::-1])
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and node.slice.lower is not None:
        change("slice", ast.Slice(None, node.slice.upper, node.slice.step))
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in _CALLS:
        change("id", _CALLS[node.id])
    if isinstance(node, ast.For | ast.FunctionDef) and len(node.body) > 1:
        change("body", node.body[1:])
        change("body", [*node.body[:-2], node.body[-1]])
    return found


def prompt_of(problem: Fields) -> str:
    """Return the task in one of two wordings, which no training prompt uses, with its asserts."""
    asserts = "\n".join(problem["test_list"])
    if rank("wording", problem["task_id"]) % 2:
        return f"Solve this in Python: {problem['text']}\n\n{asserts}\n\nEach of these has to hold."
    return f"{problem['text']} These checks run behind your code, and none may fail:\n\n{asserts}"


async def kept(sandbox: Sandbox, problem: Fields, source: str) -> tuple[bool, ...] | None:
    """Return which asserts of a problem a program keeps; None if it does not run to its end."""
    lines = [problem["test_setup_code"], source, "kept = []"]
    for number, check in enumerate(problem["test_list"]):
        # A function of its own keeps an assert's names apart from the next one's.
        lines += [
            f"def check_{number}():",
            f"    {check}",
            "try:",
            f"    check_{number}()",
            "    kept.append(1)",
        ]
        lines += ["except Exception:", "    kept.append(0)"]
    lines.append("print(*kept)")
    done = await sandbox.run(Program(source="\n".join(lines)), _LIMITS)
    printed = re.fullmatch(r"[01]( [01])*", (done.stdout.strip().splitlines() or [""])[-1])
    if done.status is not Status.OK or printed is None:
        return None
    return tuple(one == "1" for one in printed[0].split())


async def pairs(split: Split, sandbox: Sandbox, problems: Sequence[Fields] | None = None) -> list[Fields]:
    """Return the pairs of a half of MBPP's problems 11 to 510, one for each problem with a usable mutant."""
    found = []
    for problem in mbpp_problems() if problems is None else problems:
        if split_of(problem["text"]) == split and (row := await _pair(sandbox, problem)) is not None:
            found.append(row)
    return found


async def _pair(sandbox: Sandbox, problem: Fields) -> Fields | None:
    number = problem["task_id"]
    reference = ast.unparse(ast.parse(problem["code"].replace("\r\n", "\n").replace("\r", "\n")))
    if not all(await kept(sandbox, problem, reference) or (False,)):
        return None
    for mutant in islice(mutants(reference, Random(rank("mutants", number))), _TRIES):
        result = await kept(sandbox, problem, mutant)
        if result is not None and not all(result):
            return _row(problem, reference, mutant, result)
    return None


def _row(problem: Fields, right: str, wrong: str, result: tuple[bool, ...]) -> Fields:
    name = f"mbpp-{problem['task_id']}"
    fence = "```python\n{}\n```"
    if rank("answer", name) % 2:
        fence = "Here is the code:\n\n```python\n{}\n```"
    responses = [fence.format(right), fence.format(wrong)]
    place = rank("position", name) % 2
    return {
        "id": name,
        "prompt": prompt_of(problem),
        "responses": responses[::-1] if place else responses,
        "label": place,
        "domain": "code",
        "families": ["mbpp"],
        "constraints": len(problem["test_list"]),
        "asserts_kept_by_wrong": sum(result),
    }
