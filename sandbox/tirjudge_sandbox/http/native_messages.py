"""The project's own routes (`/v1/run`, `/v1/info`): a `Program`, its `Limits` and its `Execution` as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError, WithJsonSchema

from tirjudge_sandbox.base import Execution, InvalidProgram, Isolation, Limits, Program
from tirjudge_sandbox.http.fields import (
    MOST_FILES,
    Base64,
    Files,
    Message,
    Paths,
    decoded,
    encoded,
    json_pieces,
    one_line,
    only,
)

_LIMITS = TypeAdapter(Limits)
_EXECUTION = TypeAdapter(Execution)
_SomeLimits = Annotated[
    dict[str, Any],
    BeforeValidator(only(Limits.__slots__)),
    WithJsonSchema(_LIMITS.json_schema() | {"additionalProperties": False}),
]

NAME = "tirjudge"
"""Value of `Info.server`, by which a client recognises this server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest(Program):
    """A program, with its files in base64, and its limits.

    `client` is any name: while programs of a caller wait, its names take turns. Callers, told apart by token
    or address, take turns first.
    """

    files: Files = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)
    """Maps paths of further files to the path in `files` of a file with the same content."""
    fetch: Paths = ()
    seed: Annotated[int, Field(ge=0, lt=1 << 64)] = 0
    limits: _SomeLimits = field(default_factory=dict)
    """Fields of `Limits`. Where one is missing, the server's default applies."""

    def program(self, caller: str) -> Program:
        """Return the program of a caller, with all files. Raises InvalidProgram."""
        for path, of in self.copies.items():
            if of not in self.files or path in self.files:
                problem = (
                    f"{path[:60]!r} is in files" if path in self.files else f"{of[:60]!r} is not in files"
                )
                raise InvalidProgram("copies", problem)
        if len(self.files) + len(self.copies) > MOST_FILES:
            raise InvalidProgram("copies", f"at most {MOST_FILES} files are accepted")
        client = f"{caller}/{self.client}" if self.client else caller
        files = {**self.files, **{path: self.files[of] for path, of in self.copies.items()}}
        own = {name: getattr(self, name) for name in Program.__slots__}
        return Program(**{**own, "files": files, "client": client})


_NAMES = [field.name for field in fields(RunRequest)]
ProgramRequest = Annotated[
    RunRequest, BeforeValidator(only(_NAMES, optional=(name for name in _NAMES if name != "source")))
]
"""A `RunRequest` without unknown fields."""


def requested_limits(given: dict[str, Any], defaults: Limits) -> Limits:
    """Return `defaults`, overridden by what a request sets. Raises ValidationError."""
    return _LIMITS.validate_python({**asdict(defaults), **given})


class Info(Message):
    """The properties of a server. SandboxFusion's server has no such route."""

    server: str
    version: str
    capacity: Annotated[int, Field(gt=0)]
    """The most programs that it runs at once."""
    isolation: Isolation | None
    most: Limits
    """The largest limits that a program may request."""


def execution_to_json(execution: Execution) -> Iterator[bytes | Base64]:
    """Yield an execution as JSON in pieces, with its files in base64."""
    large = {"stdout": execution.stdout, "stderr": execution.stderr, "files": dict(execution.files)}
    yield _EXECUTION.dump_json(execution, exclude=set(large))[:-1]
    for name, value in large.items():
        yield f',"{name}":'.encode()
        yield from json_pieces(value)
    yield b"}"


def to_request(program: Program, limits: Limits) -> dict[str, Any]:
    """Return the JSON of a request, without validation: the server validates, and reports what it refuses.

    Equal files are sent once.
    """
    fields = {name: getattr(program, name) for name in Program.__slots__}
    files, same, first = dict(program.files), dict[str, str](), dict[bytes, str]()
    for path, content in program.files.items():
        if content and first.setdefault(content, path) != path:
            same[path] = first[content]
            del files[path]
    return {
        **fields,
        "bindings": dict(program.bindings),
        "files": encoded(files),
        "limits": asdict(limits),
        **({"copies": same} if same else {}),
    }


def to_execution(body: bytes, _: Limits) -> Execution:
    """Read an answer. Raises ValueError if it is malformed."""
    try:
        execution = _EXECUTION.validate_json(body)
    except ValidationError as error:
        raise ValueError(one_line(error)) from None
    return replace(execution, files={path: decoded(content) for path, content in execution.files.items()})
