"""Field types of requests and answers; an invalid value is reported under the name of its field."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
)

MOST_FILES = 1000
"""Files that a request may send at most, and that it may fetch at most."""


class Message(BaseModel):
    """A request or an answer. Unknown fields are ignored, as in SandboxFusion."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"holds a lone surrogate (half a character) at {error.start}") from None
    return text


def _without_nulls(files: object) -> object:
    if not isinstance(files, Mapping):
        return files
    return {path: content for path, content in files.items() if content is not None}


def decoded(content: object) -> bytes:
    """Return the bytes of a text in base64. Raises ValueError for anything else."""
    try:
        if isinstance(content, str | bytes):
            return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError):
        pass
    raise ValueError("must be base64")


def encoded(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return files with their content in base64."""
    return {path: base64.b64encode(content).decode() for path, content in files.items()}


Text = Annotated[str, AfterValidator(_encodable)]
"""Any text that UTF-8 can encode, including NUL."""

_Base64 = Annotated[
    bytes, BeforeValidator(decoded), WithJsonSchema({"type": "string", "contentEncoding": "base64"})
]

Files = Annotated[dict[str, _Base64], BeforeValidator(_without_nulls), Field(max_length=MOST_FILES)]
"""Maps a path to its content; a file with null is left out, as in SandboxFusion."""

Paths = Annotated[
    tuple[str, ...], Field(max_length=MOST_FILES), AfterValidator(lambda paths: tuple(dict.fromkeys(paths)))
]
"""Paths without repetition."""

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def one_line(error: ValidationError) -> str:
    """Return the first of the errors as `field: message`."""
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
