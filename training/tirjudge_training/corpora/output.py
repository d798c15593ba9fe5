"""The files of a corpus: Parquet shards, and the card."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tirjudge import __version__
from tirjudge.console_text import markdown_table
from tirjudge.storage.durable_files import complete_file
from tirjudge.storage.json_lines import JsonObject
from tirjudge_training.corpora.base import KINDS, open_source
from tirjudge_training.corpora.config import CorpusConfig


class ShardWriter:
    """Write rows to `STEM-00000.parquet`, `STEM-00001.parquet`, ...; leaving the context writes the rest.

    A file appears under its name when it is complete and synced. Raises OSError.
    """

    def __init__(self, folder: Path, stem: str, rows_per_shard: int) -> None:
        self._folder, self._stem, self._size = folder, stem, rows_per_shard
        self._rows: list[JsonObject] = []
        self._written = 0
        # Shards of an interrupted build are written again from the cached answers.
        for path in folder.glob(f"{stem}-[0-9][0-9][0-9][0-9][0-9].parquet"):
            path.unlink()

    def append(self, row: JsonObject) -> None:
        self._rows.append(row)
        if len(self._rows) >= self._size:
            self._write()

    def _write(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        with complete_file(self._folder / f"{self._stem}-{self._written:05}.parquet") as file:
            pq.write_table(pa.Table.from_pylist(self._rows, schema=schema()), file, compression="zstd")
        self._written += 1
        self._rows = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # Not after an error: the rows are written again when the build is resumed.
        if kind is None and self._rows:
            self._write()


def schema() -> Any:
    """Return the Arrow schema of every corpus, with the columns `tirjudge judge` and `train` read.

    It is fixed, because a schema inferred per shard would differ where a column holds only nulls.
    """
    import pyarrow as pa

    text = pa.string()
    return pa.schema(
        {
            "id": text,
            "source": text,
            "format": text,
            "environment": text,
            "domain": text,
            "prompt": pa.list_(pa.struct({"role": text, "content": text})),
            "responses": pa.list_(text),
            "label": text,
            "gold_scores": pa.list_(pa.float64()),
            "checklist": pa.list_(text),
            "tags": pa.list_(text),
        }
    )


HEAD = ("source", *KINDS, "total", "wanted")


@dataclass(frozen=True)
class CorpusCard:
    """The README.md of a corpus folder; the `datasets` library reads its front matter."""

    config: CorpusConfig
    report: Mapping[str, Mapping[str, Any]]
    """The report of each source, see `SourceBuild.rows`."""
    command: str

    @property
    def short(self) -> dict[str, tuple[int, int]]:
        """Return the sources with fewer rows than wanted, as (rows, wanted)."""
        counts = {
            name: (sum(found["made"].values()), self._wanted(name)) for name, found in self.report.items()
        }
        return {name: (made, wanted) for name, (made, wanted) in counts.items() if wanted and made < wanted}

    def table(self) -> list[tuple[str, ...]]:
        """Return rows by source and format, in the layout of TIR Table 6; the last line is the total."""
        made = {name: [found["made"].get(kind, 0) for kind in KINDS] for name, found in self.report.items()}
        total = [sum(column) for column in zip(*made.values(), strict=True)]
        wanted = {name: self._wanted(name) for name in made}
        # Unknown if one source takes all its rows: the sum would then be too small.
        every = None if None in wanted.values() else sum(count or 0 for count in wanted.values())
        lines = [*((name, made[name], wanted[name]) for name in made), ("total", total, every)]
        return [
            (name, *(f"{count:,}" for count in counts), f"{sum(counts):,}", "all" if n is None else f"{n:,}")
            for name, counts, n in lines
        ]

    def text(self) -> str:
        """Return the card as Markdown."""
        return "\n".join(self._lines()) + "\n"

    def _wanted(self, name: str) -> int | None:
        counts = self.config.sources[name].counts(self.config.scale).values()
        return None if None in counts else sum(count or 0 for count in counts)

    def _lines(self) -> Iterator[str]:
        yield from ("---", "configs:", "- config_name: default", "  data_files:", "  - split: train")
        yield from ("    path: data/*.parquet", "---", "", f"# {self.config.description or 'A corpus'}", "")
        yield f"Made by tirjudge {__version__}: `{self.command}`. One row is one judge task."
        yield from ("", *markdown_table(HEAD, self.table()), "")
        yield "## Sources"
        yield from ("", *markdown_table(("source", "dataset", "licence", "content"), self._sources()), "")
        if self.config.generators:
            yield from self._sampled()
        yield "## Left out"
        yield ""
        yield from self._cleaned()
        yield from ("", *markdown_table(("source", "reason", "rows"), self._left_out()))

    def _sources(self) -> Iterator[tuple[str, ...]]:
        for name in self.report:
            card, revision = open_source(name).card, self.config.sources[name].revision
            yield name, card.dataset + (f" at {revision}" if revision else ""), card.licence, card.about

    def _sampled(self) -> Iterator[str]:
        sampling = self.config.sampling
        names = ", ".join(generator.model for generator in self.config.generators.values())
        yield (
            f"Sampled answers: {sampling.samples} each of {names} at temperature {sampling.temperature}, "
            f"top-p {sampling.top_p}."
        )
        yield ""

    def _cleaned(self) -> Iterator[str]:
        cleaning = self.config.decontaminate
        against = "every benchmark" if cleaning.against is None else ", ".join(cleaning.against) or "nothing"
        rule = f"no prompt shares {cleaning.words} words in a row with {against}"
        yield f"Decontamination: {rule}; `dropped.jsonl` lists the dropped prompts with the words in common."

    def _left_out(self) -> Iterator[tuple[str, ...]]:
        for name, found in self.report.items():
            yield from ((name, reason, f"{count:,}") for reason, count in found["left_out"].items())
