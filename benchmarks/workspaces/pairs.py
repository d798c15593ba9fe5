"""Pairs of workspaces: tables, JSON, modules and patches; one of a pair is right, one has a planted fault."""

from __future__ import annotations

import base64
import csv
import difflib
import io
import json
import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from benchmarks.workspaces.modules import MODULES, Module

Files = dict[str, str]
"""Texts by their paths."""

FIRST = ("Ada", "Bo", "Cem", "Dina", "Eva", "Finn", "Gül", "Hana", "Ivo", "Jun", "Kim", "Lea", "Mio", "Noor")
WORDS = ("All done.", "The files are in place.", "Finished; everything was checked twice.", "Ready.")


@dataclass(frozen=True)
class Pair:
    """A task with the workspaces of two agents."""

    kind: str
    fault: str
    """The mistake in the second workspace, in a few words."""
    prompt: str
    given: Files
    right: Files
    wrong: Files


def tables(draw: random.Random) -> Pair:
    """Totals of orders by customer; the label follows from sums in cents."""
    customers = draw.sample(FIRST, draw.randint(4, 9))
    orders = [
        (number, draw.choice(customers), draw.choice(("paid", "paid", "refunded")), draw.randint(101, 99_999))
        for number in range(draw.randint(30, 80))
    ]
    orders += [(len(orders) + n, one, "paid", draw.randint(101, 9_999)) for n, one in enumerate(customers)]
    orders += [(len(orders), customers[0], "refunded", draw.randint(101, 9_999))]
    totals = _totals(orders, {"paid"})
    fault = draw.choice(("refunds counted", "customer left out", "a cent off", "swapped", "customer twice"))
    lines = [(name, totals[name]) for name in sorted(totals)]
    wrong = list(lines)
    if fault == "refunds counted":
        everything = _totals(orders, {"paid", "refunded"})
        wrong = [(name, everything[name]) for name in sorted(everything)]
    elif fault == "customer left out":
        wrong.pop(draw.randrange(len(wrong)))
    elif fault == "a cent off":
        place = draw.randrange(len(wrong))
        wrong[place] = (wrong[place][0], wrong[place][1] + draw.choice((-1, 1)))
    elif fault == "swapped":
        (first, a), (second, b) = wrong[:2]
        wrong[:2] = [(first, b), (second, a)] if a != b else [(first, a + 1), (second, b)]
    else:
        wrong.append(draw.choice(wrong))
    head = ("order", "customer", "status", "amount")
    given = {"orders.csv": _csv(head, [(*one[:3], _money(one[3])) for one in orders])}
    prompt = (
        "orders.csv lists orders. Write report/totals.csv with the columns customer and total: one line for "
        "each customer who has a paid order, with the sum of the paid orders alone."
    )
    written = [_csv(("customer", "total"), [(n, _money(t)) for n, t in one]) for one in (lines, wrong)]
    return Pair(
        "tables",
        fault,
        prompt,
        given,
        *({"report/totals.csv": one, "notes.md": _notes(draw)} for one in written),
    )


