"""Misuse gets a line and an exit code other than 0, as misuse.md says, and never a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tirjudge.cli.misuse import CALLS, COMMANDS, HEAD, PAGE, Workplace, table_row, workplace

KINDS = (*COMMANDS, *CALLS)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    with workplace(tmp_path_factory.mktemp("misuse")) as place:
        yield place


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", KINDS)
def test_misuse_gets_the_line_that_the_page_says(kind: str, place: Workplace, page: str) -> None:
    command, code, line = place.outcome(kind)
    assert code not in ("0", "none"), "it passes silently"
    assert line
    assert table_row(kind, (command, code, line)) in page


def test_the_page_has_no_other_rows(page: str) -> None:
    assert page.startswith(HEAD)
    assert len(page.removeprefix(HEAD).splitlines()) == len(KINDS) >= 40
    commands = {
        "judge",
        "attack",
        "bon",
        "eval",
        "serve",
        "mcp",
        "train",
        "data",
        "show",
        "reproduce",
        "models",
    }
    assert commands <= {words.split()[0] for words in COMMANDS.values()}
    assert str(Path.home()) not in page
