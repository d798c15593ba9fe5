"""Programs around a judge's `check(response)`: each response is checked in a process of its own.

The judge writes the function before it sees a response. The harness, which is trusted, runs the function as
an isolated program (see the sandbox's module `isolated`) once for each response. It prints how many checks
each response keeps, `A 2 of 3`, or `2 of 3` for a single response. A check that fails, or that the function
sets to None, for any response counts for none, so the total is the same for all. A function that returns
`False` or `[]` in place of its list, as for a text that is no JSON, keeps none of the list's checks: no
response can escape the count by breaking the parse. The first error stands above the counts, or in their
place, without what it repeats of a response.
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
import hashlib
import json
import re

import isolated

BEFORE = """import collections
import datetime
import itertools
import json
import math
import os as _os
import re
import string
import unicodedata
import warnings

warnings.simplefilter("ignore")  # a warning would hide the error, which is the last line
_response = response

def _item(check):
    try:
        return check()
    except Exception as error:
        _faults.append(f"{type(error).__name__}: {error}"[:300])

def _refused(*given):
    _os.write(2, b"code runs by `import isolated; isolated.run(code).stdout`, not by exec, eval or compile")
    _os._exit(1)  # no except or finally goes on from here

_run, exec, eval, compile = exec, _refused, _refused, _refused
_none_kept = []
"""
AFTER = """
import json as _json

_faults = []
_found = check(_response)
if not isinstance(_found, (list, tuple)):
    raise TypeError(f"check returned {type(_found).__name__}, and not a list")
for _one in _found:
    _later = callable(_one) or hasattr(_one, "send") or hasattr(_one, "__next__")
    _inner = () if _later or not hasattr(_one, "__iter__") else (type(part).__name__ for part in _one)
    # numpy's truth values are of the type `bool_` or `bool`.
    if _later or isinstance(_one, (tuple, dict, str, bytes)) or not {"bool", "bool_"}.isdisjoint(_inner):
        raise TypeError(f"check returned a list with a {type(_one).__name__}, not True or False")
