"""Checks of stored programs whose words the prompt does not hold: how the decided rows change without them.

    python -m research.smol.invented FOLDER --sets SETS --only natural

Reads what `research.smol.results` wrote, in the development half. Of each row's last program, checks with a
word that the prompt does not hold and repeated checks are left out, unless none is left, and the program runs
again in the sandbox. Regular expressions are no words.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

from research.smol.judging import judged_rows
from research.smol.sets import NAMES
from research.smol.summary import Judged, counts
from tirjudge_sandbox import Limits, Program, Sandbox, Status, open_sandbox

_WORD = re.compile(r"[^\W\d_]{3}")
_FENCE = re.compile(r"^```python\n|\n?```\s*$")
_LIMITS = Limits(wall_seconds=10, cpu_seconds=3)


def held_checks(source: str, prompt: str) -> str:
    """Return the program with only the checks whose words the prompt holds, each once, or as it is."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return source
    text = " ".join(prompt.casefold().split())
    for node in ast.walk(tree):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.List):
            held = {
                ast.dump(check): check
                for check in node.value.elts
                if all(" ".join(word.casefold().split()) in text for word in _words(check))
            }
            if held and len(held) < len(node.value.elts):
                node.value.elts = list(held.values())
                return ast.unparse(tree)
    return source


def _words(check: ast.expr) -> Iterator[str]:
    """Yield the texts of a check that are no patterns of a regular expression."""
    patterns = {
        id(part)
        for call in ast.walk(check)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        if isinstance(call.func.value, ast.Name) and call.func.value.id == "re"
        for argument in call.args
        for part in ast.walk(argument)
    }
    for node in ast.walk(check):
        text = node.value if isinstance(node, ast.Constant) and id(node) not in patterns else None
        if isinstance(text, str) and _WORD.search(text):
            yield text


async def choices(judged: list[Judged]) -> list[tuple[bool, bool | None, bool | None]]:
    """Return of each row whether its program changes, and if it chooses rightly before and after it."""
    async with open_sandbox("local", preload=()) as sandbox:
        return [await _choices(sandbox, one) for one in judged]


async def _choices(sandbox: Sandbox, judged: Judged) -> tuple[bool, bool | None, bool | None]:
    row, line = judged
    view = line["views"][0] if line else {"segments": (), "order": ()}
    programs = [one["text"] for one in view["segments"] if one["kind"] == "program"]
    if not programs:
        return False, None, None
    source = _FENCE.sub("", programs[-1])
    changed = held_checks(source, row["prompt"])
    responses = [row["responses"][at] for at in view["order"]]
    right = []
    for one in (source, changed):
        names = {f"response_{chr(97 + at)}": response for at, response in enumerate(responses)}
        bindings = {"prompt": row["prompt"], "responses": responses, **names}
        ran = await sandbox.run(Program(source=one, bindings=bindings), _LIMITS)
        found = [float(ran.stdout[a:b]) for a, b in counts(ran.stdout)] if ran.status is Status.OK else []
        clear = len(found) == len(responses) and found.count(max(found)) == 1
        right.append(view["order"][found.index(max(found))] == row["label"] if clear else None)
    return changed != source, right[0], right[1]


def main() -> None:
    """Print one line for each set."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, help="the folder that research.smol.results wrote")
    parser.add_argument("--sets", type=Path, required=True)
    parser.add_argument("--only", choices=NAMES, action="append", required=True, help="repeatable")
    given = parser.parse_args()
    for name in given.only:
        file = given.sets / f"{name}.development.jsonl"
        found = asyncio.run(
            choices(judged_rows(file, given.results / f"{name}.development.verdicts.jsonl", None))
        )
        sides = [[one[side] for one in found if one[side] is not None] for side in (1, 2)]
        before, after = (f"{len(side)} ({sum(map(bool, side))} right)" for side in sides)
        print(
            f"{name}: {sum(one[0] for one in found)} of {len(found)} programs change; "
            f"they decide {before}, then {after}"
        )


if __name__ == "__main__":
    main()
