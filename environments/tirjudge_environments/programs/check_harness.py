"""Programs around a judge's `check(response)`: each response is checked in a process of its own.

The judge writes the function before it sees a response. The harness, which is trusted, runs the function as
an isolated program (see the sandbox's module `isolated`) once for each response. It prints how many checks
each response keeps, `A 2 of 3`, or `2 of 3` for a single response. A check that fails, or whose result is
None, for any response counts for none, so the total is the same for all. A function that returns `False` or
`[]` before its list, as for a text that is no JSON, keeps none of the list's checks: no response can escape
the count by breaking the parse. The first error stands above the counts, or in their place.
"""

from __future__ import annotations

MOST_RESPONSES = 16
"""Isolated programs that one program may run."""
NOTHING = "nothing to check"
"""The output for a function that returns an empty list."""
ERROR = "error: "
"""The start of the first line of an output with an error."""
EMPTY = "def check(response):\n    return []\n"
"""The function that a turn without code counts as."""
_HARNESS = r'''
import ast
import json
import re

import isolated

BEFORE = """import collections
import datetime
import itertools
import json
import math
import re
import string
import unicodedata
"""
AFTER = """
import json as _json

_faults = []


def _item(check):
    try:
        return check()
    except Exception as error:
        _faults.append(f"{type(error).__name__}: {error}"[:300])


_found = check(response)
if not isinstance(_found, (list, tuple)):
    raise TypeError(f"check returned {type(_found).__name__}, and not a list")
print("\\n" + _json.dumps([[None if one is None else bool(one) for one in _found], *_faults[:1]]))
"""


def gives_up(value):
    return value and re.fullmatch(r"False|\[(False(, )?)*\]", ast.unparse(value))


def matches(item):
    ends = item.values if isinstance(item, ast.BoolOp) else [item]
    called = [getattr(getattr(one, "func", None), "attr", "") for one in ends]
    return not {"fullmatch", "match", "search"}.isdisjoint(called)


def apart(source):
    """Return the source with each item of the returned list evaluated apart, so that it fails alone.

    The items are those of a list behind `return`, or are appended to the list that is returned. An earlier
    return of `False` or `[]` breaks each of the listed checks. The None of a regular expression is False.
    """
    try:
        tree = ast.parse(source)
        named = [one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == "check"]
        body, last = list(ast.walk(named[-1])), named[-1].body[-1].value
        holders = []
        if isinstance(last, ast.List):
            holders = [last.elts]
            inner = [one for one in body if isinstance(one, ast.FunctionDef) and one is not named[-1]]
            others = {part for one in inner for part in ast.walk(one)}
            for one in body:
                early = isinstance(one, ast.Return) and one not in others and one.value is not last
                if early and gives_up(one.value):
                    one.value = ast.parse(str([False] * len(last.elts))).body[0].value
        if isinstance(last, ast.Name):
            called = [one for one in body if isinstance(one, ast.Call) and len(one.args) == 1]
            holders = [one.args for one in called if ast.unparse(one.func) == f"{last.id}.append"]
        for items in holders:
            inside = [part for one in items for part in ast.walk(one)]
            if not any(isinstance(one, (ast.NamedExpr, ast.Starred, ast.Yield)) for one in inside):
                texts = (f"({ast.unparse(one)}){' or False' * matches(one)}" for one in items)
                items[:] = [ast.parse(f"_item(lambda: {text})").body[0].value for text in texts]
        return ast.unparse(tree)
    except (SyntaxError, ValueError, IndexError, AttributeError, RecursionError):
        return source


def found(text):
    """Return the results for a response and the first error; without results, None and the error."""
    outcome = isolated.run(BEFORE + APART + AFTER, bindings={"response": text})
    if outcome.status == "ok":
        try:
            results, *faults = json.loads(outcome.stdout.rstrip().rpartition("\n")[2])
        except (TypeError, ValueError):
            results, faults = None, []
        if isinstance(results, list) and all(one in (True, False, None) for one in results):
            return results, str(*faults[:1])
        return None, "check ended the program"
    if outcome.status != "error":
        return None, f"check was stopped at its {outcome.status}"
    return None, (outcome.stderr.strip() or "check ended the program").rpartition("\n")[2][:300]


def names(count):
    letters = "ABCDEFGHIJKLMNOP"
    return [f"{letter} " for letter in letters[:count]] if count > 1 else [""]


APART = apart(CHECK)
shown = globals().get("responses") or [response]
lists, faults = zip(*map(found, shown))
fault = next(filter(None, faults), "")
lengths = [len(one) for one in lists if one is not None]
if len(set(lengths)) > 1 and len(lengths) == len(lists):
    fault = "check returned lists of different lengths: " + ", ".join(map(str, lengths))
if fault:
    print("error: " + " ".join(fault.split()))
if len(lengths) == len(lists) and len(set(lengths)) == 1:
    known = [each for each in zip(*lists) if None not in each]
    for name, kept in zip(names(len(lists)), zip(*known)):
        print(f"{name}{sum(kept)} of {len(known)}")
    if not known and not fault:
        print("nothing to check")
'''


def completed(source: str) -> str:
    """Return the program that runs the function of `source` on each response and prints the counts."""
    return f"CHECK = {source!r}\n{_HARNESS}"
