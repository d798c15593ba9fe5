"""The command line: one file per command, loaded when it is needed."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from tirjudge import __version__
from tirjudge.cli.output import USAGE, add_command, ending_unread, example_lines, stop
from tirjudge.console_text import printable
from tirjudge_sandbox.registry import plugged_in

GROUP = "tirjudge.commands"
"""Entry-point group for further commands: a function for typer, or a Typer app."""

_ABOUT = {
    "attack": "Attack the verdicts of a judge and count the verdicts that flip.",
    "bon": "Let a judge select the best of N candidates.",
    "compile": "Compile rules into checkers, which decide them without a model.",
    "criteria": "Propose criteria for labelled rows, and keep those that agree with the labels.",
    "data": "Build corpora of training data, decontaminate rows, summarise them.",
    "compare": "Compare two runs over the same rows.",
    "eval": "Judge a benchmark and score the verdicts.",
    "export": "Write result files as logs of Inspect.",
    "formats": "List the judge formats that `--format` accepts.",
    "judge": "Judge a file of rows.",
    "launch": "Train the next RL stage of a recipe with verl, on a Ray cluster.",
    "mcp": "Serve the tools `run_python_code` and `judge` over the Model Context Protocol.",
    "models": "List, fetch and remove models.",
    "report": "Write one page about judged rows or a training run.",
    "reproduce": "Run every recorded program again, and compare its output with the record.",
    "sandbox": "Run programs in the sandbox.",
    "score": "Score stored verdicts, or calibrate them with people's labels.",
    "serve": "Serve the judge over HTTP, for verdicts and for rewards.",
    "show": "Show rows of a result file, with everything that led to their verdicts.",
    "train": "Train a judge.",
}
"""Our own commands. Their lines are here because a list of the commands must not load them."""
_PLACES = {name: f"tirjudge.cli.{name}:{name}" for name in _ABOUT} | {
    "compare": "tirjudge.cli.score:compare",
    "data": "tirjudge_training.corpora.cli:data",
    "eval": "tirjudge.cli.eval:evaluate",
    "export": "tirjudge.cli.results:export",
    "formats": "tirjudge.cli.judge:formats",
    "launch": "tirjudge_training.launch.cli:launch",
    "report": "tirjudge.cli.results:report",
    "reproduce": "tirjudge.cli.results:reproduce",
    "show": "tirjudge.cli.results:show",
    "train": "tirjudge_training.cli:train",
}


class Commands(TyperGroup):
    """Our own commands and those of other packages; a command that cannot be loaded leaves the others."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(_entries())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = _entries().get(cmd_name)
        if entry is None:
            return None
        try:
            return _command(cmd_name, entry.load())
        except Exception as error:
            anything = {"ignore_unknown_options": True, "allow_extra_args": True}
            return _command(cmd_name, _broken(cmd_name, error), **anything)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        names = self.list_commands(ctx)
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, _ABOUT.get(name) or self.get_command(ctx, name).get_short_help_str())
                    for name in names
                ]
            )

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        # Typer suggests the closest of `commands`, which is empty here because commands are loaded by name.
        names: Any = dict.fromkeys(_entries())
        self.commands = names
        return super().resolve_command(ctx, args)


def _entries() -> dict[str, EntryPoint]:
    entries = {entry.name: entry for entry in plugged_in(GROUP)}
    return entries | {name: EntryPoint(name, _PLACES[name], GROUP) for name in _ABOUT}


@cache
def _command(name: str, found: Any, **settings: Any) -> Any:
    if isinstance(found, typer.Typer):
        group = get_group(found)
        group.name = name
        return group
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    add_command(app, found, name, **settings)
    return get_command(app)


def _broken(name: str, error: Exception) -> Any:
    reason = printable(f"cannot be loaded: {type(error).__name__}: {error}")

    def command(arguments: Annotated[list[str] | None, typer.Argument(hidden=True)] = None) -> None:
        stop(name, reason, USAGE)

    command.__doc__ = reason.capitalize()
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
