"""The help of commands: options in panels, examples, and how a function becomes a command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

PANELS = (
    "Recipe",
    "Rows",
    "Model",
    "Method",
    "Judging",
    "Calibration",
    "Sandbox",
    "Cost",
    "Server",
    "Trying out",
    "Output",
    "Cluster",
    "Options",
)
"""Groups of options in the order of `--help`; an option without a group is in the last one."""


class _Examples:
    """Help that ends with examples as they are: a wrapped command line could not be copied."""

    epilog: str | None

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        if self.epilog:
            formatter.write(f"\nExamples:\n{self.epilog}\n")


class ExampleGroup(_Examples, TyperGroup):
    """A group of commands whose help ends with examples."""


class PanelCommand(_Examples, TyperCommand):
    """A command whose help groups the options by panel and ends with examples, in plain text.

    Typer's own panels need rich markup, in which help texts with brackets would have to be escaped.
    """

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then each panel's options."""
        panels: dict[str, list[tuple[str, str]]] = {"Arguments": [], **{panel: [] for panel in PANELS}}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                is_argument = parameter.param_type_name == "argument"
                panel = getattr(parameter, "rich_help_panel", None) or PANELS[-1]
                # A plug-in's command may have panels of its own.
                panels.setdefault("Arguments" if is_argument else panel, []).append(record)
        for panel, records in panels.items():
            if records:
                with formatter.section(panel):
                    formatter.write_dl(records)


def examples(*lines: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a command with command lines that `--help` shows."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        command.examples = lines  # type: ignore[attr-defined]
        return command

    return decorate


def add_command(
    app: typer.Typer, command: Callable[..., None], name: str | None = None, **settings: Any
) -> None:
    """Register a command with its `examples`; `settings` are click's context settings."""
    epilog = example_lines(*getattr(command, "examples", ())) or None
    app.command(name, cls=PanelCommand, epilog=epilog, context_settings=settings)(command)


def example_lines(*lines: str) -> str:
    """Return the epilog of an `ExampleGroup` or a `PanelCommand`."""
    return "\n".join(f"  {line}" for line in lines)
