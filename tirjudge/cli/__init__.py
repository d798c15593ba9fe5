"""The command line: one file per command, loaded when it is needed."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any

import typer
from typer.main import get_command, get_group

from tirjudge import __version__
from tirjudge.cli.errors import USAGE, ending_unread
from tirjudge.cli.help import ExampleGroup, add_command, example_lines
from tirjudge.console_text import printable

GROUP = "tirjudge.commands"
"""Entry-point group for further commands: a function for typer, or a Typer app."""

_ANY_OPTIONS = {"ignore_unknown_options": True, "allow_extra_args": True}
_BUILT_IN = {
    "attack": "tirjudge.cli.attack:attack",
    "bon": "tirjudge.cli.bon:bon",
    "eval": "tirjudge.cli.eval:evaluate",
    "export": "tirjudge.cli.export:export",
    "formats": "tirjudge.cli.judge:formats",
    "judge": "tirjudge.cli.judge:judge",
    "mcp": "tirjudge.cli.mcp:mcp",
    "models": "tirjudge.cli.models:models",
    "report": "tirjudge.cli.report:report",
    "reproduce": "tirjudge.cli.reproduce:reproduce",
    "sandbox": "tirjudge.cli.sandbox:sandbox",
    "serve": "tirjudge.cli.serve:serve",
    "show": "tirjudge.cli.show:show",
}


class Commands(ExampleGroup):
    """Built-in commands and those of other packages; one that cannot be loaded does not affect the others."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(_entries())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = _entries().get(cmd_name)
        if entry is None:
            return None
        try:
            return _command(cmd_name, entry.load())
        except Exception as error:
            return _command(cmd_name, _broken(cmd_name, error), **_ANY_OPTIONS)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        # Typer suggests the closest of `commands`, which is empty here because commands are loaded by name.
        names: Any = dict.fromkeys(_entries())
        self.commands = names
        return super().resolve_command(ctx, args)


def _entries() -> dict[str, EntryPoint]:
    entries = {entry.name: entry for entry in entry_points(group=GROUP)}
    return entries | {name: EntryPoint(name, value, GROUP) for name, value in _BUILT_IN.items()}


def _command(name: str, found: Any, **settings: Any) -> Any:
    if isinstance(found, typer.Typer):
        group = get_group(found)
        group.name = name
        return group
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    add_command(app, found, name, **settings)
    return get_command(app)


def _broken(name: str, error: Exception) -> Any:
    reason = printable(f"{type(error).__name__}: {error}")

    def command(arguments: Annotated[list[str] | None, typer.Argument(hidden=True)] = None) -> None:
        print(f"tirjudge {name} cannot be loaded: {reason}", file=sys.stderr)
        raise typer.Exit(USAGE)

    command.__doc__ = f"Cannot be loaded: {reason}"
    return command


app = typer.Typer(
    cls=Commands,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    epilog=example_lines(
        "tirjudge judge examples/instructions.jsonl",
        "tirjudge eval judgebench --model Qwen/Qwen3-8B --base-url http://localhost:8000/v1",
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
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
    """Run the console script `tirjudge`."""
    with ending_unread():
        app()
