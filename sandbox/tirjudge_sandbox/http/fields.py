"""Field types of requests and answers; an invalid value is reported under the name of its field."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sized
from typing import Annotated, Any

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

_PIECE = 3 << 14
"""Characters, or bytes, that are encoded at once; divisible by 3, so that base64 has no padding inside."""


class Message(BaseModel):
    """A request or an answer. Unknown fields are ignored, as in SandboxFusion."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"holds a lone surrogate (half a character) at {error.start}") from None
    return text


def _few(given: object) -> object:
    """Return what was given. Raises ValueError if it is too much, before every part of it is reported."""
    if isinstance(given, Sized) and len(given) > MOST_FILES:
        raise ValueError(f"holds {len(given)}, at most {MOST_FILES} are accepted")
    return given


def _without_nulls(files: object) -> object:
    if not isinstance(files, Mapping):
        return files
    _few(files)
    return {path: content for path, content in files.items() if content is not None}


def decoded(content: object) -> bytes:
    """Return the bytes of a text in base64. Raises ValueError for anything else."""
    try:
        if isinstance(content, str | bytes):
            return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError):
        pass
    raise ValueError("must be base64")


class Base64:
    """Bytes that are encoded in base64 by `bytes(...)`, with the length that this will have."""

    def __init__(self, content: memoryview):
        self._content = content

    def __len__(self) -> int:
        return (len(self._content) + 2) // 3 * 4

    def __bytes__(self) -> bytes:
        return base64.b64encode(self._content)


def json_pieces(value: Any) -> Iterator[bytes | Base64]:
    """Yield a JSON value in pieces that each take at most a few milliseconds to encode; bytes become base64.

    Raises UnicodeEncodeError for half a character.
    """
    if isinstance(value, dict | list | tuple):
        keyed = isinstance(value, dict)
        yield b"{" if keyed else b"["
        for number, key in enumerate(value):
            yield (b"," if number else b"") + (json.dumps(key).encode() + b":" if keyed else b"")
            yield from json_pieces(value[key] if keyed else key)
        yield b"}" if keyed else b"]"
    elif isinstance(value, str | bytes):
        yield b'"'
        for start in range(0, len(value), _PIECE):
            if isinstance(value, str):
                yield json.dumps(value[start : start + _PIECE], ensure_ascii=False)[1:-1].encode()
            else:
                yield Base64(memoryview(value)[start : start + _PIECE])
        yield b'"'
    else:
        yield json.dumps(value).encode()


def message_to_json(message: Message) -> Iterator[bytes | Base64]:
    """Yield an answer as JSON in pieces."""
    return json_pieces(message.model_dump())


def encoded(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return files with their content in base64."""
    return {path: base64.b64encode(content).decode() for path, content in files.items()}


Text = Annotated[str, AfterValidator(_encodable)]
"""Any text that UTF-8 can encode, including NUL."""

_Base64 = Annotated[
    bytes, BeforeValidator(decoded), WithJsonSchema({"type": "string", "contentEncoding": "base64"})
]

Content = Annotated[str | bytes, WithJsonSchema({"type": "string", "contentEncoding": "base64"})]
"""Content of a file in an answer: a text in base64, or the bytes that `json_pieces` encodes."""

Files = Annotated[dict[str, _Base64], BeforeValidator(_without_nulls), Field(max_length=MOST_FILES)]
"""Maps a path to its content; a file with null is left out, as in SandboxFusion."""

Paths = Annotated[
    tuple[str, ...],
    BeforeValidator(_few),
    Field(max_length=MOST_FILES),
    AfterValidator(lambda paths: tuple(dict.fromkeys(paths))),
]
"""Paths without repetition."""

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def one_line(error: ValidationError) -> str:
    """Return the first of the errors as `field: message`."""
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
