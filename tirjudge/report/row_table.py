"""The rows of a result file for a page: small columns for the table, and compressed chunks of texts."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from tirjudge.console_text import printable
from tirjudge.records.result_row import RecordedPassage, RecordedView, ResultRow
from tirjudge.records.text import (
    audit_lines,
    criterion_heading,
    criterion_text,
    decided_text,
    deciding_lines,
    evidence_text,
    headed_views,
    jury_text,
    listed_folder,
    outcome_text,
    program_end,
    program_outputs,
    prompt_parts,
    rating_text,
    response_heading,
    reward_text,
    variable_notes,
    verdict_text,
    view_passages,
    view_verdict,
)
from tirjudge.report.labelling import question, responses_to_label
from tirjudge_environments import Response
from tirjudge_environments.messages import transcript_parts
from tirjudge_environments.orders import letter

Texts = Literal["all", "wrong", "none"]
"""Rows whose prompt, responses and dialogues a page contains."""
_CHUNK_BYTES = 200_000
"""Text bytes of a chunk before compression: a search unpacks all chunks, a row view only one."""
_LONGEST_NAME = 200
_LONGEST_PROMPT = 160
_WHERE = re.compile(r"(.*)(?::|, item )(\d+)", re.DOTALL)
"""The file of a row, and its line or its item (see `Row.where`)."""


class Coded:
    """A column of texts that repeat: each text once, and its number for every row."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._texts: list[str] = []
        self._codes: list[int] = []

    def add(self, text: str) -> None:
        self._codes.append(self.number(text))

    def number(self, text: str) -> int:
        """Return the number of a text in `values`."""
        number = self._numbers.setdefault(text, len(self._texts))
        if number == len(self._texts):
            self._texts.append(text)
        return number

    def text_at(self, number: int) -> str:
        return self._texts[self._codes[number]]

    def column(self) -> dict[str, Any]:
        return {"values": self._texts, "codes": self._codes}


@dataclass(slots=True)
class RowTable:
    """The columns of a run's rows, and their texts in chunks."""

    ids: list[str] = field(default_factory=list)
    verdicts: Coded = field(default_factory=Coded)
    outcomes: Coded = field(default_factory=Coded)
    stops: Coded = field(default_factory=Coded)
    domains: Coded = field(default_factory=Coded)
    tags: Coded = field(default_factory=Coded)
    tags_of: list[list[int]] = field(default_factory=list)
    """Numbers of the tags of each row."""
    flags: list[int] = field(default_factory=list)
    """Bits of `FLAGS`."""
    programs: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    """Completion tokens."""
    seconds: list[float] = field(default_factory=list)
    credits: list[float | None] = field(default_factory=list)
    """1 for a right verdict, 1/k for a tie of k, 0 for a wrong one, None without a label."""
    prompts: list[str] = field(default_factory=list)
    """The last message of the prompt, cut; empty for rows without texts."""
    candidates: list[int] = field(default_factory=list)
    """Responses of a row that can be labelled in the page; 0 for a row without texts."""
    choices: list[Sequence[int]] = field(default_factory=list)
    """Indices of the responses that share the first place; none without a verdict on several."""
    digests: list[str] = field(default_factory=list)
    reasons: list[tuple[str, str]] = field(default_factory=list)
    """What the last program printed, and the line behind it (see `deciding_lines`)."""
    places: list[tuple[str, int]] = field(default_factory=list)
    """The file of the row and its line, by which a page orders rows; runs finish them in any order."""
    chunks: list[str] = field(default_factory=list)
    """Texts as base64 of gzip of a JSON list of row records."""
    spans: list[list[int]] = field(default_factory=list)
    """Numbers of the rows in each chunk."""

    def data(self) -> dict[str, Any]:
        """Return the columns for the page, without the chunks themselves."""
        columns = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in _NOT_SHOWN}
        shown = {name: one.column() if isinstance(one, Coded) else one for name, one in columns.items()}
        shown["tags"]["codes"] = shown.pop("tags_of")
        shown["prompts"] = self.prompts if any(self.prompts) else []
        shown["reasons"] = self.reasons if any(map(any, self.reasons)) else []
        return shown


_NOT_SHOWN = ("credits", "digests", "places", "chunks")
"""Columns that the page does not get."""
FLAGS = (
    "wrong",
    "tie",
    "without a verdict",
    "program failed",
    "flipped",
    "decided",
    "undecided",
    "counted apart",
)
"""Filters of the page; the position is the bit in `RowTable.flags`."""


def row_flags(row: ResultRow, apart: Collection[str] = ()) -> int:
    """Return the filters that a row fits, as bits of `FLAGS`; for `apart` see `decided_text`."""
    fits = (
        row.correct is not None and row.correct < 1,
        row.verdict == "tie",
        row.stop != "verdict",
        row.programs_failed > 0,
        row.flipped,
        row.verdict_decided is True and row.id not in apart,
        row.verdict_decided is False,
        row.verdict_decided is True and row.id in apart,
    )
    return sum(1 << bit for bit, fitting in enumerate(fits) if fitting)


