"""`tirjudge sandbox`: run programs, serve them over HTTP, and examine this machine."""

from __future__ import annotations

import typer

from tirjudge.cli.bench import bench
from tirjudge.cli.help import ExampleGroup, add_command, example_lines, examples
from tirjudge.cli.sandbox.doctor import doctor
from tirjudge.cli.sandbox.run import build, run
from tirjudge.cli.sandbox.serve import serve

sandbox = typer.Typer(
    cls=ExampleGroup,
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    epilog=example_lines("tirjudge sandbox run program.py", "tirjudge sandbox doctor"),
)
for _command in (run, build, serve, doctor):
    add_command(sandbox, _command)
add_command(sandbox, examples("tirjudge sandbox bench", "tirjudge sandbox bench --seconds 1 --json")(bench))


@sandbox.callback()
def root() -> None:
    """Run programs in the sandbox."""
