"""The host's end of the channel to a notebook: JSON frames from a process that may be hostile."""

from __future__ import annotations

import asyncio
import json
import math
import socket
from typing import Any, Self

from tirjudge_sandbox.notebook.kernel import LENGTH


class ChannelBroken(RuntimeError):
    """The other end sent something that a kernel's client never sends."""


class Channel:
    """One end of a socket pair. Cancelling `receive` loses nothing; the next call continues."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, most_bytes: int):
        self._reader = reader
        self._writer = writer
        self._most_bytes = most_bytes
        self._length: int | None = None

    @classmethod
    async def over(cls, end: socket.socket, most_bytes: int) -> Self:
        """Open a channel over a socket. `most_bytes`: the largest frame that is accepted."""
        return cls(*await asyncio.open_unix_connection(sock=end), most_bytes)

    def send(self, **frame: object) -> None:
        """Send a frame without waiting: a kernel that does not read it reaches a time limit."""
        content = json.dumps(frame).encode()
        self._writer.write(LENGTH.pack(len(content)) + content)

    async def receive(self) -> dict[str, Any] | None:
        """Return the next frame, None at the end. Raises ChannelBroken for anything else."""
        try:
            if self._length is None:
                (self._length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
            if self._length > self._most_bytes:
                raise ChannelBroken(f"it sent a message of {self._length} bytes")
            content = await self._reader.readexactly(self._length)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        self._length = None
        return _frame(content)

    def close(self) -> None:
        """Close this end."""
        self._writer.close()


def _frame(content: bytes) -> dict[str, Any]:
    try:
        found = _parsed(content)
        if rb"\ud" in content.lower():
            # Lone surrogates become question marks, since they cannot be encoded in a file or an answer.
            found = _parsed(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise ChannelBroken(f"it sent a message that cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise ChannelBroken("it sent a message that is not an object")
    return found


def _parsed(content: bytes) -> Any:
    return json.loads(content, parse_constant=str, parse_float=_finite)


def _finite(digits: str) -> float | str:
    """Return a finite number; an infinite one as text, since JSON cannot represent it."""
    number = float(digits)
    return number if math.isfinite(number) else digits
