"""`tirjudge report`: a page on judged rows, on two runs over the same rows, or on a training run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from tirjudge.cli.output import examples, one_line_errors
from tirjudge.generation.spending import Price
from tirjudge.report.judgments import read_run
from tirjudge.report.page import Page, judged_page, training_page
from tirjudge.report.rows import Texts
from tirjudge.report.training import is_training_run, read_training_run
from tirjudge.storage.run_folder import write_atomically

_MIB = 1 << 20
Runs = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN...", help="Result files, or one run folder of tirjudge train.", show_default=False
    ),
]
TextsOption = Annotated[
    Texts,
    typer.Option(
        help="Rows whose prompt, responses and dialogues the page contains.", rich_help_panel="Output"
    ),
]
PriceIn = Annotated[
    float | None,
    typer.Option(min=0, metavar="PRICE", help="Price of a million prompt tokens.", rich_help_panel="Cost"),
]
PriceOut = Annotated[
    float | None,
    typer.Option(
        min=0, metavar="PRICE", help="Price of a million completion tokens.", rich_help_panel="Cost"
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of the bootstrap.", rich_help_panel="Output")]


@examples(
    "tirjudge report rows.verdicts.jsonl -o report.html",
    "tirjudge report before.verdicts.jsonl after.verdicts.jsonl --texts wrong",
    "tirjudge report runs/smol-0",
)
def report(
    runs: Runs,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The page.", rich_help_panel="Output")
    ] = Path("report.html"),
    texts: TextsOption = "all",
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    seed: Seed = 0,
) -> None:
    """Write one page that needs no network: numbers with intervals, breakdowns, and every row to read.

    Several result files are compared with the first, row by row. Exit codes: 0 done; 2 for a file that is no
    result file, a folder without metrics, and runs that have no row in common.
    """
    with one_line_errors("report"):
        if output.is_dir() or any(output.exists() and output.samefile(run) for run in runs if run.exists()):
            raise ValueError(f"--output {output}: choose a file that is not one of the runs")
        page = page_of(runs, texts=texts, price=price_of(price_in, price_out), seed=seed)
        write_atomically(output, page.html)
    print(f"{output}: {_sizes(page)}")


def page_of(runs: Sequence[Path], *, texts: Texts, price: Price | None, seed: int) -> Page:
    """Return the page of result files, or of one training run.

    Raises OSError for a missing file, and ValueError, in one line, for any other bad input.
    """
    folders = [run for run in runs if run.is_dir()]
    if folders and len(runs) > 1:
        raise ValueError(f"{folders[0]} is a folder: a training run has a report of its own")
    if folders:
        if not is_training_run(folders[0]):
            raise ValueError(f"{folders[0]} is no run folder of tirjudge train: no stage in it has metrics")
        return training_page(read_training_run(folders[0]))
    if len(set(runs)) < len(runs):
        raise ValueError("the same result file is given twice")
    return judged_page([read_run(run, texts=texts, price=price, seed=seed) for run in runs], seed=seed)


def price_of(price_in: float | None, price_out: float | None) -> Price | None:
    """Return the price that the options give. Raises ValueError if only one of them is given."""
    if price_in is None and price_out is None:
        return None
    if price_in is None or price_out is None:
        raise ValueError("--price-in and --price-out belong together")
    return Price(price_in, price_out)


def _sizes(page: Page) -> str:
    sizes = [f"{len(page.html) / _MIB:.2f} MiB"]
    if page.rows:
        sizes.append(f"{page.row_bytes / page.rows:.0f} bytes per row for {page.rows} rows")
        texts = f"{page.text_bytes / page.rows:.0f} bytes per row of compressed texts"
        sizes.append(texts if page.text_bytes else "no texts")
    return ", ".join(sizes)
