"""Evidence: whether a verdict's program tells the responses apart, and whether it decided the verdict."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tirjudge_environments.orders import letters
from tirjudge_environments.programs.check_harness import ERROR, fault_of
from tirjudge_environments.types import Call, Evidence, Refused, Trajectory
from tirjudge_sandbox import Execution, Status

_CHECKS = re.compile(r"([A-Z]{1,2}) ([0-9]{1,9}) of ([0-9]{1,9})", re.ASCII)
_KEPT = re.compile(
    r"(?:A )?([0-9]{1,9}) of ([1-9][0-9]{0,8})|(pass(?:ed|es)?|true)|fail(?:ed|s)?|false",
    re.ASCII | re.IGNORECASE,
)
"""A line about a single response."""
_LOWEST, _HIGHEST = 1.0, 10.0
"""The scale of scores of the format for single responses."""


def decisive(trajectory: Trajectory) -> Call | None:
    """Return the last program that ended well; None if there is no such program."""
    calls = [call for call in reversed(trajectory.calls) if not call.request.tool]
    found = next(filter(ended_well, calls), None)
    # A check with an error was corrected: its counts, of the other checks, decide nothing.
    is_partial = found and found.request.is_check and (_printed(found.outcome) or "").startswith(ERROR)
    return None if is_partial and found is not calls[0] else found


def evidence_of(trajectory: Trajectory) -> Evidence:
    """Return the relation of the last successful program to the responses; TOOL if a tool answered last."""
    last = next((call for call in reversed(trajectory.calls) if ended_well(call)), None)
    return Evidence.TOOL if last is not None and last.request.tool else program_evidence(trajectory)


def program_evidence(trajectory: Trajectory) -> Evidence:
    """Return the relation of the last successful program to the responses, whatever other tools answered."""
    last = decisive(trajectory)
    if last is None:
        ran = any(isinstance(one.outcome, Execution) and not one.request.tool for one in trajectory.calls)
        return Evidence.FAILED if ran else Evidence.MISSING
    if last.exchanged is None or last.exchanged.status is Status.SANDBOX_FAILED:
        return Evidence.UNCHECKED
    same = last.exchanged.status is Status.OK and last.exchanged.stdout == _printed(last.outcome)
    return Evidence.TIE if same else Evidence.SEPARATES


def ended_well(call: Call) -> bool:
    """Return True for a program that ran without error; a check with an error in place of counts did not."""
    if not isinstance(call.outcome, Execution) or call.outcome.status is not Status.OK:
        return False
    return not (call.request.is_check and fault_of(call.outcome.stdout))


def _printed(outcome: Execution | Refused) -> str | None:
    # A judge never reads the standard error of a program that ended well.
    return outcome.stdout if isinstance(outcome, Execution) else None


def favourite(output: str, responses: int) -> int | None:
    """Return the position of the response that a program's output favours; None if it names none.

    The output has a line such as `B 2 of 3` for each letter, all about the same number of checks, and the
    most checks are one response's. Or its last line is a letter. A number favours nothing: whether more is
    better depends on the question, and 1 may mean True. Neither does one line for each response, which is a
    ranking.
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
    named = [names.index(line) if line in names else None for line in lines]
    if not named or (len(named) == responses and None not in named and len(set(named)) > 1):
        return None
    return named[-1]


def agrees(output: str, score: float) -> bool:
    """Return True if a program's output says of a single response what its score, from 1 to 10, says.

    The last line, and no other, is `pass` or `fail` (also `True`, `False`), or says how many of all checks
    the response keeps, such as `2 of 3`. The score is nearer to that share of the scale than to any other.
    """
    if (counted := _kept(output)) is None:
        return False
    kept, total = counted
    share = (score - _LOWEST) / (_HIGHEST - _LOWEST)
    return abs(share * total - kept) < max(0.5, total / 9)


def score_of(output: str) -> float | None:
    """Return the score, from 1 to 10, that a program's output gives a single response (see `agrees`)."""
    counted = _kept(output)
    return None if counted is None else _LOWEST + (_HIGHEST - _LOWEST) * counted[0] / counted[1]


def _kept(output: str) -> tuple[int, int] | None:
    """Return how many of how many checks a single response keeps; None if the output does not say it."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    found = list(map(_KEPT.fullmatch, lines))
    last = found[-1] if found else None
    if last is None or sum(one is not None for one in found) > 1:
        return None
    kept, total = (int(last[1]), int(last[2])) if last[1] else (int(last[3] is not None), 1)
    return (kept, total) if kept <= total else None


def comparable(trajectories: Sequence[Trajectory]) -> bool:
    """Return False if functions of the judge scored responses by other checks, or by another number of them.

    Each dialogue about a response alone may write a function of its own.
    """
    ran = [call for call in map(decisive, trajectories) if call is not None and call.request.is_check]
    checks = {(call.request.source, (_kept(_printed(call.outcome) or "") or (0, 0))[1]) for call in ran}
    return len(checks) < 2


def decided(trajectory: Trajectory) -> bool | None:
    """Return True if the last successful program decided the verdict, and None if that cannot be known.

    It did if it prints something else for exchanged responses and favours the verdict's response in both
    runs. A single response has no rival: its program decided if it says what the score says (see `agrees`),
    and something else of another response. Evidence is not known of a program that was not run again, and
    of the answer of another tool than Python.
    """
    evidence = evidence_of(trajectory)
    if evidence in (Evidence.UNCHECKED, Evidence.TOOL):
        return None
    call, verdict, order = decisive(trajectory), trajectory.verdict, trajectory.view.order
    if evidence is not Evidence.SEPARATES or call is None or verdict is None:
        return False
    first, again = call.outcome, call.exchanged
    if not isinstance(first, Execution) or again is None or again.status is not Status.OK:
        return False
    if len(order) == 1:
        said = _kept(again.stdout) is not None and order[0] in verdict.scores
        return said and agrees(first.stdout, verdict.scores[order[0]])
    found, exchanged = favourite(first.stdout, len(order)), favourite(again.stdout, len(order))
    # A letter that a program prints may be a whole response, the answer to a question with choices.
    texts = {str(text).strip() for text in call.request.bindings.get("responses", ())}
    is_text = first.stdout.strip().split("\n")[-1] in texts.intersection(letters(len(order)))
    if found is None or exchanged is None or is_text:
        return False
    # In the second run each place has the response that was shown after it.
    return verdict.choice == order[found] == order[(exchanged + 1) % len(order)]
