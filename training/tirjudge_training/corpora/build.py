"""A corpus: all its sources made, and then, at once, there."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tirjudge.storage.run_folder import JsonObject, RunFolder, read_lines
from tirjudge_training.claim import CONFIG, claim
from tirjudge_training.corpora.benchmarks import texts
from tirjudge_training.corpora.card import CorpusCard
from tirjudge_training.corpora.catalog import open_source
from tirjudge_training.corpora.config import CorpusConfig
from tirjudge_training.corpora.making import DROPPED, Making
from tirjudge_training.corpora.overlap import OverlapIndex
from tirjudge_training.full_disk import full_disk_told

CARD, REPORT = "README.md", "report.json"
DATA, WORK, SHARDS = "data", "work", "shards"
MOVABLE = ("generators.*.base_url", "generators.*.concurrency", "generators.*.patience")
"""Keys that may differ when a build goes on."""


class OtherCorpus(ValueError):
    """The folder holds another corpus; one line that says what differs."""


def build(config: CorpusConfig, folder: Path, *, command: str, say: Callable[[str], None]) -> JsonObject:
    """Make what is left of a corpus in `folder`; returns the report, by source.

    The rows lie in `work` until all of them are there; `data` appears whole. Raises ValueError for a source
    that does not exist or lacks generators, OtherCorpus, Locked, DiskFull, and what `Making.rows` raises.
    """
    _check(config)
    with full_disk_told(folder), RunFolder(folder) as run:
        _claim(run, config)
        if not (folder / DATA).exists():
            shards = folder / WORK / SHARDS
            shards.mkdir(parents=True, exist_ok=True)
            report = {name: making.rows() for name, making in _makings(config, folder, shards, say).items()}
            run.write(REPORT, json.dumps(report, indent=2) + "\n")
            run.write(CARD, CorpusCard(config, report, command).text())
            _gather_dropped(run, list(report))
            shards.replace(folder / DATA)
        return json.loads((folder / REPORT).read_text(encoding="utf-8"))


def _makings(
    config: CorpusConfig, folder: Path, shards: Path, say: Callable[[str], None]
) -> dict[str, Making]:
    @cache
    def index() -> OverlapIndex:
        cleaning = config.decontaminate
        found = OverlapIndex(texts(cleaning.against, say), n=cleaning.words, common=cleaning.common)
        say(f"decontamination against {len(found):,} texts of benchmarks")
        return found

    return {
        name: Making(
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
    """Before anything is read: what is missing would show hours later."""
    for name in config.sources:
        if "generators" in open_source(name).card.needs and not config.generators:
            raise ValueError(
                f"source {name} needs answers to be sampled: name models with --generator MODEL@URL, "
                f"or leave it out with --without {name}"
            )


def _claim(run: RunFolder, config: CorpusConfig) -> None:
    found = claim(run, config, MOVABLE)
    if found is not None:
        raise OtherCorpus(
            f"{run.path / CONFIG} has another {found}: use the same command, or another --output"
        )


def _gather_dropped(run: RunFolder, sources: list[str]) -> None:
    """Every prompt that was dropped for an overlap: where it stands, and whose words it has."""
    path = run.path / DROPPED
    path.unlink(missing_ok=True)
    for name in sources:
        rows = [{"source": name, **row} for row in read_lines(run.path / WORK / name / DROPPED)]
        run.append(DROPPED, *rows)
