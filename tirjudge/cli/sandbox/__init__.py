"""`tirjudge sandbox`: run programs, serve them over HTTP, and examine this machine."""

from __future__ import annotations

import typer

from tirjudge.cli.output import USAGE, add_command, example_lines, stop
from tirjudge.cli.sandbox.doctor import doctor
from tirjudge.cli.sandbox.run import build, run
from tirjudge.cli.sandbox.serve import serve

sandbox = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    epilog=example_lines("tirjudge sandbox run program.py", "tirjudge sandbox doctor"),
)
for _command in (run, build, serve, doctor):
    add_command(sandbox, _command)


@sandbox.callback()
def root() -> None:
    """Run programs in the sandbox."""


@sandbox.command(hidden=True, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def bench() -> None:
    """Name the command that replaced `tirjudge sandbox bench`."""
    stop("sandbox", "bench was removed; in a clone, run: python -m benchmarks.sandbox_latency", USAGE)
