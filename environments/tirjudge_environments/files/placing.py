"""Folders in a program's working folder: their names, and the room that they need."""

from __future__ import annotations

import json
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tirjudge_environments.files.folder import BadFolder, Folder
from tirjudge_sandbox import Limits, Program
from tirjudge_sandbox.base import folders_above

MOST_PLACED = 192 << 20
"""Bytes of all folders of one program, in whole pages of memory; an empty file or a folder counts as one."""
MOST_PLACED_FILES = 32_000
"""Files of all folders of one program, of which a request to a server has at most 32,768."""
MOST_SENT = 144 << 20
"""Bytes that all folders of one program take in a request, with each content once, in base64. A server
accepts requests of 160 MiB."""
_MOST_DISK = 256 << 20
"""The largest working folder of a server."""
_STEP = 4
"""Larger working folders are this many times as large as the next smaller ones: each size needs a worker."""


def program_of(
    source: str, bindings: Mapping[str, Any], limits: Limits, *, seed: int = 0
) -> tuple[Program, Limits]:
    """Return a program that finds folders among its variables, see `placed`, and its limits.

    Folders take no more than half of `disk_bytes`: it is raised for larger ones, up to 256 MiB.
    """
    variables, files = placed(bindings)
    program = Program(source=source, bindings=variables, files=files, seed=seed)
    return program, with_room(limits, files)


def with_room(limits: Limits, files: Mapping[str, bytes]) -> Limits:
    """Return limits with room for files, of which half of the working folder remains to the program."""
    taken, disk = _taken(files), limits.disk_bytes
    while disk < taken + limits.disk_bytes // 2:
        disk *= _STEP
    # A server refuses more than its own limit, even where less than half remains.
    disk = min(disk, max(_MOST_DISK, limits.disk_bytes))
    return limits if disk == limits.disk_bytes else replace(limits, disk_bytes=disk)


def shared(folders: Sequence[Folder]) -> list[Folder]:
    """Return the folders of a row, with equal contents of all of them in memory once.

    Raises BadFolder if one program could not find all of them.
    """
    known: dict[bytes, bytes] = {}
    found = [
        Folder({path: known.setdefault(content, content) for path, content in folder.files.items()})
        for folder in folders
    ]
    _, files = placed({"files": found})
    if len(files) > MOST_PLACED_FILES:
        raise BadFolder(
            f"all folders of a row have {len(files):,} files; a program finds at most {MOST_PLACED_FILES:,}"
        )
    if (taken := _taken(files)) > MOST_PLACED:
        raise BadFolder(f"all folders of a row take {taken:,} bytes; a program finds at most {MOST_PLACED:,}")
    if (sent := _sent(files)) > MOST_SENT:
        raise BadFolder(
            f"all folders of a row take {sent:,} bytes in a request, with each content once, in base64; "
            f"a server accepts {MOST_SENT:,}"
        )
    return found


def size_of(folders: Sequence[Folder]) -> int:
    """Return the bytes of folders in memory."""
    return sum({id(content): len(content) for one in folders for content in one.files.values()}.values())


def _taken(files: Mapping[str, bytes]) -> int:
    folders = sum(1 for _ in folders_above(files))
    pages = sum(max(1, -(-len(content) // mmap.PAGESIZE)) for content in files.values())
    return (pages + folders) * mmap.PAGESIZE if files else 0


def _sent(files: Mapping[str, bytes]) -> int:
    """Return the bytes of files in a request: a file whose content another one has names that file."""
    first: dict[bytes, int] = {}
    size = 0
    for path, content in files.items():
        name = len(json.dumps(path)) + 2
        size += name + first.get(content, -(-len(content) // 3) * 4 + 2)
        first.setdefault(content, name)
    return size


def placed(bindings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the variables of a program with the names of folders in place of folders, and all their files.

    A folder has the name of its variable: the variable `files_a` has the value "files_a", and in the working
    folder of the program lies the folder `files_a`. A list has the names of its folders.
    """
    files: dict[str, bytes] = {}
    names: dict[int, str] = {}

    def place(name: str, value: Any) -> Any:
        if isinstance(value, Folder):
            if id(value) in names:
                return names[id(value)]
            names[id(value)] = name
            files[f"{name}/"] = b""
            files.update((f"{name}/{path}", content) for path, content in value.files.items())
            return name
        if isinstance(value, list) and any(isinstance(one, Folder) for one in value):
            return [place(f"{name}/{number}", one) for number, one in enumerate(value)]
        return value

    return {name: place(name, value) for name, value in bindings.items()}, files
