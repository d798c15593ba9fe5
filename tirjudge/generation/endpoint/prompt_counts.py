"""Detection of cut prompts: the server's token count is compared with the fewest possible tokens.

Ollama drops the front of a prompt that is longer than its context, and answers the rest. Only the token count
in the answer shows the loss.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence

from tirjudge.generation.base import PromptCut
from tirjudge.generation.endpoint.answers import Counts

logger = logging.getLogger(__name__)

_SHORTEST = 1000
"""The fewest tokens of a prompt that is checked."""
_SMALLEST_CONTEXT = 500
"""Tokens; a lower count is not what is left of a cut prompt, but no count of the prompt at all."""
_CERTAIN = 0.7
"""Below this share of the fewest tokens the prompt was cut; from here to 1 a cut is doubtful."""
_BYTES = 5
"""Bytes of a token, more than in any estimate by which a server may count."""
_REMEMBERED = 64


class PromptCounts:
    """Compares a server's token count with the text sent to the server."""

    def __init__(self) -> None:
        self._warned = False
        self._read: deque[str] = deque(maxlen=_REMEMBERED)
        """Prompts that were read whole; a server may have cached their beginnings."""

    def check(self, texts: Sequence[str], counts: Counts | None) -> None:
        """Raise PromptCut if the server cannot have read all texts; warn once if that is doubtful."""
        whole = "\n".join(texts)
        fewest = fewest_tokens(whole)
        read = counts.most_read if counts is not None else None
        if fewest < _SHORTEST or read is None:
            return
        if read >= fewest:
            self._read.append(whole)
            return
        if _SMALLEST_CONTEXT <= read < _CERTAIN * self._fewest_new(whole):
            room = 1 << (2 * fewest + 8192).bit_length()
            raise PromptCut(
                f"the endpoint read {read} tokens of a prompt that has more than {fewest}: it cut the "
                f"prompt. Give the server a longer context (Ollama: OLLAMA_CONTEXT_LENGTH={room}), or "
                "shorten responses with --truncate"
            )
        if not self._warned:
            self._warned = True
            logger.warning(
                "the endpoint counted %d tokens of a prompt that has more than %d: if it cut the prompt, "
                "give the server a longer context",
                read,
                fewest,
            )

    def _fewest_new(self, whole: str) -> int:
        """Return the fewest tokens behind the longest beginning that another prompt shares."""
        shared = max((_shared(whole, other) for other in self._read), default=0)
        return fewest_tokens(whole[shared:])


def fewest_tokens(text: str) -> int:
    """Return a number of tokens that no tokenizer and no estimate stays below for texts of a prompt.

    A token ends at white space, and no server counts more than five bytes as a token. Scripts without white
    space have up to four characters in a token.
    """
    without_spaces = sum("⺀" <= mark <= "鿿" or "가" <= mark <= "힣" for mark in text) // 4
    return min(len(text.split()) + without_spaces, len(text.encode(errors="replace")) // _BYTES)


def _shared(one: str, other: str) -> int:
    """Return the length of the longest beginning that two texts share."""
    least, most = 0, min(len(one), len(other))
    while least < most:
        middle = (least + most + 1) // 2
        if one[:middle] == other[:middle]:
            least = middle
        else:
            most = middle - 1
    return least
