"""Programs around a judge's `check(response)`: each response is checked in a process of its own.

The judge writes the function before it sees a response. The harness, which is trusted, runs the function as
an isolated program (see the sandbox's module `isolated`) once for each response, and prints how many checks
each response keeps: `A 2 of 3`, or `2 of 3` for a single response. A check whose result is None for any
response counts for none, so the total is the same for all. Where the function fails, its error stands in
place of the counts.
"""

from __future__ import annotations

import re

from tirjudge_environments.turn_reader import find_fences

MOST_RESPONSES = 16
"""Isolated programs that one program may run."""
NOTHING = "nothing to check"
"""The output for a function that returns an empty list."""
ERROR = "error: "
"""The start of the first line of an output without counts."""
EMPTY = "def check(response):\n    return []\n"
"""The function that a turn without code counts as."""
_HARNESS = r'''
import json

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

_found = check(response)
if not isinstance(_found, (list, tuple)):
    raise TypeError(f"check returned {type(_found).__name__}, and not a list")
print("\\n" + _json.dumps([None if one is None else bool(one) for one in _found]))
"""


def found(text):
    """Return the results for a response, or the error as a text."""
    outcome = isolated.run(BEFORE + CHECK + AFTER, bindings={"response": text})
    if outcome.status == "ok":
        try:
            results = json.loads(outcome.stdout.rstrip().rpartition("\n")[2])
        except ValueError:
            results = None
        if isinstance(results, list) and all(one in (True, False, None) for one in results):
            return results
        return "check ended the program"
    if outcome.status != "error":
        return f"check was stopped at its {outcome.status}"
    return (outcome.stderr.strip() or "check ended the program").rpartition("\n")[2][:300]


def names(count):
    letters = "ABCDEFGHIJKLMNOP"
    return [f"{letter} " for letter in letters[:count]] if count > 1 else [""]


shown = globals().get("responses") or [response]
results = [found(one) for one in shown]
lists = [one for one in results if isinstance(one, list)]
if len(lists) < len(results):
    print("error: " + next(one for one in results if isinstance(one, str)))
elif len({len(one) for one in lists}) > 1:
    print("error: check returned lists of different lengths: " + ", ".join(str(len(one)) for one in lists))
elif not lists[0]:
    print("nothing to check")
else:
    known = [each for each in zip(*lists) if None not in each]
    for name, kept in zip(names(len(lists)), zip(*known) if known else [()] * len(lists)):
        print(f"{name}{sum(kept)} of {len(known)}")
'''
_RAW = re.compile(r"^(?:(?:import|from) [^\n]*\n|\s*\n)*def check\(", re.MULTILINE)


def completed(source: str) -> str:
    """Return the program that runs the function of `source` on each response and prints the counts."""
    return f"CHECK = {source!r}\n{_HARNESS}"


def written_check(turn: str) -> str:
    """Return the code of a turn that defines `check`: a fence in any language, or the turn's end.

    Models without training often leave out the language or the last fence. Empty if nothing defines it.
    """
    bodies = [turn[fence.body_start : fence.body_end] for fence in find_fences(turn)]
    for text in (*bodies, turn):
        if (found := _RAW.search(text)) is not None:
            return text[found.start() :]
    return ""
