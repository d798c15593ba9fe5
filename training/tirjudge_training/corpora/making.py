"""One source of a corpus, in a folder of its own: questions, answers, rows, and what was left out."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tirjudge.storage.run_folder import JsonObject, encode_line, read_lines, write_atomically
from tirjudge_environments import Message
from tirjudge_sandbox import open_sandbox
from tirjudge_training.corpora import hub
from tirjudge_training.corpora.answers import Generators
from tirjudge_training.corpora.base import Kind, Question, Skipped, Source
from tirjudge_training.corpora.composition import Composer
from tirjudge_training.corpora.config import CorpusConfig
from tirjudge_training.corpora.filling import in_order
from tirjudge_training.corpora.overlap import Overlap, OverlapIndex
from tirjudge_training.corpora.pace import Pace
from tirjudge_training.corpora.selection import Selection
from tirjudge_training.corpora.shards import ShardWriter
from tirjudge_training.corpora.whole_file import whole_file

UNFINISHED = "questions.unfinished.jsonl"
QUESTIONS, DROPPED, READ, DONE = "questions.jsonl", "dropped.jsonl", "read.json", "done.json"
OVERLAP = "8 words or more in a row of a benchmark's prompt"
SPARE = "no place left for it in any format"


@dataclass(frozen=True, kw_only=True)
class Making:
    """Everything that making the rows of one source takes; `rows` go on where a stopped one was.

    What was read and sampled is kept; the rows are a function of it.
    """

    name: str
    source: Source[Any]
    config: CorpusConfig
    folder: Path
    """Its own."""
    shards: Path
    """Where all sources' Parquet files go."""
    index: Callable[[], OverlapIndex]
    """The benchmarks; asked for when rows are read."""
    say: Callable[[str], None]

    def rows(self) -> JsonObject:
        """Make them, or find them made; returns the report that the corpus' card is written from.

        Raises SourceGone, SchemaChanged, NotAnswered, SandboxUnavailable, OSError.
        """
        done = self.folder / DONE
        if not done.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            if not (self.folder / QUESTIONS).exists():
                self._read()
            report = json.loads((self.folder / READ).read_text(encoding="utf-8"))
            made, left = asyncio.run(self._write())
            left_out = Counter(report["left_out"]) + left
            report |= {"made": made, "left_out": dict(left_out.most_common())}
            write_atomically(done, json.dumps(report, indent=2) + "\n")
        else:
            self.say(f"{self.name}: done")
        return json.loads(done.read_text(encoding="utf-8"))

    @property
    def wanted(self) -> dict[Kind, int | None]:
        return self.config.sources[self.name].counts(self.config.scale)

    def _read(self) -> None:
        """One pass over the source; the questions appear under their name once all of them are there."""
        counts = list(self.wanted.values())
        n = None if None in counts else self._prompts(sum(count or 0 for count in counts))
        overlaps: dict[str, JsonObject] = {}
        pace = Pace(f"{self.name}: reading", "rows", None, self.say)
        selection = Selection(
            (pace.passed(question) for question in self._questions()),
            n,
            seed=self.config.seed,
            repeats=self.source.card.repeats,
            clean=partial(_is_clean, self.index(), overlaps),
        )
        taken = _write_lines(self.folder / UNFINISHED, map(_as_json, selection))
        _write_lines(self.folder / DROPPED, overlaps.values())
        skipped = selection.skipped + Counter({OVERLAP: len(overlaps)} if overlaps else {})
        report = {"read": selection.read, "taken": taken, "left_out": dict(skipped.most_common())}
        write_atomically(self.folder / READ, json.dumps(report, indent=2) + "\n")
        (self.folder / UNFINISHED).replace(self.folder / QUESTIONS)
        self.say(f"{self.name}: {selection.read:,} rows read, {taken:,} questions taken")

    def _prompts(self, rows: int) -> int:
        needs = bool(self.source.card.needs)
        return round(rows * (self.config.sampling.prompts_per_row if needs else 1))

    def _questions(self) -> Iterator[Question | Skipped]:
        source = self.source
        revision = self.config.sources[self.name].revision
        for where, row in hub.rows(source.card, source.row, revision):
            found = source.question(row)
            yield replace(found, origin=where) if isinstance(found, Question) else found

    async def _write(self) -> tuple[dict[Kind, int], Counter[str]]:
        """(rows made by format, questions left out by reason)."""
        config, left = self.config, Counter[str]()
        card = self.source.card
        composer = Composer(
            self.name, card.domain, self.wanted, config.judges, seed=config.seed, repeats=card.repeats
        )
        known = [count for count in self.wanted.values() if count]
        pace = Pace(self.name, "rows", None if None in self.wanted.values() else sum(known), self.say)
        async with AsyncExitStack() as stack:
            sampler = Generators(
                tuple(config.generators.values()), config.sampling, self.folder, say=self.say
            )
            stack.push_async_callback(sampler.close)
            sandbox = open_sandbox()
            if "sandbox" in card.needs:
                await stack.enter_async_context(sandbox)
            shards = stack.enter_context(ShardWriter(self.shards, self.name, config.rows_per_shard))

            async def fill(question: Question) -> Question | Skipped:
                return await self.source.fill(question, sampler, sandbox)

            questions = map(_question, read_lines(self.folder / QUESTIONS))
            filled = in_order(questions, fill, config.sampling.window)
            async with aclosing(filled):
                async for found in filled:
                    row = None if isinstance(found, Skipped) else composer.row(found)
                    if row is not None:
                        shards.append(pace.passed(row))
                    else:
                        left[found.reason if isinstance(found, Skipped) else SPARE] += 1
                    if composer.full:
                        break
        return composer.made, left


def _is_clean(index: OverlapIndex, overlaps: dict[str, JsonObject], question: Question) -> bool:
    found: Overlap | None = index.find(m.content for m in question.prompt if m.role != "system")
    if found is not None:
        overlaps[question.key] = {"row": question.origin, **asdict(found)}
    return found is None


def _as_json(question: Question) -> JsonObject:
    return asdict(question)


def _question(fields: Mapping[str, Any]) -> Question:
    prompt = tuple(Message(**message) for message in fields["prompt"])
    answers = {name: tuple(fields[name]) for name in ("good", "bad")}
    return Question(**{**fields, **answers, "prompt": prompt})


def _write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """A whole file of JSON lines; how many."""
    written = 0
    with whole_file(path) as file:
        for row in rows:
            file.write(encode_line(row))
            written += 1
    return written
