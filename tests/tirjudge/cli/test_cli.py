"""The root command: fast, and unaffected by a broken plug-in."""

import json
import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest
import typer
from typer.testing import CliRunner

from tirjudge import __version__, cli
from tirjudge.cli import app
from tirjudge.console_text import printable

FURTHER = "Further options, which --help-all explains:"
HELPS = """
import json, sys
import typer
from tirjudge.cli import app

helps = {}

def walk(command, context):
    helps[context.command_path] = command.get_help(context)
    for name in getattr(command, "list_commands", lambda _: [])(context):
        member = command.get_command(context, name)
        walk(member, type(context)(member, info_name=name, parent=context))

root = typer.main.get_command(app)
walk(root, root.make_context("tirjudge", [], resilient_parsing=True))
heavy = {"torch", "transformers", "trl", "datasets", "pandas", "scipy", "ray"} & sys.modules.keys()
print(json.dumps({"helps": helps, "heavy": sorted(heavy)}))
"""
"""Prints the help of all commands, and the heavy modules that were imported for it."""


def greet(name: str) -> None:
    """Say hello."""
    print(f"hello {name}")


many = typer.Typer(help="Several commands.")


@many.command()
def one() -> None:
    print("one")


@pytest.fixture
def plugged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register other packages' commands: a function, an app, one without its extra and a broken one."""
    values = {
        "greet": f"{__name__}:greet",
        "many": f"{__name__}:many",
        "absent": "no_such_package_\x1b[31m:command",
        "broken": f"{__name__}:no_such_name",
    }
    sys.modules[__name__] = sys.modules.get(__name__) or sys.modules[greet.__module__]
    entries = [EntryPoint(name, value, cli.GROUP) for name, value in values.items()]
    monkeypatch.setattr(cli, "plugged_in", lambda group: entries)


def test_version() -> None:
    run = CliRunner().invoke(app, ["--version"])
    assert (run.exit_code, run.stdout) == (0, f"tirjudge {__version__}\n")


def test_every_command_has_help_which_imports_nothing_heavy() -> None:
    run = subprocess.run([sys.executable, "-c", HELPS], capture_output=True, text=True, check=True)
    found = json.loads(run.stdout)
    assert found["heavy"] == []
    assert {"tirjudge", "tirjudge judge", "tirjudge sandbox run", "tirjudge train"} <= found["helps"].keys()
    for command, text in found["helps"].items():
        assert "annot be loaded" not in text, command
        assert len(text.split(FURTHER)[0].splitlines()) <= 60, command


@pytest.mark.parametrize("command", ["judge", "serve", "eval", "bon", "attack", "criteria"])
def test_help_explains_common_options_and_names_the_rest_under_one_heading(command: str) -> None:
    usual, every = (CliRunner().invoke(app, [command, word]).stdout for word in ("--help", "--help-all"))
    explained, rest = usual.split(FURTHER)
    named = set(rest.partition("\n\n")[0].replace(",", " ").split())
    assert {"--model", "--base-url", "--format", "--order", "--tools"} <= set(explained.split())
    assert {"--top-p", "--undecided", "--samples", "--backend"} <= named
    assert named.isdisjoint(explained.split())
    assert named | {"--model"} <= set(every.split())
    assert FURTHER not in every


@pytest.mark.usefixtures("plugged")
def test_other_packages_add_commands() -> None:
    assert CliRunner().invoke(app, ["greet", "you"]).stdout == "hello you\n"
    assert CliRunner().invoke(app, ["many", "one"]).stdout == "one\n"


@pytest.mark.usefixtures("plugged")
@pytest.mark.parametrize("name", ["absent", "broken"])
def test_a_command_that_fails_to_load_is_one_line_and_affects_no_other(name: str) -> None:
    run = CliRunner().invoke(app, [name, "--any", "thing"])
    assert run.exit_code == 2
    assert run.stderr.startswith(f"tirjudge {name}: cannot be loaded: ")
    assert len(run.stderr.splitlines()) == 1
    assert "\x1b" not in run.stderr
    help_text = CliRunner().invoke(app, ["--help"]).stdout
    assert "\x1b" not in help_text
    assert "Judge a file of rows" in help_text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb\tc", r"a\nb\tc"),
        ("\x1b[2J\x9b", r"\x1b[2J\x9b"),
        ("\u202eé日", r"\u202eé日"),
        ("\ud800", r"\ud800"),
    ],
)
def test_unprintable_characters_are_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert len(printable(text * 500)) <= 400
