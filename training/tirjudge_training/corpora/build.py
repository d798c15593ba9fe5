"""The build of a corpus: every source in turn, then the complete folder at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tirjudge.storage.run_folder import JsonObject, RunFolder, disk_full_errors, read_lines
from tirjudge_training.corpora.base import open_source
from tirjudge_training.corpora.card import CorpusCard
from tirjudge_training.corpora.config import CorpusConfig
from tirjudge_training.corpora.decontamination import benchmark_texts
from tirjudge_training.corpora.overlap import OverlapIndex
from tirjudge_training.corpora.source_build import DROPPED, SourceBuild
from tirjudge_training.recipe_file import CONFIG, claim_folder

CARD, REPORT = "README.md", "report.json"
DATA, WORK, SHARDS = "data", "work", "shards"
MOVABLE = tuple(
    f"generators.*.{name}" for name in ("base_url", "concurrency", "patience", "retries", "timeout")
)
"""Keys that may differ when a build is resumed: they do not change which rows are made."""


class OtherCorpus(ValueError):
    """The folder belongs to a different corpus; one line that says which key differs."""


def build(config: CorpusConfig, folder: Path, *, command: str, say: Callable[[str], None]) -> JsonObject:
    """Build a corpus in `folder`, or resume an interrupted build; return the report by source.

    The rows stay in `work` until all sources are complete; then `data` appears at once. Raises ValueError for
    an unknown source or one that lacks generators, OtherCorpus, Locked, DiskFull, and what
    `SourceBuild.rows` raises.
    """
    _check(config)
    with disk_full_errors(folder), RunFolder(folder) as run:
        _claim(run, config)
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


def _claim(run: RunFolder, config: CorpusConfig) -> None:
    """Store the configuration, or refuse to mix two corpora in one folder."""
    differing = claim_folder(run, config, MOVABLE)
    if differing is not None:
        raise OtherCorpus(
            f"{run.path / CONFIG} has a different {differing}: use the same command, or another --output"
        )


def _gather_dropped(run: RunFolder, sources: list[str]) -> None:
    """Merge the sources' lists of prompts that were dropped for an overlap with a benchmark."""
    path = run.path / DROPPED
    path.unlink(missing_ok=True)  # an interrupted build may have left a part of it
    for name in sources:
        rows = [{"source": name, **row} for row in read_lines(run.path / WORK / name / DROPPED)]
        run.append(DROPPED, *rows)
