"""Files as bytes of UTF-8: decompressed, and decoded by their byte order mark or by a named encoding."""

from __future__ import annotations

import codecs
import gzip
import io
import lzma
import zlib
from pathlib import Path
from typing import Any, cast

from tirjudge_environments.files.reading import Xz

STANDARD_INPUT = "-"
FALLBACK = "cp1252"
"""The encoding of bytes that are no UTF-8, as programs for Windows write them."""
PEEKED = 1 << 16
"""Bytes at the start of a file for recognising the format."""

_GZIP, _XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Byte order marks, the longest first, and the encodings."""
_WITHOUT_MARK: dict[tuple[bool, ...], str] = {
    (False, True, False, True): "utf-16-le",
    (True, False, True, False): "utf-16-be",
}
"""Encodings by which of the first bytes of two ASCII characters are zero."""
_FEW_BYTES, _MOST_TIMES = 64 << 20, 200
"""Bytes of content beyond which the ratio of content to compressed bytes is limited, and the limit."""
_DECODED = 1 << 14
"""Characters that are decoded at once."""


def checked_encoding(name: str) -> str:
    """Return the name of an encoding of texts. Raises ValueError, in one line, for any other name."""
    try:
        # Some codecs, such as base64, encode bytes alone.
        "a".encode(name)
        return codecs.lookup(name).name
    except (LookupError, ValueError):
        raise ValueError(f"--encoding {name}: no such encoding; others are utf-16, cp1251, gb18030") from None


def open_file(path: Path, name: str = "", encoding: str = "") -> io.BufferedReader:
    """Open a file for reading: decompressed, and as UTF-8 if the file or `encoding` names the encoding.

    `name` is the file's name for messages. Raises OSError; reading a damaged file raises ValueError.
    """
    return _opened(path, name or str(path), encoding)


def opened_pipe(path: str, name: str, encoding: str = "") -> io.BufferedReader | None:
    """Open standard input or a named pipe, which cannot be read twice; None for an ordinary file."""
    if path == STANDARD_INPUT:
        # Not sys.stdin: at exit the interpreter would wait for the thread that still reads from it.
        return _opened(0, name, encoding)
    return _opened(Path(path), name, encoding) if Path(path).is_fifo() else None


def _opened(place: Path | int, name: str, encoding: str) -> io.BufferedReader:
    # The buffer bounds how far a start can be looked at. A descriptor is not ours to close.
    own = not isinstance(place, int)
    file = cast(io.BufferedReader, open(place, "rb", buffering=PEEKED, closefd=own))  # noqa: SIM115
    try:
        return _as_utf8(_decompressed(file, name), name, encoding)
    except BaseException:
        file.close()
        raise


class _Decompressed(io.RawIOBase):
    """The content of a compressed file, closed with it; reading damaged content raises ValueError."""

    def __init__(self, content: gzip.GzipFile | Xz, file: io.BufferedReader, name: str) -> None:
        """`content` reads from `file`; `name` is the file's name for messages."""
        self._content, self._file, self._name = content, file, name
        self._read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            size = self._content.readinto(buffer)
        except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
            raise ValueError(f"{self._name}: the compressed data is cut off or damaged ({error})") from None
        self._read += size
        # A pipe has no position, and holds at most the bytes read ahead.
        if self._read > _FEW_BYTES and self._file.seekable() and self._read > _MOST_TIMES * self._file.tell():
            raise ValueError(
                f"{self._name}: the content is more than {_MOST_TIMES} times as long as the compressed file: "
                "decompress it first if this is meant"
            )
        return size

    def close(self) -> None:
        if not self.closed:
            self._content.close()
            self._file.close()
        super().close()


class _AsUtf8(io.RawIOBase):
    """The content of a file in another encoding as UTF-8; bytes that the encoding lacks are no UTF-8."""

    def __init__(self, file: io.BufferedReader, name: str, encoding: str) -> None:
        """`name` is the file's name for messages."""
        self._text = io.TextIOWrapper(file, encoding=encoding, errors="surrogateescape", newline="")
        self._name, self._encoding, self._rest = name, encoding, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            if not self._rest:
                self._rest = self._text.read(_DECODED).encode("utf-8", "surrogateescape")
        except UnicodeError as error:
            raise ValueError(f"{self._name}: not {self._encoding}: {error}") from None
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size

    def close(self) -> None:
        if not self.closed:
            self._text.close()
        super().close()


def _decompressed(file: io.BufferedReader, name: str) -> io.BufferedReader:
    start = file.peek(len(_XZ))
    if start.startswith(_GZIP):
        return io.BufferedReader(_Decompressed(gzip.GzipFile(fileobj=file), file, name), PEEKED)
    if start.startswith(_XZ):
        return io.BufferedReader(_Decompressed(Xz(file), file, name), PEEKED)
    return file


def _as_utf8(file: io.BufferedReader, name: str, encoding: str) -> io.BufferedReader:
    start = file.peek(4)[:4]
    marked = next((meaning for mark, meaning in _MARKS if start.startswith(mark)), "")
    marked = marked or _WITHOUT_MARK.get(tuple(byte == 0 for byte in start), "")
    used = encoding or marked
    if not used or codecs.lookup(used).name == "utf-8":
        return file
    return io.BufferedReader(_AsUtf8(file, name, used), PEEKED)
