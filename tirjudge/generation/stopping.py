"""Finding stop strings while tokens arrive."""

from __future__ import annotations

from collections.abc import Sequence

from tirjudge_environments import Encoder


class StopStrings:
    """Tells after each token whether it completed one of a prompt's stop strings.

    Text is decoded only when the newest token could be the one: when it holds a stop string's last character.
    """

    def __init__(self, strings: Sequence[str], encoder: Encoder) -> None:
        self._strings = tuple(strings)
        self._ends = {string[-1] for string in strings}
        self._encoder = encoder
        self._suspects: dict[int, bool] = {}
        # A token is at least a byte; a few more make up for tokens that decode to nothing.
        self._reach = 8 + max((len(string.encode()) for string in strings), default=0)

    def completed(self, ids: Sequence[int], start: int) -> bool:
        """Whether the last of `ids` ends a stop string that lies in `ids[start:]`."""
        suspect = self._suspects.get(ids[-1])
        if suspect is None:
            suspect = self._suspects[ids[-1]] = self._suspect(ids[-1])
        if not suspect:
            return False
        tail = self._encoder.decode(ids[max(start, len(ids) - self._reach) :])
        return any(string in tail for string in self._strings)

    def _suspect(self, token: int) -> bool:
        """A token that shows nothing, or part of a character, may complete anything."""
        text = self._encoder.decode([token])
        return not text or "\ufffd" in text or any(end in text for end in self._ends)
