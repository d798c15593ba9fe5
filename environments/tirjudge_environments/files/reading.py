"""Folders that rows give: mappings with contents and diffs, or folders, tars and zips beside the rows."""

from __future__ import annotations

import base64
import binascii
import bz2
import errno
import gzip
import io
import lzma
import os
import stat
import struct
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from tirjudge_environments.files.folder import (
    MOST_BYTES,
    MOST_ENTRIES,
    MOST_FILES,
    NO_FILES,
    BadFolder,
    Folder,
    Taken,
    checked_path,
    encoded,
    shown_path,
    text_of_file,
    too_many,
)
from tirjudge_environments.files.patches import patched_file, patched_folder

_MOST_ARCHIVE = MOST_BYTES + 4096 * MOST_ENTRIES
"""Bytes of the files of a folder and of their headers."""
_MOST_LIST = 600 * MOST_ENTRIES
"""Bytes of a zip's list of entries, which is read as a whole."""
_XZ_MEMORY, _XZ_READ = 128 << 20, 1 << 16
"""Bytes of memory that a stream of an xz may need, and that are read of it at once."""


def read_folder(value: Any, beside: Path | None, before: Folder = NO_FILES) -> Folder:
    """Return the folder that a row gives.

    Args:
        value: a mapping, `{"diff": ...}` with a diff of all files, the name of a folder, archive or diff,
            None for no files, or a Folder.
        beside: the folder that names are in; None where a row may name nothing, such as a row of a server.
        before: the files that a `diff` changes.

    Raises BadFolder.
    """
    if value is None or isinstance(value, Folder):
        return value or Folder()
    try:
        return _named(value, beside, before) if isinstance(value, str) else _given(value, before)
    except BadFolder:
        raise
    except Exception as error:  # libraries raise anything on damaged files, which may end only their row
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        name = f"{shown_path(value)}: " if isinstance(value, str) else ""
        raise BadFolder(f"{name}damaged ({reason})") from None


def _given(value: Any, before: Folder) -> Folder:
    if not isinstance(value, Mapping):
        raise BadFolder(f"files are a mapping from paths to contents, or a name, not {type(value).__name__}")
    # Tables of Arrow give every row the paths of all rows, and every file all of the keys.
    present = {path: _without_nulls(given) for path, given in value.items() if given is not None}
    if isinstance(diff := present.get("diff"), str) and len(present) == 1:
        return patched_folder(diff, before)
    if len(present) > MOST_FILES:
        raise BadFolder(too_many(len(present)))
    taken = Taken()
    for path, given in present.items():
        taken.add(path, _content(path, given, before))
    return taken.folder


def _without_nulls(given: Any) -> Any:
    if not isinstance(given, Mapping):
        return given
    return {kind: content for kind, content in given.items() if content is not None}


def _content(path: str, given: Any, before: Folder) -> bytes:
    kinds = ("text", "base64", "diff")
    if not isinstance(given, Mapping) or len(given) != 1 or (kind := next(iter(given))) not in kinds:
        raise BadFolder(f'{shown_path(path)} is no file: write {{"text": ...}}, "base64" or "diff"')
    content = given[kind]
    if not isinstance(content, str):
        raise BadFolder(f"{shown_path(path)}: {kind} must be a text")
    if kind == "base64":
        try:
            return base64.b64decode(content, validate=True)
        except (binascii.Error, ValueError):
            raise BadFolder(f"{shown_path(path)}: not base64") from None
    return encoded(path, content) if kind == "text" else patched_file(path, content, before)


def _named(name: str, beside: Path | None, before: Folder) -> Folder:
    """Read a folder, an archive or a diff beside the file of the rows."""
    if beside is None:
        raise BadFolder(
            "a name of a folder or archive: only rows of a file may name one, so give the contents"
        )
    path = checked_path(name.rstrip("/") or name)
    try:
        with _opened(path, beside) as file:
            if isinstance(file, int):
                return _of_folder(file)
            if path.suffix in (".diff", ".patch"):
                return patched_folder(_text(file), before)
            start = file.read(512)
            file.seek(0)
            compressed = start.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ"))
            if compressed or start[257:262] == b"ustar":
                return _of_tar(file)
            # Behind the tar: the end of a tar may be that of a zip in it.
            if zipfile.is_zipfile(file):
                return _of_zip(file)
    except BadFolder as error:
        raise BadFolder(f"{shown_path(name)}: {error}") from None
    except OSError as error:
        raise BadFolder(f"{shown_path(name)}: {error.strerror or error}") from None
    raise BadFolder(f"{shown_path(name)} is no folder, tar, zip, .diff or .patch")


