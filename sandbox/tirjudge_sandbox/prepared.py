"""A prepared program: the operator's code, whose names, modules and data all programs find copy-on-write."""

from __future__ import annotations

import ast
import hashlib
import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tirjudge_sandbox.base import MIB, InvalidProgram, Limits, Program, validate
from tirjudge_sandbox.guest.limits import WorkingFolder

MAIN = "__main__.py"
"""The file of a folder that is run, as `python FOLDER` runs it."""
MOST_PREPARED_BYTES = 1024 * MIB
"""Bytes of all files beside a prepared program."""
MOST_PREPARED_FILES = 4096
"""Files beside a prepared program."""
PREPARE_SECONDS, PREPARE_MEMORY_BYTES = 60.0, 1024 * MIB
"""Usual bounds of a prepared program."""

PreparedSource = Program | str | os.PathLike[str]
"""A prepared program, or the path of its file, or of a folder whose `__main__.py` is run."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prepared program with its bounds, which every worker runs when it starts."""

    program: Program
    name: str
    """Path of the file or folder, or `the prepared program`; for messages."""
    seconds: float
    memory_bytes: int

    @classmethod
    def of(cls, given: PreparedSource, seconds: float, memory_bytes: float) -> Prepared:
        """Read the program. Raises ValueError, in one line, for a bad program, file or bound."""
        for bound, value in (("prepare_seconds", seconds), ("prepare_memory_bytes", memory_bytes)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1 << 62:
                raise ValueError(f"{bound} must be a number above 0, not {value!r}")
        if memory_bytes < 1:
            raise ValueError(f"prepare_memory_bytes must be at least 1, not {memory_bytes!r}")
        program = read_prepared(given)
        name = "the prepared program" if isinstance(given, Program) else os.fspath(given)
        return cls(program, name, float(seconds), int(memory_bytes))

    @property
    def folder(self) -> WorkingFolder:
        """The room that it may go on to take in a working folder, by files that it has mapped: its files,
        and what a usual program writes; nothing without files.
        """
        usual = Limits().disk_bytes
        # A file takes whole pages, and one more for its name.
        size = sum(len(content) + 2 * mmap.PAGESIZE for content in self.program.files.values())
        return WorkingFolder(disk_bytes=size + usual if size else 0)


def read_prepared(given: PreparedSource) -> Program:
    """Return a prepared program, with the files of a folder. Raises ValueError, in one line."""
    program = given if isinstance(given, Program) else _read(Path(given))
    for name in ("stdin", "fetch", "client"):
        if getattr(program, name):
            raise ValueError(f"a prepared program has no {name}")
    try:
        validate(program, Limits(disk_bytes=MOST_PREPARED_BYTES))
    except InvalidProgram as error:
        raise ValueError(f"prepare: {error}") from None
    return program


def prepared_digest(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256, in hexadecimal, of a prepared program's file or folder, whatever its name.

    Raises ValueError as `read_prepared` does.
    """
    whole = hashlib.sha256()
    for name, content in sorted(prepared_files(path).items()):
        whole.update(f"{name}\0{hashlib.sha256(content).hexdigest()}\n".encode("utf-8", "surrogateescape"))
    return whole.hexdigest()


def prepared_files(path: str | os.PathLike[str]) -> Mapping[str, bytes]:
    """Return the files of a prepared program as those of a folder. Raises ValueError as `read_prepared`."""
    program = read_prepared(path)
    return {**program.files, MAIN: program.source.encode("utf-8", "surrogateescape")}


def prepared_docstring(path: str | os.PathLike[str]) -> str:
    """Return the docstring of a prepared program, which tells a model what programs find; empty without."""
    file = Path(path)
    try:
        source = (file / MAIN if file.is_dir() else file).read_bytes()
        return ast.get_docstring(ast.parse(source)) or ""
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        # Opening the sandbox reports it.
        return ""


def _read(path: Path) -> Program:
    try:
        if not path.is_dir():
            return Program(_text(path.read_bytes()))
        files: dict[str, bytes] = {}
        left = MOST_PREPARED_BYTES
        for file in path.rglob("*"):
            if not file.is_file() or "__pycache__" in file.parts:
                continue
            left -= file.stat().st_size
            if left < 0 or len(files) == MOST_PREPARED_FILES:
                raise ValueError(
                    f"prepare: the folder {path} holds more than {MOST_PREPARED_BYTES >> 20} MiB, or more "
                    f"than {MOST_PREPARED_FILES} files"
                )
            files[file.relative_to(path).as_posix()] = file.read_bytes()
    except OSError as error:
        raise ValueError(f"prepare: {error.filename or path}: {error.strerror or error}") from None
    if MAIN not in files:
        raise ValueError(f"prepare: the folder {path} has no {MAIN}, which would be run")
    return Program(_text(files.pop(MAIN)), files=files)


def _text(source: bytes) -> str:
    # Bytes that are not UTF-8 are kept: Python's compiler reports them best.
    return source.decode("utf-8", "surrogateescape")
