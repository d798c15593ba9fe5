"""Options, help, errors and output of commands. It imports nothing heavy: `tirjudge --help` loads it."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import typer
from typer.core import TyperCommand

from tirjudge.console_text import printable
from tirjudge.progress import say as say

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from tirjudge.data.sources import RowSource

SOME_FAILED, USAGE, INTERRUPTED = 1, 2, 130
"""Exit codes: some rows failed, wrong usage, and ended by Ctrl-C (128 + SIGINT, as in a shell)."""
STANDARD_OUTPUT = Path("-")
"""The `--output` that writes results to standard output."""
NO_SANDBOX = 125
"""The exit code if there is no sandbox; `docker run` uses the same for its own failures."""
UNREAD = 128 + signal.SIGPIPE
"""The exit code that a shell reports for a program ended by SIGPIPE."""
_NARROWEST = 100
"""Columns of a table where there is no terminal."""


def option(panel: str, about: str, *names: str, **settings: Any) -> Any:
    """Return an option of a command, which `--help` shows in a panel; `settings` are typer's."""
    return typer.Option(*names, help=about, rich_help_panel=panel, **settings)


def assigned(flag: str, assignments: Iterable[str]) -> dict[str, Any]:
    """Return `KEY=VALUE` texts as a table; a value is JSON (true, 0.5, {"math": true}) or else plain text."""
    table: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        # The key may not be empty, but the value may.
        if not key or not equals:
            raise ValueError(f"{flag} {assignment!r}: write KEY=VALUE")
        try:
            table[key] = json.loads(value)
        except (ValueError, RecursionError):
            table[key] = value
    return table