class TableBuilder:
    """Collects the rows of a run into a `RowTable`."""

    def __init__(self, texts: Texts, apart: Collection[str]) -> None:
        self._texts: Texts = texts
        self._apart = apart
        self._table = RowTable()
        self._records: list[str] = []
        self._numbers: list[int] = []
        self._size = 0

    def add(self, row: ResultRow) -> None:
        table, flags = self._table, row_flags(row, self._apart)
        shown = self._texts == "all" or (self._texts == "wrong" and bool(flags & 0b111))
        table.ids.append(row.id)
        table.verdicts.add(printable(verdict_text(row), _LONGEST_NAME))
        table.outcomes.add(outcome_text(row))
        table.stops.add(row.stop)
        table.domains.add(row.domain)
        table.tags_of.append([table.tags.number(tag) for tag in dict.fromkeys(row.tags)])
        table.flags.append(flags)
        table.candidates.append(responses_to_label(row) if shown else 0)
        table.digests.append(row.digest)
        table.credits.append(row.correct)
        table.programs.append(sum(one.kind == "program" for view in row.views for one in view.segments))
        table.tokens.append(row.completion_tokens)
        table.seconds.append(round(row.seconds, 2))
        prompt = next((one.content for one in reversed(row.prompt or ()) if one.content), "") if shown else ""
        table.prompts.append(printable(" ".join(prompt[: 4 * _LONGEST_PROMPT].split()), _LONGEST_PROMPT))
        table.reasons.append(deciding_lines(row) if shown else ("", ""))
        place = _WHERE.fullmatch(row.where)
        table.places.append((place[1], int(place[2])) if place else (row.where, 0))
        if shown:
            self._numbers.append(len(table.ids) - 1)
            self._records.append(json.dumps(row_record(row, self._apart)))
            self._size += len(self._records[-1])
            if self._size >= _CHUNK_BYTES:
                self._pack()

    def build(self, best: Mapping[str, Sequence[int]]) -> RowTable:
        """Return the table; `best` has, by row id, the responses that share the first place."""
        self._pack()
        self._table.choices = [best.get(id, ()) for id in self._table.ids]
        return self._table

    def _pack(self) -> None:
        if not self._records:
            return
        content = f"[{','.join(self._records)}]".encode()
        # Without a time, so that the same rows give the same page.
        self._table.chunks.append(base64.b64encode(gzip.compress(content, 6, mtime=0)).decode())
        self._table.spans.append(self._numbers)
        self._records, self._numbers, self._size = [], [], 0


def row_record(row: ResultRow, apart: Collection[str] = ()) -> dict[str, Any]:
    """Return all texts of a row with their captions, as `tirjudge show` prints them."""
    label = "" if row.label is None else letter(row.label)
    label = label if row.rating is None else rating_text(row.rating)
    facts = {
        "label": label,
        "format": row.format,
        "domain": row.domain,
        "tags": ", ".join(row.tags),
        "model": "" if row.jury else row.model,
        "jury": jury_text(row),
        "from": row.where,
        "detail": row.detail,
        "decided": decided_text(row, apart),
    }
    record: dict[str, Any] = {
        "facts": [[name, printable(fact)] for name, fact in facts.items() if fact],
        "views": [_view_record(heading, view) for heading, view in headed_views(row)],
    }
    if row.prompt is not None and row.responses is not None:
        record["prompt"] = prompt_parts(row)
        record["responses"] = [
            [response_heading(row, index).removesuffix(":"), _drawn(response), *_folder_record(row, index)]
            for index, response in enumerate(row.shown_responses)
        ]
        record["given"] = _folder_record(row, None)
        record["question"] = question(row)
    if row.reference:
        record["reference"] = row.reference
    if row.criteria:
        record["criteria"] = [
            [
                criterion_heading(number, one),
                one.text,
                "; ".join([criterion_text(one), *audit_lines(row, number - 1)]),
            ]
            for number, one in enumerate(row.criteria, 1)
        ]
    if row.cut:
        record["cut"] = "Thinking was left out, or long responses were cut, before they were judged."
    return record


def _drawn(response: Response) -> str | list[tuple[str, str]]:
    """Return a response as the page draws it: a text, or the parts of a transcript under their headings."""
    if isinstance(response, str):
        return response
    return [(heading, text) for _, heading, text in transcript_parts(response)]


def _folder_record(row: ResultRow, index: int | None) -> list[dict[str, Any]]:
    """Return the folder of a response or of the prompt as the page draws it; none without files."""
    listed = listed_folder(row, index)
    if listed is None:
        return []
    files = [[file.line, file.body, file.is_diff] for file in listed.files]
    heading = "; ".join(filter(None, (listed.heading, listed.missing)))
    return [{"heading": printable(heading), "files": files}]


def _view_record(heading: str, view: RecordedView) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    for passage, named, shown in view_passages(view):
        parts.append(_part(passage, named))
        if passage.kind == "program":
            parts[-1]["notes"] = list(variable_notes(passage))
            parts += [
                {"kind": "stream", "heading": name, "text": text}
                for name, text in program_outputs(passage, shown)
            ]
    return {
        "heading": heading,
        "parts": parts,
        "verdict": view_verdict(view),
        "reward": reward_text(view) if view.reward is not None else "",
        **({"evidence": evidence_text(view)} if view.evidence else {}),
    }


def _part(passage: RecordedPassage, heading: str) -> dict[str, Any]:
    failed = passage.kind == "program" and program_end(passage) != "ok"
    kind = "hidden-thinking" if passage.hidden else "failed" if failed else passage.kind
    return {"kind": kind, "heading": heading, "text": passage.text}
