"""`tirjudge data`: corpora from public sources, rows without a benchmark's words, and what rows there are."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from tirjudge.asking import NotAnswered
from tirjudge.cli.errors import INTERRUPTED, USAGE, refuse_input, stop
from tirjudge.printable import printable
from tirjudge.row_source import open_rows
from tirjudge.run_folder import Locked
from tirjudge_sandbox import SandboxUnavailable
from tirjudge_training.config import MIXTURES, BadRecipe, load, shipped
from tirjudge_training.corpora.base import KINDS
from tirjudge_training.corpora.benchmarks import BenchmarkGone, texts
from tirjudge_training.corpora.build import build as build_corpus
from tirjudge_training.corpora.card import HEAD, CorpusCard
from tirjudge_training.corpora.config import CorpusConfig
from tirjudge_training.corpora.decontaminate import BadRows, dropped_beside
from tirjudge_training.corpora.decontaminate import decontaminate as clean
from tirjudge_training.corpora.hub import SchemaChanged, SourceGone
from tirjudge_training.corpora.inspection import Inspection
from tirjudge_training.corpora.overlap import WORDS, OverlapIndex
from tirjudge_training.full_disk import DiskFull, full_disk_told
from tirjudge_training.log_line import log
from tirjudge_training.table import table

SHORT, FAILED = 1, 3

data = typer.Typer(
    help="Training data: build corpora, decontaminate rows, inspect them.", no_args_is_help=True
)


@data.command()
def build(
    corpus: Annotated[str, typer.Argument(help="A shipped corpus' name, or a TOML file.")] = "",
    output: Annotated[Path | None, typer.Option(help="Its folder; by default data/CORPUS.")] = None,
    generator: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL[@URL]", help="Whose answers are sampled; as often as needed."),
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(metavar="SOURCE", help="Leave a source out; as often as needed.")
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(help="Decontaminate against these benchmarks or FILE[:COLUMN] only; - is nothing."),
    ] = None,
    scale: Annotated[
        float | None, typer.Option(help="Short for --set scale=X: multiplies all counts.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Short for --set seed=N.")] = None,
    assign: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="sources.math.weight=2")
    ] = None,
    list_corpora: Annotated[bool, typer.Option("--list", help="Name the shipped corpora and stop.")] = False,
) -> None:
    """Make a corpus from its sources. The same command goes on where a stopped one was.

    Exit codes: 0 as wanted, 1 fewer rows than wanted, 2 usage, 3 failed, 130 interrupted.
    """
    if list_corpora:
        for name in shipped(MIXTURES):
            print(f"{name}: {load(CorpusConfig, name, home=MIXTURES).description}")
        return
    with _one_line_errors():
        if not corpus:
            raise BadRecipe("name a corpus; --list has the shipped ones")
        assignments = [
            *(assign or ()),
            *_generators(generator or ()),
            *([f"decontaminate.against={json.dumps([a for a in against if a != '-'])}"] if against else ()),
            *([f"scale={scale}"] if scale is not None else ()),
            *([f"seed={seed}"] if seed is not None else ()),
        ]
        config = _left(load(CorpusConfig, corpus, assignments, home=MIXTURES), without or ())
        folder = output or Path("data") / Path(corpus).stem
        words = [word for assignment in assignments for word in ("--set", assignment)]
        words += [word for name in without or () for word in ("--without", name)]
        command = shlex.join(["tirjudge", "data", "build", corpus, *words])
        card = CorpusCard(config, build_corpus(config, folder, command=command, say=log), command)
        _print_table(HEAD, card.table())
        print(folder)
        for name, (made, wanted) in card.short.items():
            log(f"{name}: {made:,} of {wanted:,} rows: the source has no more that fit ({folder}/README.md)")
        raise typer.Exit(SHORT if card.short else 0)


@data.command()
def decontaminate(
    rows: Annotated[str, typer.Argument(help="Rows: a file, a folder of a data set, or a hub id.")],
    output: Annotated[Path, typer.Option(help="The clean rows, as JSON lines.")],
    against: Annotated[
        list[str] | None,
        typer.Option(
            help="Benchmarks by name, or FILE[:COLUMN]; as often as needed. Default: all benchmarks."
        ),
    ] = None,
    column: Annotated[str, typer.Option(help="The rows' prompt: a text, or chat messages.")] = "prompt",
    words: Annotated[int, typer.Option(min=2, help="In a row that may not be shared.")] = WORDS,
    common: Annotated[
        int | None,
        typer.Option(min=1, help="Do not look for words that more prompts of one benchmark have than this."),
    ] = None,
    split: Annotated[str | None, typer.Option(help="Of a data set.")] = None,
) -> None:
    """Drop rows that share eight words in a row with a benchmark's prompts; NAME.dropped.jsonl says why.

    Exit codes: 0, 2 usage, 3 failed, 130 interrupted.
    """
    with _one_line_errors(), full_disk_told(output):
        found = open_rows(rows, split=split)
        refuse_input(output, found)
        index = OverlapIndex(texts(against, log), n=words, common=common)
        begun = time.monotonic()
        tally = clean(found, index, output, column=column, say=log)
        dropped = sum(tally.dropped.values())
        print(f"{tally.rows:,} rows, {dropped:,} dropped, in {time.monotonic() - begun:.1f} s")
        for name, count in tally.dropped.most_common():
            print(f"  {count:,} share {words} words or more with {printable(name)}")
        print(f"{output}, and {dropped_beside(output)} for why")


@data.command()
def inspect(
    rows: Annotated[str, typer.Argument(help="Rows: a corpus' folder, a file, or a hub id.")],
    split: Annotated[str | None, typer.Option(help="Of a data set.")] = None,
) -> None:
    """Count rows by source and format, domain, place of the label and length, and name their faults.

    Exit codes: 0, 1 if some rows cannot be read, 2 usage, 3 failed.
    """
    with _one_line_errors():
        found = Inspection.of(open_rows(rows, split=split))
        sources = sorted({source for source, _ in found.kinds})
        kinds = list(dict.fromkeys([*KINDS, *sorted(kind for _, kind in found.kinds)]))
        lines = [(source, [found.kinds[source, kind] for kind in kinds]) for source in sources]
        lines.append(("together", [sum(column) for column in zip(*(n for _, n in lines), strict=True)]))
        shown = [(name, *(f"{n:,}" for n in counts), f"{sum(counts):,}") for name, counts in lines]
        _print_table(("source", *kinds, "together"), shown)
        print("domains: " + ", ".join(f"{name} {n:,}" for name, n in found.domains.most_common()))
        places = (f"{place} of {count}: {n:,}" for (count, place), n in sorted(found.places.items()))
        print("label: " + ", ".join(places))
        lengths = (f"{percent} %: {n:,}" for percent, n in found.lengths(50, 90, 99, 100))
        print("words of prompt and responses: " + ", ".join(lengths))
        for fault, n in found.faults.most_common():
            log(f"{n:,} rows cannot be read: {fault}")
        raise typer.Exit(SHORT if found.faults else 0)


def _generators(given: Sequence[str]) -> Iterator[str]:
    """`Qwen/Qwen3-8B@http://localhost:8000/v1` as assignments."""
    for number, one in enumerate(given):
        model, _, url = one.partition("@")
        yield f"generators.given-{number}.model={json.dumps(model)}"
        yield f"generators.given-{number}.base_url={json.dumps(url)}"


def _left(config: CorpusConfig, without: Sequence[str]) -> CorpusConfig:
    for name in without:
        if name not in config.sources:
            raise BadRecipe(f"--without {name}: the corpus has {', '.join(config.sources)}")
    sources = {name: wanted for name, wanted in config.sources.items() if name not in without}
    if not sources:
        raise BadRecipe("--without leaves no source")
    return config.model_copy(update={"sources": sources})


def _print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    for line in table([[printable(cell) for cell in row] for row in (head, *rows)]):
        print(line)


@contextmanager
def _one_line_errors() -> Iterator[None]:
    try:
        yield
    except (BadRows, DiskFull, Locked, NotAnswered, SandboxUnavailable, SchemaChanged, SourceGone) as error:
        stop("data", error, FAILED)
    except (BadRecipe, BenchmarkGone, ValueError) as error:
        stop("data", error, USAGE)
    except (ImportError, OSError) as error:
        stop("data", error, FAILED)
    except KeyboardInterrupt:
        stop("data", "interrupted; the same command goes on", INTERRUPTED)
