"""`tirjudge view`: the page of `tirjudge report`, served on this machine, following a run in progress."""

from __future__ import annotations

import webbrowser
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from tirjudge.cli.errors import one_line_errors, say
from tirjudge.cli.help import examples
from tirjudge.cli.report import PriceIn, PriceOut, Runs, Seed, TextsOption, page_of, price_of
from tirjudge.report.server import LivePage, PageServer
from tirjudge.report.training import has_settings, is_training_run, run_files
from tirjudge.storage.result_file import failures_path, recorded_settings, settings_path
from tirjudge_sandbox.server.guard import is_loopback


@examples("tirjudge view rows.verdicts.jsonl", "tirjudge view runs/smol-0 --port 8765 --no-open")
def view(
    runs: Runs,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on; others than loopback can be reached from the network.",
            rich_help_panel="Server",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.", rich_help_panel="Server")
    ] = 0,
    open_browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in a browser.", rich_help_panel="Server")
    ] = True,
    texts: TextsOption = "all",
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    seed: Seed = 0,
) -> None:
    """Serve the page of tirjudge report, and follow the run while it is in progress.

    The address has a random token and is printed; Ctrl-C ends the server. A run that has only begun is waited
    for. Exit codes: 0 ended by Ctrl-C; 2 as for report, and for an address that cannot be used.
    """
    with one_line_errors("view"):
        price = price_of(price_in, price_out)
        page = LivePage(
            lambda: _watched(runs),
            lambda tag: page_of(runs, texts=texts, price=price, seed=seed, live=tag).html,
        )
        try:
            page.newest()
        except (OSError, ValueError):
            if not any(map(_is_before_its_first_row, runs)):
                raise
            say("tirjudge view: the run has begun; the page appears with its first row or step")
        try:
            server = PageServer(page, host, port)
        except OSError as error:
            raise ValueError(f"cannot listen on {host} port {port}: {error.strerror or error}") from None
    with server:
        print(server.url, flush=True)
        if not is_loopback(host):
            say("tirjudge view: whoever can reach this address and knows the token can read the run")
        if open_browser:
            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return


def _is_before_its_first_row(run: Path) -> bool:
    """Return True for a run whose settings are written, and no row or step yet."""
    if run.is_dir():
        return has_settings(run) and not is_training_run(run)
    return recorded_settings(run) is not None and not (run.exists() and run.stat().st_size)


def _watched(runs: Sequence[Path]) -> Iterator[Path]:
    for run in runs:
        if run.is_dir():
            yield from run_files(run)
        else:
            yield from (run, failures_path(run), settings_path(run))
