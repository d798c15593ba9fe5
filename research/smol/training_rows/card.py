"""The card of the generated files: sources, licences, counts and the command."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from research.smol.training_rows.generator import Report
from research.smol.training_rows.rows import Draft

_SOURCES = (
    (
        "Self-Instruct (Wang et al. 2023): seed tasks, user-oriented instructions and four models' answers",
        "Apache-2.0",
    ),
    (
        "MBPP (Austin et al. 2021), tasks 511 to 974: texts, asserts, reference code (also edited)",
        "CC BY 4.0",
    ),
    ("requests, wordings, sentences and phrases written for this project", "the project's licence"),
)
_FIELDS = (
    "One row: `id`, `prompt`, `responses`, `label` (index of the best response), `domain`, `environment` "
    "(`tir-pairwise`, `tir-listwise` or `tir-pointwise`), `families` (IFEval's instruction ids, `own:` and "
    "the name of one of six further families, `mbpp` or "
    "`general`), and `demonstration` with `program`, `kept` (constraints or asserts that each response "
    "keeps) and `of`. A program prints exactly `kept`; `label` is its only largest value. Rows of the family "
    "`general` have no program. The held-out file has topics, instructions and problems that the other files "
    "do not have, but the same wordings and editors."
)


def card_lines(report: Report, command: str) -> Iterator[str]:
    """Yield the lines of the card, in Markdown."""
    yield from ("# Training data of the small real judge", "")
    yield from (_FIELDS, "", "Made by:", "", f"    {command}", "")
    yield from ("| source | licence |", "|---|---|")
    yield from (f"| {source} | {licence} |" for source, licence in _SOURCES)
    yield ""
    if report.without:
        yield from (f"Left out of every file: {', '.join(report.without)}.", "")
    names = list(report.rows)
    yield from _table("rows", names, [("all", [len(report.rows[name]) for name in names])])
    for title, key in _COUNTS.items():
        counts = {name: Counter(one for draft in report.rows[name] for one in key(draft)) for name in names}
        values = sorted({value for count in counts.values() for value in count})
        yield from _table(
            title, names, [(value, [counts[name][value] for name in names]) for value in values]
        )
    yield from ("## Decontamination", "")
    yield from (
        "Requests, problems and complete prompts that share eight words in a row with a prompt of IFEval,",
        "IFBench, PandaLM, RM-Bench, JudgeBench or MBPP's test split are dropped.",
        "",
    )
    yield from ("| source | read | dropped | of which shared with |", "|---|---|---|---|")
    for source, read in report.read.items():
        shared = report.shared.get(source, Counter())
        yield f"| {source} | {read:,} | {shared.total():,} | {_named(shared)} |"
    for source, shared in report.shared.items():
        if source.endswith(" prompts"):
            made = report.generated[source.removesuffix(" prompts")]
            yield f"| complete {source} | {made:,} | {shared.total():,} | {_named(shared)} |"
    yield ""
    yield f"Dropped because program and verifier disagree: {_named(report.disagreed) or 'none'}."


def _table(title: str, names: Sequence[str], rows: Sequence[tuple[str, Sequence[int]]]) -> Iterator[str]:
    yield f"| {title} | {' | '.join(names)} |"
    yield f"|---|{'---|' * len(names)}"
    yield from (f"| {value} | {' | '.join(f'{count:,}' for count in counts)} |" for value, counts in rows)
    yield ""


def _named(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.most_common())


def _longest(draft: Draft) -> str:
    best = max(range(len(draft.responses)), key=lambda at: len(draft.responses[at]))
    return f"{draft.environment}: {'longest' if best == draft.label else 'another one'}"


_COUNTS: Mapping[str, Callable[[Draft], Sequence[str]]] = {
    "format": lambda draft: [draft.environment],
    "source": lambda draft: [draft.source],
    "constraints": lambda draft: (
        [str(len(draft.families)) if draft.source != "mbpp" else "mbpp"]
        if draft.domain != "helpfulness"
        else ["general"]
    ),
    "position of the best": lambda draft: [f"{draft.environment}: {'ABCD'[draft.label]}"],
    "the best response is": lambda draft: [_longest(draft)],
    "family": lambda draft: draft.families,
}
"""Counted properties of rows, by the title of their table."""
