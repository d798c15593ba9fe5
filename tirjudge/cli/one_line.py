"""From errors to one line on standard error and an exit code."""

from __future__ import annotations

import sys
import typer
from collections.abc import Iterator
from contextlib import contextmanager
from pydantic import ValidationError
from tirjudge.console_text import printable
from tirjudge.generation.base import GeneratorFailed
from tirjudge.storage.run_folder import Locked
from tirjudge_environments.registry import first_fault
from tirjudge_sandbox import SandboxUnavailable
from typing import NoReturn

SOME_FAILED, USAGE, INTERRUPTED = 1, 2, 130
LONGEST = 1000
"""Characters of a line."""


@contextmanager
def one_line_errors(command: str) -> Iterator[None]:
    """What a user can mend, said in one line with the command's name before it; exit code 2."""
    try:
        yield
    except ValidationError as error:
        stop(command, first_fault(error), USAGE)
    except (GeneratorFailed, Locked, OSError, SandboxUnavailable, ValueError) as error:
        stop(command, error, USAGE)


def stop(command: str, reason: object, code: int) -> NoReturn:
    say(f"tirjudge {command}: {' '.join(str(reason).split())}")
    raise typer.Exit(code)


def say(line: str) -> None:
    """Foreign text, as one line."""
    print(printable(line, LONGEST), file=sys.stderr, flush=True)