def _text(file: IO[bytes]) -> str:
    text = text_of_file(Taken().read(file, os.fstat(file.fileno()).st_size))
    if text is None:
        raise BadFolder("no text in UTF-8")
    return text


@contextmanager
def _opened(path: PurePosixPath, beside: Path) -> Iterator[int | IO[bytes]]:
    """Open what a path names, without following a link: the descriptor of a folder, or a file."""
    with ExitStack() as stack:
        at = os.open(beside, os.O_RDONLY | os.O_DIRECTORY)
        stack.callback(os.close, at)
        for part in path.parts[:-1]:
            at = _folder_at(part, at)
            stack.callback(os.close, at)
        kind = stat.S_IFMT(os.stat(path.name, dir_fd=at, follow_symlinks=False).st_mode)
        if kind == stat.S_IFDIR:
            at = _folder_at(path.name, at)
            stack.callback(os.close, at)
            yield at
        elif kind == stat.S_IFREG:
            yield stack.enter_context(_file_at(path.name, at))
        else:
            raise BadFolder("it is a link or a device, which are not read")


def _folder_at(name: str, at: int) -> int:
    """Return the descriptor of a folder in an opened one; a link that took its place raises BadFolder."""
    try:
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise BadFolder(f"{shown_path(name)} is a link, which are not followed, or no folder") from None
        raise


def _file_at(name: str, at: int) -> IO[bytes]:
    """Open a file in an opened folder; a link or a device that took its place raises BadFolder."""
    try:
        # Without waiting for the writer of a pipe.
        file = open(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at), "rb")  # noqa: SIM115
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise BadFolder(f"{shown_path(name)} is a link or a device, which are not read") from None
        raise
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise BadFolder(f"{shown_path(name)} is a link or a device, which are not read")
    return file


def _of_folder(root: int) -> Folder:
    """Read an opened folder. Whoever wrote it may still exchange its files and folders for links."""
    taken, seen = Taken(), 0

    def walk(at: int, above: str) -> None:
        nonlocal seen
        # No list of the names: a folder may have millions.
        with os.scandir(at) as entries:
            names = [entry.name for entry in islice(entries, MOST_ENTRIES - seen + 1)]
        seen += len(names)
        if seen > MOST_ENTRIES:
            raise BadFolder(too_many(seen))
        for name in sorted(names):
            path = above + name
            state = os.stat(name, dir_fd=at, follow_symlinks=False)
            if stat.S_ISDIR(state.st_mode):
                checked_path(path)
                inner = _folder_at(name, at)
                try:
                    walk(inner, f"{path}/")
                finally:
                    os.close(inner)
            elif stat.S_ISREG(state.st_mode):
                with _file_at(name, at) as file:
                    taken.add(path, taken.read(file, state.st_size))
            else:
                raise BadFolder(f"{shown_path(path)} is a link or a device, which are not read")

    walk(root, "")
    return taken.folder


