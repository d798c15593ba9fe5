"""Settings of a server, and the check of requests against them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError

from tirjudge_sandbox.base import MIB, InvalidProgram, Limits, Program, validate
from tirjudge_sandbox.http.fields import UNKNOWN, unknown_field
from tirjudge_sandbox.http.native_messages import requested_limits
from tirjudge_sandbox.server.guard import Access
from tirjudge_sandbox.server.intake import IntakeLimits

MOST = Limits(
    wall_seconds=120.0,
    cpu_seconds=120.0,
    memory_bytes=2048 * MIB,
    processes=16,
    output_bytes=8 * MIB,
    disk_bytes=256 * MIB,
)
"""The largest limits that a program may request unless the operator sets others."""

BODY_BYTES = 160 * MIB
"""The largest body of a request unless the operator sets another one: two tables of 50 MB, in base64."""

_MOST_CHARACTERS, _MOST_ERRORS = 200, 100
"""Length to which text of a request is cut when it appears in an answer, and errors in one answer."""


class ServerSettings(BaseModel):
    """Access, bounds on concurrent requests, and the largest limits of a program."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    access: Access = Access()
    intake: IntakeLimits = IntakeLimits(body_bytes=BODY_BYTES)
    source_bytes: PositiveInt = MIB
    """Largest source of a program or a cell."""
    most: Limits = MOST
    """The largest limits that a program may request."""

    @property
    def defaults(self) -> Limits:
        """The limits of a program that requests none."""
        usual = Limits()
        return Limits(
            **{name: min(getattr(usual, name), getattr(self.most, name)) for name in Limits.__slots__}
        )


class FieldRefused(Exception):
    """A field of a request that the server refuses, reported in the form of FastAPI's validation errors."""

    def __init__(self, text: str, *names: str | int):
        """`names`: the path to the field within the body."""
        super().__init__(text)
        self._error = {"type": "value_error", "loc": ("body", *names), "msg": text}

    def errors(self) -> list[dict[str, Any]]:
        """Return the error in the form of pydantic's `ValidationError.errors`."""
        return [self._error]


def limits_of(given: dict[str, Any], settings: ServerSettings) -> Limits:
    """Return the limits that a request sets, with the defaults for others. Raises FieldRefused."""
    try:
        return requested_limits(given, settings.defaults)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise FieldRefused(first["msg"], "limits", *first["loc"]) from None


def check_program(
    program: Program, limits: Limits, settings: ServerSettings, names: Mapping[str, str]
) -> None:
    """Raise FieldRefused for a program or limits that cannot be run, or that exceed the settings.

    `names`: the names in the request of fields of `Program` and `Limits`, where they differ.
    """

    def refused(field: str, text: str) -> FieldRefused:
        name = field.removeprefix("limits.")
        if name != field and name not in names:
            return FieldRefused(text, "limits", name)
        return FieldRefused(text, names.get(name, name))

    try:
        validate(program, limits)
    except InvalidProgram as error:
        raise refused(error.field, str(error)) from None
    for field in ("source", "stdin", "client", "bindings", "files", "fetch"):
        value = getattr(program, field)
        if not _encodable(list(value) if field == "files" else value):
            raise refused(field, "holds a lone surrogate (half a character)")
    size = len(program.source.encode())
    if size > settings.source_bytes:
        raise refused("source", f"has {size} bytes, at most {settings.source_bytes} are accepted")
    # All limits are compared, so a new field of `Limits` cannot be forgotten here.
    for field in Limits.__slots__:
        value, largest = getattr(limits, field), getattr(settings.most, field)
        if value > largest:
            raise refused(f"limits.{field}", f"is {value:g}, at most {largest:g} is allowed")


def _encodable(value: Any) -> bool:
    """Return True unless a text somewhere in a JSON value holds half a character."""
    parts = [value]
    while parts:
        part = parts.pop()
        if isinstance(part, Mapping):
            parts += [*part, *part.values()]
        elif isinstance(part, list | tuple):
            parts += part
        elif isinstance(part, str):
            try:
                part.encode()
            except UnicodeEncodeError:
                return False
    return True


def error_details(errors: Iterable[Mapping[str, Any]], body: Any = None) -> list[dict[str, Any]]:
    """Return errors without the values that were sent, which may be huge or not representable in JSON.

    With a `body` their places are those in what was sent, without the names of alternatives that were tried.
    """
    # First what a caller misspelt: where an object or a text may be, there are errors for the text as well.
    first = sorted(errors, key=lambda error: error["type"] != UNKNOWN)[:_MOST_ERRORS]
    return [
        {"type": error["type"], "loc": [_short(part) for part in _place(error, body)], "msg": _message(error)}
        for error in first
    ]


def _place(error: Mapping[str, Any], body: Any) -> list[Any]:
    """Return the path of a field in the body; what it lacks is kept only as the name of a field."""
    if body is None:
        return list(error["loc"])
    first, *way = error["loc"]
    place = [first]
    for number, part in enumerate(way, 1):
        listed = isinstance(body, list) and isinstance(part, int) and part < len(body)
        if listed or (isinstance(body, Mapping) and part in body):
            place.append(part)
            body = body[part]
        elif number == len(way) and error["type"] in ("missing", UNKNOWN):
            place.append(part)
    return place


def _message(error: Mapping[str, Any]) -> Any:
    if error["type"] == UNKNOWN:
        return _short(unknown_field(str(error["loc"][-1]), error["ctx"]))
    return _short(error["msg"])


def _short(part: Any) -> Any:
    return (
        part[:_MOST_CHARACTERS].encode("ascii", "backslashreplace").decode()
        if isinstance(part, str)
        else part
    )
