"""Wrong judgments of the development half, for a reader who counts their causes.

    python -m research.smol.mistakes RESULTS --sets FOLDER --n 30

Prints the prompt, the programs with their outputs, the verdict and the label, and both responses where they
differ. The judgments are a seeded sample over the sets. Only development rows are printed.
"""

from __future__ import annotations

import argparse
import difflib
from collections import Counter
from pathlib import Path

from research.smol.judging import judged_rows
from research.smol.sets import NAMES
from research.smol.sources import Fields
from research.smol.splits import rank
from research.smol.summary import Judged, credit, separated
from tirjudge.console_text import printable

_EXCERPT = 300
"""Characters of a difference, of a program's output and of the judge's text."""


def wrong(results: Path, sets: Path, names: tuple[str, ...]) -> list[Judged]:
    """Return the wrong judgments of the development half, in drawn order."""
    found = []
    for name in names:
        file = sets / f"{name}.development.jsonl"
        result = results / f"{name}.development.verdicts.jsonl"
        if file.exists() and result.exists():
            found += [one for one in judged_rows(file, result, None) if one[1] and credit(one) < 1]
    return sorted(found, key=lambda one: rank("mistake", one[0]["id"]))


def cause(judged: Judged) -> str:
    """Return a first guess at the cause, from what the programs printed."""
    row, line = judged
    assert line is not None
    if line["stop"] != "verdict":
        return "no verdict"
    if line["programs_failed"]:
        return "program error"
    if not line["programs"]:
        return "no program"
    choices = separated(line)
    if not choices:
        return "tie or unreadable output"
    return "misread output" if choices[0].choice == row["label"] else "program counts wrongly"


def shown(judged: Judged) -> str:
    """Return a judgment as text that is safe to print."""
    row, line = judged
    assert line is not None
    parts = [
        f"=== {row['id']} [{cause(judged)}], label {'ABCD'[int(row['label'])]}, verdict {line['verdict']}"
    ]
    parts.append(
        f"families: {', '.join(row.get('families', ()))}; broken: {', '.join(row.get('broken', ()))}"
    )
    parts.append(f"PROMPT: {row['prompt']}")
    for view in line["views"]:
        order = "".join("ABCD"[index] for index in view["order"])
        parts.append(f"--- shown in the order {order}")
        for segment in view["segments"]:
            text = segment["text"] if segment["kind"] == "program" else segment["text"][:_EXCERPT]
            parts.append(f"[{segment['kind']}] {text}")
    parts += _differences(row)
    return "\n".join("\n".join(printable(text) for text in part.split("\n")) for part in parts)


def _differences(row: Fields) -> list[str]:
    """Return where the first two responses differ, word by word."""
    first, second = (text.split() for text in row["responses"][:2])
    found = ["--- difference of A and B"]
    for kind, i, j, k, m in difflib.SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        if kind != "equal" and len(found) < 8:
            found.append(f"A: {' '.join(first[i:j])[:_EXCERPT]!r}  B: {' '.join(second[k:m])[:_EXCERPT]!r}")
    return found


def main() -> None:
    """Print a sample of wrong judgments, and counts of the causes that a program can guess."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, help="the folder that research.smol.results wrote")
    parser.add_argument("--sets", type=Path, required=True)
    parser.add_argument("--only", choices=NAMES, action="append", help="read only this set; repeatable")
    parser.add_argument("--n", type=int, default=30)
    options = parser.parse_args()
    found = wrong(options.results, options.sets, tuple(options.only or NAMES))
    for judged in found[: options.n]:
        print(shown(judged), end="\n\n")
    causes = Counter(map(cause, found))
    print(f"{len(found)} wrong: " + ", ".join(f"{count} {name}" for name, count in causes.most_common()))


if __name__ == "__main__":
    main()