def _of_zip(file: IO[bytes]) -> Folder:
    taken = Taken()
    if os.fstat(file.fileno()).st_size > _MOST_ARCHIVE:
        raise BadFolder(f"more than {_MOST_ARCHIVE:,} bytes of a zip")
    _check_list_of_zip(file)
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        if len(entries) > MOST_ENTRIES:
            raise BadFolder(too_many(len(entries)))
        for entry in entries:
            kind = stat.S_IFMT(entry.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise BadFolder(f"{shown_path(entry.filename)} is a link or a device, which are not read")
            if entry.flag_bits & 1:
                raise BadFolder(f"{shown_path(entry.filename)} is encrypted")
            # zipfile bounds what it unpacks at once of no other kind.
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise BadFolder(f"{shown_path(entry.filename)} is compressed in another way than deflate")
            if entry.is_dir():
                checked_path(entry.filename.rstrip("/"))
                continue
            with archive.open(entry) as part:
                taken.add(entry.filename, taken.read(part, entry.file_size))
    return taken.folder


def _check_list_of_zip(file: IO[bytes]) -> None:
    """Raise BadFolder for a list of entries that is too long to be read (APPNOTE.TXT, section 4.3.16)."""
    end = struct.Struct("<4s4H2LH")
    start = max(0, os.fstat(file.fileno()).st_size - (1 << 16) - end.size)
    file.seek(start)
    tail = file.read()
    # As zipfile finds it: at the end, or before a comment.
    place = len(tail) - end.size
    if place < 0 or not (tail.startswith(b"PK\5\6", place) and tail.endswith(b"\0\0")):
        place = tail.rfind(b"PK\5\6")
    if place < 0 or len(tail) < place + end.size:
        return  # zipfile says what is wrong
    size = end.unpack_from(tail, place)[5]
    # The list of a zip64 has its size elsewhere; only archives of more files or bytes than a folder need one.
    if size > _MOST_LIST or tail[max(0, place - 20) : place].startswith(b"PK\6\7"):
        raise BadFolder(f"a list of entries of more than {_MOST_LIST:,} bytes, or a zip64")


def _of_tar(file: IO[bytes]) -> Folder:
    taken = Taken()
    # Streamed, so that a bomb is left at the bound, with its rest still compressed.
    with (
        _decompressed(file) as content,
        tarfile.open(fileobj=cast(Any, _Bounded(content)), mode="r|") as archive,
    ):
        for number, entry in enumerate(archive, 1):
            if number > MOST_ENTRIES:
                raise BadFolder(too_many(number))
            name = entry.name.removeprefix("./")
            if entry.isdir():
                if name.rstrip("/") not in ("", "."):
                    checked_path(name.rstrip("/"))
                continue
            if not entry.isreg():
                raise BadFolder(f"{shown_path(name)} is a link or a device, which are not read")
            part = archive.extractfile(entry)
            assert part is not None
            taken.add(name, taken.read(part, entry.size))
    return taken.folder


def _decompressed(file: IO[bytes]) -> IO[bytes]:
    start = file.read(6)
    file.seek(0)
    if start.startswith(b"\xfd7zXZ\x00"):
        return io.BufferedReader(Xz(cast(io.BufferedReader, file)))
    for mark, opened in ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open)):
        if start.startswith(mark):
            return cast(IO[bytes], opened(file))
    return file


class Xz(io.RawIOBase):
    """The content of an xz file: its streams, with the zeros behind each that the format allows.

    Python's LZMAFile takes what follows such zeros, and a damaged second stream, for the file's end. A stream
    that needs more memory than `xz -9` writes raises LZMAError.
    """

    def __init__(self, file: io.BufferedReader) -> None:
        self._file, self._decoder = file, self._new()

    @staticmethod
    def _new() -> lzma.LZMADecompressor:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Raises lzma.LZMAError for damaged data, and EOFError for data that is cut off."""
        while True:
            if self._decoder.eof:
                rest, zeros = self._decoder.unused_data, 0
                while stripped := rest or self._file.read(_XZ_READ):
                    rest = stripped.lstrip(b"\0")
                    zeros += len(stripped) - len(rest)
                    if rest:
                        break
                if zeros % 4:
                    raise lzma.LZMAError("the zeros behind a stream are no multiple of 4 bytes")
                if not rest:
                    return 0
                self._decoder = self._new()
            else:
                rest = self._file.read1(_XZ_READ) if self._decoder.needs_input else b""
                if self._decoder.needs_input and not rest:
                    raise EOFError("the file ends in a stream")
            content = self._decoder.decompress(rest, len(buffer))
            if content:
                buffer[: len(content)] = content
                return len(content)


class _Bounded:
    """The start of a stream. Reading more than a folder and its headers can have raises BadFolder."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._left = stream, _MOST_ARCHIVE

    def read(self, size: int = -1, /) -> bytes:
        content = self._stream.read(min(size, self._left + 1))
        self._left -= len(content)
        if self._left < 0:
            raise BadFolder(f"more than {MOST_BYTES:,} bytes of files")
        return content
