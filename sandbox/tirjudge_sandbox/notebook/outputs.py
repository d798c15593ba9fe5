"""The output of a cell: streams, displays and error, collected up to a limit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tirjudge_sandbox.notebook.base import CellError, CellRun, CellStatus
from tirjudge_sandbox.notebook.channel import ChannelBroken


class Outputs:
    """Collects the output of one cell; whatever exceeds the limit is dropped and sets `full`."""

    def __init__(self, most_bytes: int):
        """`most_bytes`: limit for everything together."""
        self.full = False
        self._left = most_bytes
        self._streams: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self._displays: list[Mapping[str, Any]] = []
        self._error: CellError | None = None

    def add(self, frame: Mapping[str, Any]) -> None:
        """Add a frame of kind `stream`, `display` or `error`. Raises ChannelBroken for any other."""
        try:
            match frame["kind"]:
                case "stream":
                    taken = self._take(frame["text"].encode())
                    self._streams[frame["name"]] += taken
                case "display":
                    data = dict(frame["data"])
                    if self._fits(data):
                        self._displays.append(data)
                case "error":
                    self._set_error(frame)
                case other:
                    raise ValueError(other)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ChannelBroken(f"it sent a malformed message: {error}") from None

    def cell(
        self, status: CellStatus | None, wall_seconds: float, *, restarted: bool, detail: str
    ) -> CellRun:
        """Return the result. `status`: None means the status that the kernel reported."""
        reported = CellStatus.OK if self._error is None else CellStatus.ERROR
        stdout, stderr = (text.decode("utf-8", "replace") for text in self._streams.values())
        return CellRun(
            status=status or reported,
            stdout=stdout,
            stderr=stderr,
            displays=tuple(self._displays),
            error=self._error,
            truncated=self.full,
            restarted=restarted,
            wall_seconds=wall_seconds,
            detail=detail,
        )

    def _set_error(self, frame: Mapping[str, Any]) -> None:
        lines = tuple(map(str, frame["traceback"]))
        error = CellError(name=str(frame["name"]), value=str(frame["value"]), traceback=lines)
        if self._fits([error.name, error.value, lines]):
            self._error = error
        elif self._error is None:
            self._error = CellError(name=error.name[:100], value="", traceback=())

    def _take(self, content: bytes) -> bytes:
        self.full |= len(content) > self._left
        taken = content[: self._left]
        self._left -= len(taken)
        return taken

    def _fits(self, data: object) -> bool:
        size = len(json.dumps(data))
        fits = size <= self._left
        self.full |= not fits
        self._left -= size if fits else 0
        return fits