def examples(*lines: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a command with command lines that `--help` shows."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        command.epilog = example_lines(*lines)  # type: ignore[attr-defined]
        return command

    return decorate


def example_lines(*lines: str) -> str:
    """Return the epilog of a help text that shows command lines."""
    # After \b click wraps no line, so that a command line can be copied.
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def command_group(about: str, *lines: str) -> typer.Typer:
    """Return the app of a group of commands, whose help shows command lines."""
    app = typer.Typer(
        help=about,
        epilog=example_lines(*lines),
        add_completion=False,
        rich_markup_mode=None,
        no_args_is_help=True,
    )
    # Without a callback typer takes the only command of a group for the group.
    app.callback()(lambda: None)
    return app


def add_command(
    app: typer.Typer, command: Callable[..., None], name: str | None = None, **settings: Any
) -> None:
    """Register a command with its `examples`; `settings` are click's context settings."""
    epilog = getattr(command, "epilog", None)
    app.command(name, cls=_Command, epilog=epilog, context_settings=settings)(command)


class _Command(TyperCommand):
    """A command whose help groups the options by panel, in plain text.

    Typer's own panels need rich markup, in which help texts with brackets would have to be escaped.
    """

    def format_options(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        hidden = []
        for parameter in self.get_params(ctx):
            if record := parameter.get_help_record(ctx):
                panel = "Arguments" if parameter.param_type_name == "argument" else "Options"
                panel = getattr(parameter, "rich_help_panel", None) or panel
                panels.setdefault(panel, []).append(record)
            else:
                hidden.append(parameter.opts[0])
        for panel, records in panels.items():
            with formatter.section(panel):
                formatter.write_dl(records)
        if hidden:
            with formatter.section("Further options, which --help-all explains"):
                named = textwrap.fill(", ".join(hidden), formatter.width - 2, break_on_hyphens=False)
                formatter.write(textwrap.indent(f"{named}\n", "  "))

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        # The shell completes the options that only --help-all shows, too.
        return TyperCommand.shell_complete(with_all_shown(self), ctx, incomplete)


def with_all_shown(command: Any) -> Any:
    """Return a copy of a command that hides none of its options."""
    shown = copy(command)
    shown.params = [copy(parameter) for parameter in command.params]
    for parameter in shown.params:
        parameter.hidden = False
    return shown


@contextmanager
def one_line_errors(command: str) -> Iterator[None]:
    """Turn an error that the user can fix into one line with the command's name, and exit code 2."""
    from pydantic import ValidationError

    from tirjudge.generation.base import GeneratorFailed
    from tirjudge.storage.json_lines import Locked
    from tirjudge_environments.registry import first_fault
    from tirjudge_sandbox import SandboxUnavailable

    try:
        yield
    except ValidationError as error:
        stop(command, first_fault(error), USAGE)
    except OSError as error:
        known = error.filename is not None and error.strerror
        stop(command, f"{error.filename}: {error.strerror}" if known else error, USAGE)
    # An ImportError names the extra that has the missing package.
    except (GeneratorFailed, ImportError, Locked, SandboxUnavailable, ValueError) as error:
        stop(command, error, USAGE)


def stop(command: str, reason: object, code: int) -> NoReturn:
    """End the command with one line on standard error and this exit code."""
    say(f"tirjudge {command}: {' '.join(str(reason).split())}")
    raise typer.Exit(code)


def no_sandbox(command: str, error: Exception) -> NoReturn:
    """End the command because there is no sandbox; a missing package has the exit code of wrong usage."""
    from tirjudge_sandbox import PackageMissing

    stop(command, error, USAGE if isinstance(error, PackageMissing) else NO_SANDBOX)


def log(line: str) -> None:
    """Print one line of progress to standard error."""
    say(f"{time.strftime('%H:%M:%S')} {line}")


def output_file(given: Path | None, file: str, kind: str, *, streamed: bool = False) -> Path:
    """Return `given`, or NAME.KIND.jsonl in the current folder; for a pattern, NAME is its folder.

    Raises ValueError for a nameless input, and for standard output unless the results may be `streamed`.
    """
    from tirjudge.data.rows import STANDARD_INPUT
    from tirjudge.data.sources import is_pattern, pattern_folder

    if given == STANDARD_OUTPUT and not streamed:
        raise ValueError("--output -: only tirjudge judge writes its results to standard output")
    if given is not None:
        return given
    if file == STANDARD_INPUT:
        raise ValueError("standard input has no name from which to derive one: give --output")
    if is_pattern(file):
        folder = pattern_folder(file).name
        if not folder:
            raise ValueError(f"{file} has no folder from which to derive a name: give --output")
        return Path(f"{folder}.{kind}.jsonl")
    return Path(f"{Path(file).stem}.{kind}.jsonl")


def refuse_input(output: Path, rows: RowSource) -> None:
    """Raise ValueError if the rows come from `output`, and if there are none."""
    if output.exists() and rows.is_at(output):
        raise ValueError(f"{output} is the input: choose another --output")
    if rows.count() == 0:
        raise ValueError(f"{rows.name} has no rows")


@contextmanager
def ending_unread() -> Iterator[None]:
    """End the command once standard output or error has no reader any more, as with `| head`.

    A write to such a pipe raises SystemExit with UNREAD, which no error handler catches. The signal itself
    stays ignored, because broken connections to endpoints and sandboxes would send it too.
    """
    sys.stdout, sys.stderr = _watched(sys.stdout), _watched(sys.stderr)
    try:
        yield
    finally:
        # An error in the flush at the interpreter's exit could only be printed as a complaint.
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()


class _Watched(io.FileIO):
    """A file descriptor that ends the command when a write fails."""

    def write(self, content: Any, /) -> int:
        try:
            return super().write(content)
        except OSError as error:
            # Discard everything that is written on the way out.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            broken = isinstance(error, BrokenPipeError)
            raise SystemExit(UNREAD if broken else f"tirjudge: cannot write: {error.strerror}") from None


def _watched(stream: TextIO) -> TextIO:
    """Return a stream over the same file with the same buffering; one without a file stays unchanged."""
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    raw = _Watched(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        raw if stream.write_through else io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def plain(text: str) -> Text:
    """Return untrusted text without markup and control characters."""
    from rich.text import Text

    return Text(printable(text))


def new_table(**settings: Any) -> Table:
    """Return a table with lines on a terminal, and without any in a pipe."""
    from rich.table import Table

    if console().is_terminal:
        return Table(**settings)
    return Table(box=None, pad_edge=False, **settings)


def figures_table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "", words: int = 1
) -> Table:
    """Return a table of untrusted texts, whose first `words` columns are words, and the others numbers."""
    table = new_table(title=plain(title) if title else None, title_justify="left")
    for number, head in enumerate(heads):
        table.add_column(plain(head), justify="left" if number < words else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(plain, row))
    return table


def console() -> Console:
    """Return a console as wide as the terminal; without one, wide enough for a table."""
    from rich.console import Console

    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=max(_NARROWEST, terminal.width))
