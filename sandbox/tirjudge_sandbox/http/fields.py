"""Validated field types of requests; an invalid value is reported under the name of its field."""

from __future__ import annotations

import base64
import binascii
import json
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PlainSerializer,
    WithJsonSchema,
)

from tirjudge_sandbox.base import MOST_NAME_BYTES, MOST_NESTED, nested_too_deeply

MOST_FILES = 1000
"""The most files that a request may send, and the most that it may fetch."""
_MOST_PATH_BYTES = 1000


class Message(BaseModel):
    """A request or an answer. Unknown fields are ignored, as in SandboxFusion."""

    model_config = ConfigDict(frozen=True, extra="ignore")


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"holds a lone surrogate (half a character) at {error.start}") from None
    return text


def _inside(path: str) -> str:
    parts = PurePosixPath(_encodable(path)).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path or path.endswith("/"):
        raise ValueError("must be a relative path of a file inside the program's folder")
    if len(path.encode()) > _MOST_PATH_BYTES or any(len(part.encode()) > MOST_NAME_BYTES for part in parts):
        raise ValueError(f"must have at most {_MOST_PATH_BYTES} bytes, and {MOST_NAME_BYTES} between slashes")
    return path


def _decoded(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("must be base64") from None


def _apart(files: dict[str, bytes | None]) -> dict[str, bytes | None]:
    """Refuse a path that is used both as a file and as a folder.

    Writing such files would fail, which would look like an error of the program.
    """
    paths = {PurePosixPath(path) for path in files}
    if len(paths) < len(files):
        raise ValueError("names a file twice")
    if clash := next((path for path in paths if not paths.isdisjoint(path.parents)), None):
        raise ValueError(f"names a file that lies inside another: {str(clash)[:100]!r}")
    return files


def _plain(bindings: dict[str, JsonValue]) -> dict[str, JsonValue]:
    if nested_too_deeply(bindings):
        raise ValueError(f"is nested too deeply: {MOST_NESTED} levels are possible")
    _encodable(json.dumps(bindings, ensure_ascii=False))
    return bindings


Text = Annotated[str, AfterValidator(_encodable)]
"""Any text that UTF-8 can encode, including NUL."""

FilePath = Annotated[str, AfterValidator(_inside)]
"""A relative path inside the program's folder."""

Base64 = Annotated[
    bytes,
    BeforeValidator(_decoded),
    PlainSerializer(lambda content: base64.b64encode(content).decode(), return_type=str),
    WithJsonSchema({"type": "string", "contentEncoding": "base64"}),
]

Files = Annotated[dict[FilePath, Base64 | None], Field(max_length=MOST_FILES), AfterValidator(_apart)]
"""Maps a path to its content; a file with null is left out, as in SandboxFusion."""

Paths = Annotated[tuple[FilePath, ...], Field(max_length=MOST_FILES)]

Bindings = Annotated[dict[Text, JsonValue], AfterValidator(_plain)]

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def given(files: dict[str, bytes | None]) -> dict[str, bytes]:
    """Return the files without those that are null."""
    return {path: content for path, content in files.items() if content is not None}
