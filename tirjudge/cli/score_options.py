"""The options of commands that score stored verdicts: how files are read, and what is printed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tirjudge.cli.output import option
from tirjudge.cli.paper_tables import TableFormat

TableOption = Annotated[
    TableFormat | None, option("Output", "Only a table: markdown, latex or csv.", "--as", metavar="FORMAT")
]
JunitOption = Annotated[
    Path | None, option("Output", "JUnit XML: each row is a test case, for CI.", metavar="FILE")
]
MetaJudgeOption = Annotated[
    str,
    option(
        "Meta judge", "Model that matches reasons, for rationale-consistency.", metavar="MODEL", hidden=True
    ),
]
MetaJudgeUrlOption = Annotated[
    str, option("Meta judge", "OpenAI-compatible endpoint of the meta judge.", metavar="URL", hidden=True)
]


def one_output(table: TableFormat | None, as_json: bool) -> None:
    """Raise ValueError for a table and JSON together."""
    if table and as_json:
        raise ValueError("--as and --json exclude each other")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreOutput:
    """The options that say which numbers are printed, and as what."""

    protocol: Annotated[
        list[str] | None,
        option(
            "Output", "Protocol to score under. Repeatable.  [default: the format's own]", metavar="PROTOCOL"
        ),
    ] = None
    full: Annotated[
        bool,
        option("Output", "Print every figure, its definition and counts, and published figures.", "--full"),
    ] = False
    as_json: Annotated[bool, option("Output", "Print the numbers as JSON, and nothing else.", "--json")] = (
        False
    )
    table: TableOption = None

    def check(self) -> None:
        """Raise ValueError for a table and JSON together."""
        one_output(self.table, self.as_json)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredOptions:
    """The options that say how files of stored verdicts are read."""

    column: Annotated[
        list[str] | None,
        option(
            "Rows",
            "Place of a part in the rows of any file: prediction, label, score_a, ... Repeatable.",
            metavar="PART=PLACE",
        ),
    ] = None
    labels: Annotated[
        list[str] | None,
        option(
            "Rows",
            "Separate file of labels, joined by idx, pair_id or id; or, with --column, the meaning of "
            "values: 1=A,2=B,0=tie. Once each.",
            metavar="FILE|VALUE=LETTER,...",
        ),
    ] = None
    swapped: Annotated[
        str, option("Rows", "The same rows judged with the responses swapped, with --column.", metavar="FILE")
    ] = ""
    duplicates: Annotated[
        Literal["refuse", "first"],
        option("Rows", "Several rows with the same id: refuse them, or count only the first."),
    ] = "refuse"
    cluster: Annotated[
        str,
        option(
            "Rows",
            "Rows with the same value here depend on each other.  [default: the prompt]",
            metavar="COLUMN",
        ),
    ] = ""
    format: Annotated[
        str, option("Rows", "Format of the stored outputs.  [default: detected from the first row]")
    ] = ""

    def files_and_meanings(self) -> tuple[list[Path], list[str]]:
        """Return the files among `labels`, and the meanings of values (`1=A,2=B,0=tie`)."""
        given = self.labels or ()
        files = [Path(text) for text in given if "=" not in text or Path(text).exists()]
        return files, [text for text in given if Path(text) not in files]
