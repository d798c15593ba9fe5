"""The command line: one file a command, loaded when it is asked for."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from tirjudge import __version__
from tirjudge.cli.standard_output import ending_unread
from tirjudge.console_text import printable

GROUP = "tirjudge.commands"
"""Entry-point group for further commands: a function for typer, or a Typer app."""
UNAVAILABLE = 2

_ANY_OPTIONS = {"ignore_unknown_options": True, "allow_extra_args": True}
_OURS = {
    "bon": "tirjudge.cli.bon:bon",
    "checklist": "tirjudge.cli.checklist:checklist",
    "eval": "tirjudge.cli.evaluate:evaluate",
    "formats": "tirjudge.cli.formats:formats",
    "judge": "tirjudge.cli.judge:judge",
    "mcp": "tirjudge.cli.mcp:mcp",
    "sandbox": "tirjudge.cli.sandbox:sandbox",
    "serve": "tirjudge.cli.serve:serve",
    "verify": "tirjudge.cli.verify:verify",
}


class Commands(TyperGroup):
    """Our commands and those of other packages; one that cannot be loaded leaves the others alone."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(_homes())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        home = _homes().get(cmd_name)
        if home is None:
            return None
        try:
            return _command(cmd_name, home.load())
        except Exception as error:
            return _command(cmd_name, _broken(cmd_name, error), **_ANY_OPTIONS)


def _homes() -> dict[str, EntryPoint]:
    homes = {entry.name: entry for entry in entry_points(group=GROUP)}
    return homes | {name: EntryPoint(name, value, GROUP) for name, value in _OURS.items()}


def _command(name: str, found: Any, **settings: Any) -> Any:
    if isinstance(found, typer.Typer):
        group = get_group(found)
        group.name = name
        return group
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(name, context_settings=settings)(found)
    return get_command(app)


def _broken(name: str, error: Exception) -> Any:
    reason = printable(f"{type(error).__name__}: {error}")

    def command(arguments: Annotated[list[str] | None, typer.Argument(hidden=True)] = None) -> None:
        print(f"tirjudge {name} cannot be loaded: {reason}", file=sys.stderr)
        raise typer.Exit(UNAVAILABLE)

    command.__doc__ = f"Cannot be loaded: {reason}"
    return command


app = typer.Typer(
    cls=Commands,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"tirjudge {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """LLM judges that run programs before they give a verdict."""


def main() -> None:
    """The console script."""
    with ending_unread():
        app()
