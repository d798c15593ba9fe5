"""The build of a corpus: rows of each source are read, answered and filtered; then the folder appears."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from tirjudge.progress import ProgressReporter
from tirjudge.storage.durable_files import RunFolder, complete_file, disk_full_errors, write_atomically
from tirjudge.storage.json_lines import JsonObject, encode_line, read_lines
from tirjudge_environments import Message
from tirjudge_sandbox import open_sandbox
from tirjudge_training.corpora.answers import Generators, in_order
from tirjudge_training.corpora.base import Kind, Skipped, Source, SourceItem, open_source
from tirjudge_training.corpora.composition import Composer, QuestionSample, distinct
from tirjudge_training.corpora.config import CorpusConfig
from tirjudge_training.corpora.decontamination import Overlap, OverlapIndex, benchmark_texts
from tirjudge_training.corpora.hub import hub_rows
from tirjudge_training.corpora.output import CorpusCard, ShardWriter
from tirjudge_training.recipe_file import claim_folder

UNFINISHED = "questions.unfinished.jsonl"
QUESTIONS, DROPPED, READ, DONE = "questions.jsonl", "dropped.jsonl", "read.json", "done.json"
SPARE = "no format needs another row from it"


@dataclass(frozen=True, kw_only=True)
class SourceBuild:
    """The build of one source's rows, which resumes after an interruption.

    Questions and sampled answers are stored; the rows are a function of them and are written again.
    """

    name: str
    source: Source[Any]
    config: CorpusConfig
    folder: Path
    """The work folder of this source alone."""
    shards: Path
    """The folder of all sources' Parquet files."""
    index: Callable[[], OverlapIndex]
    """The index of benchmark prompts. A function, since a resumed build that reads no rows needs none."""
    say: Callable[[str], None]

    def rows(self) -> JsonObject:
        """Build the rows unless they exist; return the report that the corpus card is written from.

        Raises SourceUnavailable, SchemaChanged, NotAnswered, SandboxUnavailable, OSError.
        """
        # Two phases, each marked by a file: reading the dataset, then answering and writing.
        done = self.folder / DONE
        if not done.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            if not (self.folder / QUESTIONS).exists():
                self._read()
            report = json.loads((self.folder / READ).read_text(encoding="utf-8"))
            made, unfilled = asyncio.run(self._write())
            left_out = Counter(report["left_out"]) + unfilled
            report |= {"made": made, "left_out": dict(left_out.most_common())}
            write_atomically(done, json.dumps(report, indent=2) + "\n")
        else:
            self.say(f"{self.name}: done")
        return json.loads(done.read_text(encoding="utf-8"))

    @property
    def wanted(self) -> dict[Kind, int | None]:
        return self.config.sources[self.name].counts(self.config.scale)

    def _read(self) -> None:
        """Read the source in one pass and store the questions that are taken."""
        counts = list(self.wanted.values())
        n = None if None in counts else self._prompts(sum(count or 0 for count in counts))
        overlaps: dict[str, JsonObject] = {}
        progress = ProgressReporter(self.say, f"{self.name}: reading")
        sample = QuestionSample(
            (progress.count(question) for question in self._questions()),
            n,
            seed=self.config.seed,
            repeats=self.source.card.repeats,
            clean=partial(_is_clean, self.index(), overlaps),
        )
        taken = _write_lines(self.folder / UNFINISHED, map(asdict, sample))
        _write_lines(self.folder / DROPPED, overlaps.values())
        skipped = sample.skipped.copy()
        if overlaps:
            skipped[f"shares {self.config.decontaminate.words} words in a row with a benchmark"] = len(
                overlaps
            )
        report = {"read": sample.read, "taken": taken, "left_out": dict(skipped.most_common())}
        write_atomically(self.folder / READ, json.dumps(report, indent=2) + "\n")
        # Last, because `rows` takes this file as the sign that reading is complete.
        (self.folder / UNFINISHED).replace(self.folder / QUESTIONS)
        self.say(f"{self.name}: {sample.read:,} rows read, {taken:,} questions taken")

    def _prompts(self, rows: int) -> int:
        """Return how many questions to take for so many rows: more if some will not get both answers."""
        needs = bool(self.source.card.needs)
        return round(rows * (self.config.sampling.prompts_per_row if needs else 1))

    def _questions(self) -> Iterator[SourceItem | Skipped]:
        source = self.source
        revision = self.config.sources[self.name].revision
        for where, row in hub_rows(source.card, source.row, revision):
            found = source.question(row)
            yield replace(found, origin=where) if isinstance(found, SourceItem) else found

    async def _write(self) -> tuple[dict[Kind, int], Counter[str]]:
        """Return (rows made by format, questions left out by reason)."""
        config, left_out = self.config, Counter[str]()
        card = self.source.card
        composer = Composer(
            self.name, card.domain, self.wanted, config.judges, seed=config.seed, repeats=card.repeats
        )
        known = [count for count in self.wanted.values() if count]
        progress = ProgressReporter(
            self.say, self.name, total=None if None in self.wanted.values() else sum(known)
        )
        async with AsyncExitStack() as stack:
            sampler = Generators(
                tuple(config.generators.values()), config.sampling, self.folder, say=self.say
            )
            stack.push_async_callback(sampler.close)
            # Opened only for sources that run programs, since that starts worker processes.
            sandbox = open_sandbox()
            if "sandbox" in card.needs:
                await stack.enter_async_context(sandbox)
            shards = stack.enter_context(ShardWriter(self.shards, self.name, config.rows_per_shard))

            async def fill(question: SourceItem) -> SourceItem | Skipped:
                return distinct(await self.source.fill(question, sampler, sandbox))

            # From the file also in the first run, so that a resumed build sees exactly the same.
            questions = map(_question, read_lines(self.folder / QUESTIONS))
            filled = in_order(questions, fill, config.sampling.window)
            async with aclosing(filled):
                async for found in filled:
                    row = None if isinstance(found, Skipped) else composer.row(found)
                    if row is not None:
                        shards.append(progress.count(row))
                    else:
                        left_out[found.reason if isinstance(found, Skipped) else SPARE] += 1
                    if composer.full:
                        break  # the answers under way are cancelled by aclosing
        return composer.made, left_out


