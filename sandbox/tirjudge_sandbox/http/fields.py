"""Field types of requests and answers; an invalid value is reported under the name of its field."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

MOST_FILES = 32_768
"""Files that a request may send at most, and that it may fetch at most."""

UNKNOWN = "unknown_field"
"""The type of the error about a field that a request may not have."""
_MOST_UNKNOWN, _LONGEST_NAME = 10, 60
"""Unknown fields of one object that are reported, and characters of a name that are compared with others."""

_PIECE = 3 << 14
"""Characters, or bytes, that are encoded at once; divisible by 3, so that base64 has no padding inside."""


class Message(BaseModel):
    """An answer. Unknown fields are ignored: a newer server may send more."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)


def only(
    known: Iterable[str], ignored: Iterable[str] = (), optional: Iterable[str] = ()
) -> Callable[[Any], Any]:
    """Return a validator of objects that have only these fields; it leaves out the `ignored` ones.

    An `optional` field that is null, as clients send fields that nobody set, is left out too.
    """
    names, left_out, defaulted = frozenset(known), frozenset(ignored), frozenset(optional)

    def checked(given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        if unknown := [str(name) for name in given if name not in names and name not in left_out]:
            error = PydanticCustomError(
                UNKNOWN, "there is no such field", {"known": names, "ignored": left_out}
            )
            errors = [
                InitErrorDetails(type=error, loc=(name,), input=None) for name in unknown[:_MOST_UNKNOWN]
            ]
            raise ValidationError.from_exception_data("request", errors)
        return {
            name: value
            for name, value in given.items()
            if name in names and not (value is None and name in defaulted)
        }

    return checked


def unknown_field(name: str, context: Mapping[str, Any]) -> str:
    """Return one line about a field that `only` refused with this context, with the closest possible one."""
    known = sorted(context["known"])
    close = get_close_matches(name[:_LONGEST_NAME].lower(), [*known, *sorted(context["ignored"])], 1)
    meant = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
    return f"there is no field {name[:_LONGEST_NAME]!r}; {meant}"


class Request(Message):
    """A request, or an object in one. An unknown field, which may be misspelt, is an error."""

    model_config = ConfigDict(extra="forbid")

    ignored: ClassVar[frozenset[str]] = frozenset()
    """Fields that other projects' clients send and that mean nothing here."""

    @model_validator(mode="before")
    @classmethod
    def _known(cls, given: Any) -> Any:
        optional = [name for name, field in cls.model_fields.items() if not field.is_required()]
        return only(cls.model_fields, cls.ignored, optional)(given)


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
