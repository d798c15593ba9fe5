"""The verdicts that programs decide: what an output favours, in both runs of a program."""

from __future__ import annotations

import re

from tirjudge_environments.orders import letters
from tirjudge_environments.types import Evidence, Trajectory
from tirjudge_sandbox import Execution, Status

_CHECKS = re.compile(r"([A-Z]{1,2}) ([0-9]{1,9}) of ([0-9]{1,9})", re.ASCII)


def favourite(output: str, responses: int) -> int | None:
    """Return the position of the response that a program's output favours; None if it names none.

    The output has a line such as `B 2 of 3` for each letter, all about the same number of checks, and the
    most checks are one response's. Or its last line is a letter or an index from 0. Any other number, such as
    a length, favours nothing: whether more is better depends on the question.
    """
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    checks = [found for found in map(_CHECKS.fullmatch, lines) if found]
    names = letters(responses)
    if checks:
        passed = {found[1]: int(found[2]) for found in checks}
        totals = {int(found[3]) for found in checks}
        if sorted(found[1] for found in checks) != sorted(names) or len(totals) != 1:
            return None
        counts = [passed[name] for name in names]
        most = max(counts)
        return counts.index(most) if counts.count(most) == 1 and most <= totals.pop() else None
    last = lines[-1] if lines else ""
    if last in names:
        return names.index(last)
    return int(last) if re.fullmatch(r"[0-9]{1,2}", last, re.ASCII) and int(last) < responses else None


def decided(trajectory: Trajectory) -> bool | None:
    """Return True if the last successful program decided the verdict, and None if that cannot be known.

    It did if it prints something else for exchanged responses and favours the verdict's response in both
    runs. A single response has no rival: its program decided if its output depends on the response. Evidence
    is not known of a program that was not run again, and of the answer of another tool than Python.
    """
    if trajectory.evidence in (Evidence.UNCHECKED, Evidence.TOOL):
        return None
    call, verdict, order = trajectory.decisive, trajectory.verdict, trajectory.view.order
    if trajectory.evidence is not Evidence.SEPARATES or call is None or verdict is None:
        return False
    first, again = call.outcome, call.exchanged
    if not isinstance(first, Execution) or again is None or again.status is not Status.OK:
        return False
    if len(order) == 1:
        return True
    found, exchanged = favourite(first.stdout, len(order)), favourite(again.stdout, len(order))
    if found is None or exchanged is None:
        return False
    # In the second run each place has the response that was shown after it.
    return verdict.choice == order[found] == order[(exchanged + 1) % len(order)]
