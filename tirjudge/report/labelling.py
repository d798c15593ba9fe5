"""Labels made in a page: the parts of a row that a file of labelled rows repeats beside its texts."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tirjudge.records.result_row import ResultRow
from tirjudge_environments.orders import letters
from tirjudge_environments.tasks.columns import similar_name

_SUFFIXES = (".jsonl", ".verdicts")


def responses_to_label(row: ResultRow) -> int:
    """Return the number of responses that a person compares; 0 for a row without texts."""
    return 0 if row.prompt is None or row.responses is None else len(row.responses)


def question(row: ResultRow) -> dict[str, Any]:
    """Return the fields of a row that `judge` reads, without texts that the page has anyway.

    The page adds `prompt` if it is one text, and `responses` if they are texts without files, whose listing
    the page draws below the text. If `named` is true, the responses become an object of the sources' names,
    so that `judge` knows the sources without an option.
    """
    found: dict[str, Any] = {}
    if len(row.prompt or ()) != 1 or row.conversation[0].role != "user":
        found["prompt"] = [one.model_dump(exclude_unset=True) for one in row.prompt or ()]
    alone = all(isinstance(one, str) for one in row.responses or ())
    if any(row.files) or not alone:
        found["responses"] = [
            one if isinstance(one, str) else [said.model_dump(exclude_unset=True) for said in one]
            for one in row.responses or ()
        ]
    named = alone and _may_be_names(row.sources, len(row.responses or ()))
    criteria = [
        {"text": one.text, "weight": one.weight, "polarity": one.polarity, "must_have": one.must_have}
        for one in row.criteria
        if one.text
    ]
    optional: dict[str, Any] = {
        "sources": row.sources,
        "named": named,
        "reference": row.reference,
        "criteria": criteria,
        "tools": [one.model_dump() for one in row.tools],
        # The page has no contents of files: `judge` says so, instead of judging without the files.
        "files": [{path: file.model_dump() for path, file in files.items()} for files in row.files],
        "prompt_files": {path: file.model_dump() for path, file in row.prompt_files.items()},
        "domain": row.domain,
        "tags": row.tags,
    }
    return found | {name: value for name, value in optional.items() if value}


def _may_be_names(sources: Sequence[str], responses: int) -> bool:
    """Return True if the sources' names can be the keys of an object, and none of them is a label's name."""
    alike = {similar_name(name) for name in sources}
    labels = {similar_name(name) for name in (*letters(responses), "tie")}
    return len(sources) == len(set(sources)) == responses > 1 and not alike & labels


def fingerprint(rows: Iterable[tuple[str, str]]) -> str:
    """Return a hash of the ids and digests of rows, under which a browser keeps the labels of a page."""
    found = hashlib.sha256()
    for row in rows:
        found.update(repr(row).encode(errors="surrogatepass"))
    return found.hexdigest()[:16]


def label_file(results: Path) -> dict[str, str]:
    """Return the name of the file of labels of a result file, and both names as a shell reads them."""
    name = results.name
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    safe = "".join(mark if mark.isalnum() or mark in "-_." else "_" for mark in name).lstrip(".")
    name = f"{safe or 'rows'}.labels.jsonl"
    return {"name": name, "quoted": shlex.quote(name), "results": shlex.quote(results.name)}
