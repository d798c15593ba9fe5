"""Compressed row files: gzip and zstd are decompressed while they are read, Git LFS pointers are refused."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path
from typing import Any

COMPRESSED_SUFFIXES = (".gz", ".zst")
"""Suffixes that may follow the suffix of a format: `rows.csv.gz`."""

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_LONGEST_MAGIC = len(_LFS_POINTER)
_CHUNK = 1 << 10
"""Compressed bytes that are read at once: few, because all of their content is held in memory."""
_UNREADABLE = {b"PK\x03\x04": "a ZIP archive", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz"}


def decompressed(stream: io.BufferedReader, name: str) -> io.BufferedReader:
    """Return the stream's content, decompressed if it begins like gzip or zstd.

    `name` is the file's name for messages. Raises ValueError, in one line, for a Git LFS pointer, for other
    kinds of compression, and for zstd if no library for it is installed.
    """
    start = stream.peek(_LONGEST_MAGIC)
    if start.startswith(_LFS_POINTER):
        raise ValueError(f"{name} is a Git LFS pointer, not the file itself: run `git lfs pull` to fetch it")
    for magic, kind in _UNREADABLE.items():
        if start.startswith(magic):
            raise ValueError(f"{name} is {kind}: decompress it first (gzip and zstd are read)")
    if start.startswith(_GZIP):
        return io.BufferedReader(_Checked(stream, gzip.GzipFile(fileobj=stream), name, "gzip"))
    if start.startswith(_ZSTD):
        return io.BufferedReader(_Checked(stream, _zstd(stream, name), name, "zstd"))
    return stream


def is_compressed(stream: io.BufferedReader) -> bool:
    """Return True for a stream of `decompressed` whose content is being decompressed."""
    return isinstance(stream.raw, _Checked)


def uncompressed_suffix(path: str) -> str:
    """Return the suffix that names the format, in lower case: `.csv` for `rows.csv` and `rows.csv.gz`."""
    place = Path(path)
    suffix = place.suffix.lower()
    return Path(place.stem).suffix.lower() if suffix in COMPRESSED_SUFFIXES else suffix


class _Checked(io.RawIOBase):
    """A decompressed stream whose errors name the file."""

    def __init__(self, source: io.BufferedReader, stream: Any, name: str, kind: str) -> None:
        self._source, self._stream, self._name, self._kind = source, stream, name, kind
        self._errors: tuple[type[Exception], ...] = (EOFError, zlib.error, gzip.BadGzipFile, *_zstd_errors())

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        try:
            content = self._stream.read(len(buffer))
        except self._errors as error:
            raise ValueError(f"{self._name}: the {self._kind} data is cut off or damaged ({error})") from None
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        self._source.close()
        super().close()


def _zstd(stream: io.BufferedReader, name: str) -> Any:
    try:
        from compression import zstd  # type: ignore[import-not-found, unused-ignore]
    except ModuleNotFoundError:
        pass
    else:
        return zstd.ZstdFile(stream)
    try:
        import zstandard
    except ModuleNotFoundError:
        raise ValueError(f"{name}: zstd needs an extra: pip install 'tirjudge[eval]'") from None
    return _ZstdFrames(stream, zstandard.ZstdDecompressor())


class _ZstdFrames:
    """The content of zstd frames, one after the other, by the package zstandard.

    Its own readers end quietly where a file is cut off in the middle of a frame.
    """

    def __init__(self, source: io.BufferedReader, decompressor: Any) -> None:
        self._source, self._decompressor = source, decompressor
        self._frame: Any = None
        self._content = memoryview(b"")

    def read(self, size: int) -> memoryview:
        while not self._content:
            chunk = self._source.read1(_CHUNK)
            if not chunk:
                if self._frame is not None:
                    raise EOFError("it ends in the middle of a frame")
                return self._content
            while chunk:
                self._frame = self._frame or self._decompressor.decompressobj()
                self._content = memoryview(bytes(self._content) + self._frame.decompress(chunk))
                chunk = self._frame.unused_data if self._frame.eof else b""
                self._frame = None if self._frame.eof else self._frame
        content, self._content = self._content[:size], self._content[size:]
        return content


def _zstd_errors() -> tuple[type[Exception], ...]:
    try:
        from compression.zstd import ZstdError  # type: ignore[import-not-found, unused-ignore]
    except ModuleNotFoundError:
        pass
    else:
        return (ZstdError,)
    try:
        from zstandard import ZstdError
    except ModuleNotFoundError:
        return ()
    return (ZstdError,)