def _totals(orders: Sequence[tuple[int, str, str, int]], counted: set[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for _, customer, status, cents in orders:
        if status in counted:
            found[customer] = found.get(customer, 0) + cents
    return found


def _money(cents: int) -> str:
    return str(Decimal(cents) / 100)


def _csv(head: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *lines])
    return text.getvalue()


def documents(draw: random.Random) -> Pair:
    """A configuration merged with an override; the label follows from a merge of paths, not of trees."""
    names = draw.sample(("host", "port", "debug", "cache", "log", "retry", "auth", "limits", "paths"), 6)

    def tree(depth: int) -> dict[str, Any]:
        return {
            name: tree(depth - 1)
            if depth and draw.random() < 0.4
            else draw.choice((1, 2, 30, "on", "off", True, [1, 2]))
            for name in draw.sample(names, draw.randint(3, 5))
        }

    base = tree(2) | {"deep": {"keep": 1, "change": "x", "drop": 2, "list": [1, 2]}, "drop": 3}
    override = tree(1) | {
        "deep": {"change": "y", "drop": None, "list": [3]},
        "drop": None,
        "new": draw.randint(1, 9),
    }
    merged = _merged(base, override)
    fault = draw.choice(("shallow", "nulls kept", "key lost", "number as text", "lists joined"))
    wrong = json.loads(json.dumps(merged))
    if fault == "shallow":
        wrong = {key: value for key, value in (base | override).items() if value is not None}
    elif fault == "nulls kept":
        wrong["deep"]["drop"] = None
    elif fault == "key lost":
        del wrong["deep"]["keep"]
    elif fault == "number as text":
        wrong["new"] = str(wrong["new"])
    else:
        wrong["deep"]["list"] = [1, 2, 3]
    prompt = (
        "Merge override.json into base.json and write merged.json. An object is merged key by key at every "
        "depth; any other value of the override replaces that of the base; a key that the override sets to "
        "null is left out."
    )
    given = {"base.json": json.dumps(base, indent=2), "override.json": json.dumps(override, indent=2)}
    indent = draw.choice((None, 2))
    return Pair(
        "json",
        fault,
        prompt,
        given,
        *(
            {"merged.json": json.dumps(one, indent=indent), "log.txt": _notes(draw)}
            for one in (merged, wrong)
        ),
    )


def _merged(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Merge by the paths of the leaves; the trees here have no empty objects."""
    leaves = dict(_leaves(base))
    for path, value in _leaves(override):
        for other in [one for one in leaves if one[: len(path)] == path or path[: len(one)] == one]:
            del leaves[other]
        if value is not None:
            leaves[path] = value
    made: dict[str, Any] = {}
    for path, value in leaves.items():
        place = made
        for name in path[:-1]:
            place = place.setdefault(name, {})
        place[path[-1]] = value
    return made


def _leaves(tree: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*above, name))
        else:
            yield (*above, name), value


def modules(draw: random.Random) -> Pair:
    """A function as a module; the label follows from running further cases."""
    name, fault, sources = _sources(draw)
    module = MODULES[name]
    given = {"task.json": _task(name, module, draw)}
    prompt = (
        f"Write {name}.py with the function {name}{module.signature}: {module.about} task.json has cases."
    )
    return Pair(
        "modules", fault, prompt, given, *({f"{name}.py": one, "README.md": _notes(draw)} for one in sources)
    )


def patches(draw: random.Random) -> Pair:
    """A fault to be mended in a given module; the workspaces are given as diffs."""
    name, fault, (right, wrong) = _sources(draw)
    module = MODULES[name]
    broken = module.wrong(draw.choice([one for one in sorted(module.faults) if one != fault]))
    given = {
        "task.json": _task(name, module, draw),
        f"{name}.py": broken,
        "setup.cfg": "[metadata]\nname = x\n",
    }
    prompt = (
        f"The function {name}{module.signature} of {name}.py is wrong: {module.about} Mend it and change no "
        "other file; task.json has cases."
    )
    return Pair("patches", fault, prompt, given, {f"{name}.py": right}, {f"{name}.py": wrong})


def _sources(draw: random.Random) -> tuple[str, str, tuple[str, str]]:
    name = draw.choice(sorted(MODULES))
    module = MODULES[name]
    fault = draw.choice(sorted(module.faults))
    right, wrong = draw.choice(module.right), module.wrong(fault)
    assert _passes(right, name, module) == len(module.cases), f"{name}: the right module is wrong"
    assert _passes(wrong, name, module) < len(module.cases), f"{name}, {fault}: the wrong module is right"
    return name, fault, (right, wrong)


def _passes(source: str, name: str, module: Module) -> int:
    """Count the cases that a module of this benchmark passes."""
    space: dict[str, Any] = {}
    exec(source, space)
    passed = 0
    for arguments in module.cases:
        try:
            passed += space[name](*json.loads(json.dumps(arguments))) == module.truth(*arguments)
        except Exception:
            continue
    return passed


def _task(name: str, module: Module, draw: random.Random) -> str:
    cases = [{"arguments": one, "result": module.truth(*one)} for one in module.cases]
    draw.shuffle(cases)
    return json.dumps({"module": f"{name}.py", "function": name, "cases": cases}, ensure_ascii=False)


def _notes(draw: random.Random) -> str:
    return "\n".join(draw.choice(WORDS) for _ in range(draw.randint(1, 4))) + "\n"


KINDS: Sequence[Callable[[random.Random], Pair]] = (tables, documents, modules, patches)


def pairs(count: int, seed: int) -> Iterator[Pair]:
    """Yield `count` pairs, as many of each kind."""
    for number in range(count):
        yield KINDS[number % len(KINDS)](random.Random(f"{seed}-{number}"))


def write_rows(folder: Path, count: int, seed: int) -> list[dict[str, Any]]:
    """Write `rows.jsonl`, and beside it the folders and archives that its rows name; return the rows.

    The right workspace is the first response of every second row, and which of them talks more is drawn.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for number, pair in enumerate(pairs(count, seed)):
        draw = random.Random(f"{seed}-form-{number}")
        label = draw.randrange(2)
        ordered = (pair.right, pair.wrong) if label == 0 else (pair.wrong, pair.right)
        texts = draw.sample(WORDS, 2)
        rows.append(
            {
                "id": f"{pair.kind}-{number}",
                "domain": pair.kind,
                "tags": [pair.fault],
                "prompt": pair.prompt,
                "responses": texts,
                "label": label,
                "prompt_files": {path: {"text": text} for path, text in pair.given.items()},
                "files": [
                    _given(pair, one, folder, f"w{number}-{side}", draw)
                    for side, one in zip("ab", ordered, strict=True)
                ],
            }
        )
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return rows


def _given(pair: Pair, files: Files, folder: Path, name: str, draw: random.Random) -> Any:
    """Return a workspace as a row gives it: a diff, contents, or the name of a folder or an archive."""
    if pair.kind == "patches":
        ((path, text),) = files.items()
        old, new = pair.given[path].splitlines(keepends=True), text.splitlines(keepends=True)
        rest = {other: {"text": given} for other, given in pair.given.items() if other != path}
        return rest | {path: {"diff": "".join(difflib.unified_diff(old, new, path, path))}}
    form = draw.choice(("text", "base64", "folder", "zip", "gztar"))
    if form == "text":
        return {path: {"text": text} for path, text in files.items()}
    if form == "base64":
        return {path: {"base64": base64.b64encode(text.encode()).decode()} for path, text in files.items()}
    for path, text in files.items():
        (folder / name / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / name / path).write_text(text, encoding="utf-8")
    if form == "folder":
        return name
    made = shutil.make_archive(str(folder / name), form, folder / name)
    shutil.rmtree(folder / name)
    return Path(made).name
