"""The command `tirjudge data smol`, which joins the other commands of `tirjudge data`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tirjudge.cli.errors import log
from tirjudge.cli.help import add_command, examples
from tirjudge.storage.run_folder import disk_full_errors
from tirjudge_training.corpora.cli import data, one_line_errors
from tirjudge_training.smol.card import card_lines
from tirjudge_training.smol.generator import SIZES, Generator, drawn_families, write


@examples(
    "tirjudge data smol --sources corpora --output data/smol",
    "tirjudge data smol --sources corpora --without punctuation:no_comma",
)
def smol(
    sources: Annotated[
        Path, typer.Option(help="The folder with mbpp/ and self-instruct/, from their public repositories.")
    ],
    output: Annotated[Path, typer.Option(help="The folder for the three files and their card.")] = Path(
        "data/smol"
    ),
    benchmarks: Annotated[
        Path | None,
        typer.Option(
            help="The folder with the benchmarks' prompts; by default benchmarks/ next to the sources."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="The files are a function of the seed.")] = 0,
    scale: Annotated[float, typer.Option(min=0.001, help="Multiply the numbers of rows.")] = 1,
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="FAMILY", help="Leave this constraint family out of all files; repeatable."),
    ] = None,
    held_out_families: Annotated[
        int, typer.Option(min=0, max=20, help="Leave out this many families, drawn by seed.")
    ] = 0,
) -> None:
    """Generate the training data of the small real judge: warmup, train and heldout.jsonl.gz.

    Exit codes: 0, 2 usage, 3 failed, 130 interrupted.
    """
    with one_line_errors(), disk_full_errors(output):
        named = [*(without or ()), *drawn_families(held_out_families, seed)]
        folder = benchmarks or sources.parent / "benchmarks"
        generator = Generator(sources, folder, seed=seed, without=named, say=log)
        output.mkdir(parents=True, exist_ok=True)
        for name, size in SIZES.items():
            write(generator.make(name, max(1, round(size * scale))), output / f"{name}.jsonl.gz", name)
        options = [f"--seed {seed}", *([f"--scale {scale:g}"] if scale != 1 else [])]
        options += [f"--without {name}" for name in named]
        command = f"tirjudge data smol --sources DIR {' '.join(options)}"
        card = "\n".join(card_lines(generator.report, command)) + "\n"
        (output / "README.md").write_text(card, encoding="utf-8")
        for name, rows in generator.report.rows.items():
            print(f"{output / name}.jsonl.gz: {len(rows):,} rows")


add_command(data, smol)
