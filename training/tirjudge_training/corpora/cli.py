"""The commands of `tirjudge data`: build corpora, decontaminate rows, summarise rows."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from tirjudge.cli.output import (
    INTERRUPTED,
    USAGE,
    add_command,
    command_group,
    examples,
    log,
    refuse_input,
    stop,
)
from tirjudge.console_text import printable, table
from tirjudge.data.sources import open_rows
from tirjudge.judging.meta_judge import NotAnswered
from tirjudge.storage.durable_files import DiskFull, disk_full_errors
from tirjudge.storage.json_lines import Locked
from tirjudge_sandbox import PackageMissing, SandboxUnavailable
from tirjudge_training.corpora.build import build as build_corpus
from tirjudge_training.corpora.config import WORDS, CorpusConfig
from tirjudge_training.corpora.decontamination import (
    BadRows,
    BenchmarkUnavailable,
    OverlapIndex,
    benchmark_texts,
    dropped_path,
)
from tirjudge_training.corpora.decontamination import decontaminate as drop_overlaps
from tirjudge_training.corpora.hub import SchemaChanged, SourceUnavailable
from tirjudge_training.corpora.inspection import Inspection
from tirjudge_training.corpora.output import HEAD, CorpusCard
from tirjudge_training.recipe_file import MIXTURES, BadRecipe, load, quoted, shipped

SHORT, FAILED = 1, 3

data = command_group(
    "Build corpora of training data, decontaminate rows, summarise them.",
    "tirjudge data build --list",
    "tirjudge data inspect data/tir",
)


@examples(
    "tirjudge data build --list", "tirjudge data build tir --generator Qwen/Qwen3-8B@http://localhost:8000/v1"
)
def build(
    corpus: Annotated[str, typer.Argument(help="The name of a shipped corpus, or a TOML file.")] = "",
    output: Annotated[Path | None, typer.Option(help="The corpus folder; by default data/CORPUS.")] = None,
    generator: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL[@URL]", help="A model whose answers are sampled; repeatable."),
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(metavar="SOURCE", help="Leave out a source; repeatable.")
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            help="Decontaminate against this benchmark or FILE[:COLUMN] only; repeatable; - means nothing."
        ),
    ] = None,
    scale: Annotated[float | None, typer.Option(help="Multiply all counts; short for --set scale=X.")] = None,
    seed: Annotated[int | None, typer.Option(help="Short for --set seed=N.")] = None,
    assign: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Override a key of the corpus, such as sources.math.weight=2; repeatable.",
        ),
    ] = None,
    list_corpora: Annotated[bool, typer.Option("--list", help="List the shipped corpora and exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --list: print JSON.")] = False,
) -> None:
    """Build a corpus from its sources. The same command resumes an interrupted build.

    Exit codes: 0 complete, 1 fewer rows than wanted, 2 usage, 3 failed, 130 interrupted.
    """
    if list_corpora:
        listed = {name: load(CorpusConfig, name, home=MIXTURES).description for name in shipped(MIXTURES)}
        if as_json:
            records = [{"name": name, "description": about} for name, about in listed.items()]
            print(json.dumps(records, indent=2))
        else:
            print("\n".join(f"{name}: {about}" for name, about in listed.items()))
        return
    with one_line_errors():
        if not corpus:
            raise BadRecipe("name a corpus; --list shows the shipped ones")
        assignments = [
            *(assign or ()),
            *_generators(generator or ()),
            *([f"decontaminate.against={quoted([a for a in against if a != '-'])}"] if against else ()),
            *([f"scale={scale}"] if scale is not None else ()),
            *([f"seed={seed}"] if seed is not None else ()),
        ]
        config = _without(load(CorpusConfig, corpus, assignments, home=MIXTURES), without or ())
        folder = output or Path("data") / Path(corpus).stem
        options = [part for assignment in assignments for part in ("--set", assignment)]
        options += [part for name in without or () for part in ("--without", name)]
        # For the card: the command that makes the same corpus.
        command = shlex.join(["tirjudge", "data", "build", corpus, *options])
        card = CorpusCard(config, build_corpus(config, folder, command=command, say=log), command)
        print("\n".join(table([HEAD, *card.table()])))
        print(folder)
        # Not an error: the corpus is complete as far as its sources allow.
        for name, (made, wanted) in card.short.items():
            log(f"{name}: {made:,} of {wanted:,} rows: the source has no more that fit ({folder}/README.md)")
        raise typer.Exit(SHORT if card.short else 0)


@examples(
    "tirjudge data decontaminate rows.jsonl --output clean.jsonl",
    "tirjudge data decontaminate rows.jsonl --output clean.jsonl --against judgebench",
)
def decontaminate(
    rows: Annotated[
        str, typer.Argument(help="A file of rows, a local dataset, or a Hugging Face dataset id.")
    ],
    output: Annotated[Path, typer.Option(help="The file for the clean rows, as JSON lines.")],
    against: Annotated[
        list[str] | None,
        typer.Option(help="A benchmark by name, or FILE[:COLUMN]; repeatable. Default: all benchmarks."),
    ] = None,
    column: Annotated[
        str, typer.Option(help="The column of the prompt: a string or chat messages.")
    ] = "prompt",
    words: Annotated[
        int, typer.Option(min=2, help="The number of words in a row that a prompt must not share.")
    ] = WORDS,
    common: Annotated[
        int | None,
        typer.Option(min=1, help="Ignore words that occur in more prompts of one benchmark than this."),
    ] = None,
    split: Annotated[str | None, typer.Option(help="The split to read, for a dataset.")] = None,
) -> None:
    """Drop rows that share eight words in a row with a benchmark's prompts.

    OUTPUT.dropped.jsonl lists the dropped rows with the words in common.

    Exit codes: 0, 2 usage, 3 failed, 130 interrupted.
    """
    with one_line_errors(), disk_full_errors(output):
        found = open_rows(rows, split=split)
        refuse_input(output, found)
        index = OverlapIndex(benchmark_texts(against, log), n=words, common=common)
        begun = time.monotonic()
        tally = drop_overlaps(found, index, output, column=column, say=log)
        dropped = sum(tally.dropped.values())
        print(f"{tally.rows:,} rows, {dropped:,} dropped, in {time.monotonic() - begun:.1f} s")
        for name, count in tally.dropped.most_common():
            print(f"  {count:,} share {words} words or more with {printable(name)}")
        print(f"{output}; dropped rows with reasons: {dropped_path(output)}")


@examples("tirjudge data inspect data/tir", "tirjudge data inspect rows.jsonl")
def inspect(
    rows: Annotated[
        str, typer.Argument(help="A corpus folder, a file of rows, or a Hugging Face dataset id.")
    ],
    split: Annotated[str | None, typer.Option(help="The split to read, for a dataset.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON.")] = False,
) -> None:
    """Count rows by source and format, domain, label position and length, and list their faults.

    Exit codes: 0, 1 if some rows cannot be read, 2 usage, 3 failed.
    """
    with one_line_errors():
        found = Inspection.of(open_rows(rows, split=split))
        if as_json:
            print(json.dumps(found.record(), indent=2))
        else:
            print("\n".join(table(found.table())))
            print("\n".join(printable(line, 1 << 14) for line in found.lines()))
        for fault, n in found.faults.most_common():
            log(f"{n:,} rows cannot be read: {fault}")
        raise typer.Exit(SHORT if found.faults else 0)


def _generators(given: Sequence[str]) -> Iterator[str]:
    """Translate `Qwen/Qwen3-8B@http://localhost:8000/v1` into assignments."""
    for number, one in enumerate(given):
        model, _, url = one.partition("@")
        yield f"generators.given-{number}.model={quoted(model)}"
        yield f"generators.given-{number}.base_url={quoted(url)}"


def _without(config: CorpusConfig, without: Sequence[str]) -> CorpusConfig:
    """Return the corpus without these sources; raises BadRecipe for an unknown or for the last one."""
    for name in without:
        if name not in config.sources:
            raise BadRecipe(f"--without {name}: the corpus has {', '.join(config.sources)}")
    sources = {name: wanted for name, wanted in config.sources.items() if name not in without}
    if not sources:
        raise BadRecipe("--without leaves no source: keep at least one")
    return config.model_copy(update={"sources": sources})


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn the errors that a user can cause into one line and an exit code."""
    try:
        yield
    except PackageMissing as error:
        stop("data", error, USAGE)
    except (
        BadRows,
        DiskFull,
        Locked,
        NotAnswered,
        SandboxUnavailable,
        SchemaChanged,
        SourceUnavailable,
    ) as error:
        stop("data", error, FAILED)
    except (BadRecipe, BenchmarkUnavailable, ImportError, ValueError) as error:
        stop("data", error, USAGE)
    except OSError as error:
        stop("data", error, FAILED)
    except KeyboardInterrupt:
        stop("data", "interrupted; the same command resumes", INTERRUPTED)


for _command in (build, decontaminate, inspect):
    add_command(data, _command)