def _is_clean(index: OverlapIndex, overlaps: dict[str, JsonObject], question: SourceItem) -> bool:
    found: Overlap | None = index.find(m.content for m in question.prompt if m.role != "system")
    if found is not None:
        overlaps[question.key] = {"row": question.origin, **asdict(found)}
    return found is None


def _question(fields: Mapping[str, Any]) -> SourceItem:
    prompt = tuple(Message(**message) for message in fields["prompt"])
    answers = {name: tuple(fields[name]) for name in ("good", "bad")}
    return SourceItem(**{**fields, **answers, "prompt": prompt})


def _write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write a file of JSON lines; return their number."""
    written = 0
    with complete_file(path) as file:
        for row in rows:
            file.write(encode_line(row))
            written += 1
    return written


CARD, REPORT = "README.md", "report.json"
DATA, WORK, SHARDS = "data", "work", "shards"


def build(config: CorpusConfig, folder: Path, *, command: str, say: Callable[[str], None]) -> JsonObject:
    """Build a corpus in `folder`, or resume an interrupted build; return the report by source.

    The rows stay in `work` until all sources are complete; then `data` appears at once. Raises ValueError for
    an unknown source or a source that lacks generators, OtherSettings, Locked, DiskFull, and what
    `SourceBuild.rows` raises.
    """
    _check(config)
    with disk_full_errors(folder), RunFolder(folder) as run:
        claim_folder(run, config)
        if not (folder / DATA).exists():
            shards = folder / WORK / SHARDS
            shards.mkdir(parents=True, exist_ok=True)
            report = {
                name: source.rows() for name, source in _source_builds(config, folder, shards, say).items()
            }
            # The rows become visible last, after everything that describes them.
            run.write(REPORT, json.dumps(report, indent=2) + "\n")
            run.write(CARD, CorpusCard(config, report, command).text())
            _gather_dropped(run, list(report))
            shards.replace(folder / DATA)  # a rename, hence atomic: readers see all rows or none
        return json.loads((folder / REPORT).read_text(encoding="utf-8"))


def _source_builds(
    config: CorpusConfig, folder: Path, shards: Path, say: Callable[[str], None]
) -> dict[str, SourceBuild]:
    # Reading all benchmarks takes minutes, so it happens at most once and only if rows have to be read.
    @cache
    def index() -> OverlapIndex:
        cleaning = config.decontaminate
        found = OverlapIndex(benchmark_texts(cleaning.against, say), n=cleaning.words, common=cleaning.common)
        say(f"decontaminating against {len(found):,} benchmark texts")
        return found

    return {
        name: SourceBuild(
            name=name,
            source=open_source(name),
            config=config,
            folder=folder / WORK / name,
            shards=shards,
            index=index,
            say=say,
        )
        for name in config.sources
    }


def _check(config: CorpusConfig) -> None:
    """Refuse a build without the generators that a source needs, instead of failing hours later."""
    for name in config.sources:
        if "generators" in open_source(name).card.needs and not config.generators:
            raise ValueError(
                f"source {name} needs sampled answers: name models with --generator MODEL@URL, "
                f"or leave the source out with --without {name}"
            )


def _gather_dropped(run: RunFolder, sources: list[str]) -> None:
    """Merge the sources' lists of prompts that were dropped for an overlap with a benchmark."""
    path = run.path / DROPPED
    path.unlink(missing_ok=True)  # an interrupted build may have left a part of it
    for name in sources:
        rows = [{"source": name, **row} for row in read_lines(run.path / WORK / name / DROPPED)]
        run.append(DROPPED, *rows)
