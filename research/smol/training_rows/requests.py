"""Requests without constraints: our own templates over topics, and the public instructions with answers."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from research.smol.training_rows.writing import sections
from tirjudge_training.corpora.decontamination import OverlapIndex

SELF_INSTRUCT = "self-instruct"
MODELS = ("text-davinci-003", "text-davinci-002", "text-davinci-001", "davinci-self-instruct")
"""The models whose answers to the user-oriented instructions are public, the best first."""
_MOST_CHARS = 500
"""A longer request does not fit a small model's window next to the responses."""
_HELD_TOPICS = 2
"""The last topics of each area are kept for the held-out rows."""


class BadSources(ValueError):
    """A folder of sources that cannot be used; the message is one line."""


@dataclass(frozen=True)
class Request:
    """A request of a user, with the answers that its source has."""

    source: str
    text: str
    genre: str
    topic: str
    area: str
    held_out: bool
    answers: tuple[str, ...] = ()
    """Natural answers, the best first; empty for our own requests."""


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a JSON-lines file. Raises BadSources."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise BadSources(
            f"cannot read {path}: {error.strerror}; --sources names the folder of mbpp/ and self-instruct/"
        ) from None
    found = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                found.append(json.loads(line))
            except ValueError as error:
                raise BadSources(f"{path}, line {number}: not JSON ({error})") from None
            if not isinstance(found[-1], dict):
                raise BadSources(f"{path}, line {number}: not a JSON object")
    return found


def own_requests(name: str = "instructions") -> list[Request]:
    """Return all our own requests of a file: every genre's template with every topic."""
    topics = [
        (area, topic.strip(), place >= len(line[2:].split("|")) - _HELD_TOPICS)
        for area, lines in sections("topics").items()
        for line in lines
        if line.startswith("t:")
        for place, topic in enumerate(line[2:].split("|"))
    ]
    return [
        Request("own", template.replace("{topic}", topic), genre, topic, area, held)
        for genre, templates in sections(name).items()
        if genre not in {"context", "manner"}
        for template in templates
        for area, topic, held in topics
    ]


def questions() -> list[Request]:
    """Return our own requests about one matter each, as people write them; answers are about another."""
    found: list[Request] = []
    for number, text in enumerate(sections("questions")["questions"]):
        rng = random.Random(f"question/{number}")
        area = rng.choice(list(sections("topics")))
        topics = next(line for line in sections("topics")[area] if line.startswith("t:"))
        topic = rng.choice(topics[2:].split("|")).strip()
        genre = rng.choice(["text", "text", "list"])
        found.append(Request("own", text, genre, topic, area, number % 8 == 0))
    return found


def public_requests(folder: Path, index: OverlapIndex, dropped: Counter[str]) -> list[Request]:
    """Return Self-Instruct's seed tasks and user-oriented instructions that no benchmark shares.

    `dropped` counts the others by benchmark. Raises BadSources.
    """
    found: list[Request] = []
    for number, (text, answers) in enumerate(_self_instruct(folder / SELF_INSTRUCT)):
        overlap = index.find([text])
        if overlap is not None:
            dropped[overlap.benchmark] += 1
        elif len(text) <= _MOST_CHARS:
            area = random.Random(number).choice(list(sections("topics")))
            topic = "this question"
            found.append(Request(SELF_INSTRUCT, text, "text", topic, area, number % 8 == 0, answers))
    return found


def vocabulary(requests: Sequence[Request]) -> list[str]:
    """Return words that prompts may ask for: not too frequent words of the answers and sentence bank."""
    counts: Counter[str] = Counter()
    for request in requests:
        counts.update(set(re.findall(r"\b[a-z]{4,12}\b", " ".join(request.answers))))
    bank = " ".join(line for lines in sections("topics").values() for line in lines)
    counts.update(set(re.findall(r"\b[a-z]{4,12}\b", bank)))
    return sorted(word for word, count in counts.items() if count < 12)


def _self_instruct(folder: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    try:
        for row in read_rows(folder / "seed_tasks.jsonl"):
            if not row["is_classification"]:
                one = row["instances"][0]
                yield _joined(row["instruction"], one["input"]), (one["output"].strip(),)
        stored = [read_rows(folder / f"predictions-{model}.jsonl") for model in MODELS]
        for rows in zip(*stored, strict=True):
            answers = tuple(str(row["response"]).strip() for row in rows)
            yield _joined(rows[0]["instruction"], rows[0]["input"]), answers
    except (KeyError, IndexError, TypeError) as error:
        raise BadSources(f"{folder}: not the files of Self-Instruct ({error!r})") from None
    except ValueError as error:
        if isinstance(error, BadSources):
            raise
        raise BadSources(f"{folder}: the models' answers differ in their number of rows") from None


def _joined(instruction: str, given: str) -> str:
    return f"{instruction.strip()}\n\n{given.strip()}".strip()
