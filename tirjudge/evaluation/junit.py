"""JUnit XML, which CI systems show: one test case for each row of a run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

from tirjudge.console_text import printable
from tirjudge.evaluation.judged_rows import CLASSES, JudgedRow, decision
from tirjudge.evaluation.stored_outputs.reading import Replay
from tirjudge.storage.json_lines import read_lines
from tirjudge.storage.result_file import failures_path
from tirjudge_environments.orders import letter

_OUTCOMES = ("failure", "error", "skipped")
"""Elements of a test case that did not pass."""


def write_junit(path: Path, run: Replay) -> None:
    """Write a run as a test suite.

    A row fails if its verdict is not its label, also by a tie, or if its single response does not pass and
    has no label. A row without a verdict, or that could not be judged, is an error, and a verdict that was
    left open is skipped. Names and reasons are untrusted. Raises ValueError for a file of another kind.
    """
    if path.is_file() and path.read_bytes()[:5] not in (b"", b"<?xml"):
        raise ValueError(f"{path} is no JUnit file: choose another --junit")
    suite = ElementTree.Element("testsuite", name=printable(run.name), tests="0")
    found = [(row.id, row.domain, float(row.cost.seconds if row.cost else 0), *_outcome(row)) for row in run]
    found += [(id, "", 0.0, "error", reason) for id, reason in _failed(run)]
    for id, domain, seconds, outcome, told in found:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            name=printable(id),
            classname=printable(domain or run.name),
            time=f"{seconds:.3f}",
        )
        if outcome:
            ElementTree.SubElement(case, outcome, message=printable(told))
        else:
            ElementTree.SubElement(case, "system-out").text = printable(told)
    suite.set("tests", str(len(found)))
    for outcome, name in zip(_OUTCOMES, ("failures", "errors", "skipped"), strict=True):
        suite.set(name, str(sum(one[3] == outcome for one in found)))
    suite.set("time", f"{sum(one[2] for one in found):.3f}")
    ElementTree.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


def _failed(run: Replay) -> Iterable[tuple[str, str]]:
    """Yield id and reason of the rows that a run of ours failed to judge."""
    for file in map(failures_path, run.files.paths):
        for failure in read_lines(file) if file.exists() else ():
            yield str(failure.get("id") or failure.get("where")), str(failure.get("reason"))


def _outcome(row: JudgedRow) -> tuple[str, str]:
    """Return how a row ended, empty for a pass, and the reason or the verdict."""
    best = decision(row)
    if row.left_open:
        return "skipped", "the verdict is left open for its low confidence"
    scores = [score for vote in row.votes for score in vote.scores.values()]
    if not best and not scores:
        return "error", f"no verdict: {', '.join(sorted({vote.stop for vote in row.votes}))}"
    undecided = ", undecided" if row.decided is False else ""
    if row.candidates < 2:
        return "", f"scores: {', '.join(f'{score:g}' for score in scores)}{undecided}"
    # A single response should pass, unless its label says that it fails.
    label = 1 if row.label is None and row.passes else row.label
    right = len(best) > 1 if row.tied else label is None or best == (label,)
    verdict = f"verdict {_named(row, best)}{undecided}"
    meant = "tie" if label is None else _named(row, (label,))
    return ("", verdict) if right else ("failure", f"{verdict}, not {meant}")


def _named(row: JudgedRow, best: tuple[int, ...]) -> str:
    """Return the candidates in first place in words."""
    if len(best) != 1:
        return "tie"
    if row.passes:
        return CLASSES[best[0]]
    return letter(best[0]) + (f" ({row.sources[best[0]]})" if row.sources else "")
