"""A server's token: from the environment or a file, never an argument, which every user here sees."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import typer
from pydantic import SecretStr

_SHORTEST = 16


def token_file_option(variable: str) -> Any:
    """The option that names the file, for a server whose token `variable` may hold instead."""
    return typer.Option(metavar="FILE", help=f"File with the token.  [default: the variable {variable}]")


def read_token(variable: str, file: Path | None) -> SecretStr | None:
    """The file's, else the variable's, None without either. Raises ValueError for one that is none."""
    source, token = variable, os.environ.get(variable)
    if file is not None:
        source = str(file)
        try:
            token = file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "no text"
            raise ValueError(f"--token-file {file}: {reason}") from None
    if token is None:
        return None
    if len(token) < _SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError(f"the token in {source} must be at least {_SHORTEST} printable ASCII characters")
    return SecretStr(token)