_kept = [None if one is None else bool(one) for one in _found]
print("\\nKEY" + _json.dumps([_found is not _none_kept and _kept, *_faults[:1]]))
"""


def gives_up(value):
    return value and re.fullmatch(r"False|\[(False(, )?)*\]", ast.unparse(value))


def writes_none(item):
    parts = [*ast.walk(item)]
    compared = {part for one in parts if isinstance(one, ast.Compare) for part in ast.walk(one)}
    return any(isinstance(one, ast.Constant) and one.value is None for one in parts if one not in compared)


def apart(source):
    """Return the source with each item of a returned list evaluated apart, so that it fails alone.

    The items are those of a list that is returned, or of the list with the returned name, or appended to it.
    Returning `False` or `[]` instead breaks each of the checks, as many as are listed or as another response
    has. An item that comes out as None, as from `and`, `get` or a regular expression, is False, unless the
    item itself writes None. Expressions, assertions and conditions outside of functions, such as the call of
    an example, do not run.
    """
    try:
        tree = ast.parse(source)
        tree.body = [one for one in tree.body if not isinstance(one, (ast.Assert, ast.Expr, ast.If))]
        named = [one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == "check"]
        inner = [one for one in ast.walk(named[-1]) if isinstance(one, ast.FunctionDef)]
        others = {part for one in inner if one is not named[-1] for part in ast.walk(one)}
        body = [one for one in ast.walk(named[-1]) if one not in others]
        returned = [one for one in body if isinstance(one, ast.Return) and one.value]
        called = {ast.unparse(one.value) for one in returned if isinstance(one.value, ast.Name)}
        assigned = [one for one in body if isinstance(one, ast.Assign)]
        assigned = [one for one in assigned if ast.unparse(one.targets[0]) in called]
        lists = [one.value for one in (*returned, *assigned) if isinstance(one.value, ast.List)]
        holders = [one.elts for one in lists if not gives_up(one)]
        calls = [one for one in body if isinstance(one, ast.Call) and len(one.args) == 1]
        tries = [part for one in body if isinstance(one, ast.Try) for part in one.body]
        handled = {part for one in tries for part in ast.walk(one)}
        appends = {f"{name}.append" for name in called}
        added = [one.args for one in calls if ast.unparse(one.func) in appends]
        broken = [one for one in returned if gives_up(one.value)]
        most = 0 if added else max(map(len, holders), default=0)
        for one in broken if most or len(broken) < len(returned) else ():
            one.value = ast.parse(str([False] * most) if most else "_none_kept").body[0].value
        for items in (*holders, *added):
            inside = {type(part) for one in items for part in ast.walk(one)}
            caught = ast.NamedExpr in inside or not handled.isdisjoint(items)
            if inside.isdisjoint({ast.Starred, ast.Yield}):
                form = "({})" if caught else "_item(lambda: {})"
                texts = [ast.unparse(one) for one in items]
                # `rest and rest[0]` is a condition, although its value is a text, which alone is an error.
                forms = ["bool({})" if isinstance(one, ast.BoolOp) else "({}) or False" for one in items]
                forms = ["{}" if writes_none(one) else way for one, way in zip(items, forms)]
                texts = [form.format(way.format(one)) for one, way in zip(texts, forms)]
                items[:] = [ast.parse(one).body[0].value for one in texts]
        return ast.unparse(tree)
    except (SyntaxError, ValueError, IndexError, RecursionError):
        return source


def found(text):
    """Return the results for a response and the first error; without results, None and the error."""
    # The results follow a key, so that nothing the function prints is taken for them. This program is started
    # again after each isolated program, and must then ask for the same key.
    key = hashlib.sha256(ascii([CHECK, text]).encode()).hexdigest()
    # A string of its own, so that an error names the line that the judge wrote.
    source = f"{BEFORE}_run({APART!r})\n{AFTER.replace('KEY', key)}"
    outcome = isolated.run(source, bindings={"response": text}, seconds=4)  # the code that it runs has 2
    if outcome.status == "ok":
        try:
            results, *faults = json.loads(outcome.stdout.split(key)[1])
        except (IndexError, RecursionError, TypeError, ValueError):
            results, faults = None, []
        whole = isinstance(results, list) and all(one in (True, False, None) for one in results)
        if whole or results is False:
            return results, str(*faults[:1])
        return None, "check ended the program"
    if outcome.status != "error":
        return None, "check was stopped at a limit"  # which of the limits depends on the machine's speed
    return None, (outcome.stderr.strip() or "check ended the program").rpartition("\n")[2][:300]


def known(quoted):
    word = quoted[2] or ""
    # A few letters of another script may be a sentence.
    return quoted[0] if word and (word in CHECK or len(word) < 12 and word.isascii()) else "..."


def spaced(text):
    # The text of a transcript's messages has escaped line ends.
    return " ".join(["", *re.findall(r"[^\W_]+", str(text).replace(r"\n", " ").lower()), ""])


def cut(fault):
    """Return an error up to where it repeats a response: three words, a long word, or one of another script.

    A long word has 12 characters or more. Words that stand in CHECK are the judge's own.
    """
    own, texts, kind = spaced(CHECK), list(map(spaced, shown)), re.match("[A-Za-z]{1,25}Error: |", fault)
    word = r"[^\W_]{12,}|[^\W_]*[^\W_\x00-\x7f][^\W_]*"
    parts = re.compile(rf"(?<![^\W_])(?=({word}|[^\W_]+(?:[\W_]+[^\W_]+){{2}}))")
    for found in parts.finditer(fault, kind.end()):
        part = spaced(found[1]).strip("" if found[1].isascii() else " ")
        if part not in own and any(part in text for text in texts):
            return f"{fault[:found.start()]}..."
    return fault


APART = apart(CHECK)
shown = globals().get("responses") or [response]
lists, faults = zip(*map(found, shown))
most = max((len(one) for one in lists if one), default=1)
lists = [[False] * most if one is False else one for one in lists]
fault = next(filter(None, faults), "")
lengths = [len(one) for one in lists if one is not None]
if len(set(lengths)) > 1 and len(lengths) == len(lists):
    fault = "check returned lists of different lengths: " + ", ".join(map(str, lengths))
if fault:
    # The apostrophe of "can't" quotes nothing.
    fault = re.sub(r"""(?<!n(?='t ))(['"])(?:([^\s'"\\]+)\1|.*)""", known, " ".join(fault.split()))
    print(f"error: {cut(fault)}")
if len(lengths) == len(lists) and len(set(lengths)) == 1:
    counted = [each for each in zip(*lists) if None not in each]
    names = [f"{letter} " for letter in "ABCDEFGHIJKLMNOP"] if len(lists) > 1 else [""]
    for name, kept in zip(names, zip(*counted)):
        print(f"{name}{sum(kept)} of {len(counted)}")
    if not counted and not fault:
        print("nothing to check")
'''


def fault_of(output: str) -> str:
    """Return the error that stands in place of the counts; empty with counts."""
    start, error, fault = output.strip().partition(ERROR)
    return fault if error and not start and "\n" not in fault else ""


def completed(source: str) -> str:
    """Return the program that runs the function of `source` on each response and prints the counts."""
    return f"CHECK = {source!r}\n{_HARNESS}"
