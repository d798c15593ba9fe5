"""An n-gram index of benchmark prompts that finds prompts sharing eight words in a row with one of them."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

WORDS = 8
"""TIR §4.1: "strict 8-gram decontamination"."""
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+")
"""A run of letters and digits; each Chinese or Japanese character is a word, since they write no blanks."""
_MULTIPLIER = 0x9E3779B97F4A7C15
_KNOWN_WORDS = 1 << 20
"""The most word hashes that are cached in memory."""


@dataclass(frozen=True, slots=True)
class Text:
    """A prompt of a benchmark."""

    benchmark: str
    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Overlap:
    """A match between a prompt and a benchmark."""

    benchmark: str
    id: str
    """The id of the benchmark's row."""
    words: str
    """The first shared words, in the form in which they are compared: lower case, without punctuation."""


def words(text: str) -> list[str]:
    """Return the words to compare: NFKC-normalised, case-folded, without punctuation."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


class OverlapIndex:
    """All runs of `n` words in the benchmark prompts, as 64-bit hashes; 12 bytes per run.

    A benchmark text of fewer words matches only a text that is equal to it (ours: the paper does not specify
    this case). With 10 million runs and 100 million searches, the probability of a chance collision is 5e-5.
    """

    def __init__(self, texts: Iterable[Text], *, n: int = WORDS, common: int | None = None) -> None:
        """Index the texts without runs that occur in more than `common` prompts of one benchmark.

        Such runs belong to the benchmark's template. None indexes all, as the paper's "strict" demands.
        """
        self._n = n
        self._powers = [pow(_MULTIPLIER, place, 1 << 64) for place in range(n)]
        self._hashes: dict[str, int] = {}
        self._origins: list[tuple[str, str]] = []
        self._short: dict[tuple[str, ...], int] = {}
        runs, owners = [np.empty(0, np.uint64)], [np.empty(0, np.uint32)]
        for text in texts:
            number, found = len(self._origins), words(text.text)
            self._origins.append((text.benchmark, text.id))
            # Too short for a run of n words: only an equal text counts as an overlap.
            if len(found) < n:
                self._short.setdefault(tuple(found), number)
                continue
            hashes = np.unique(self._runs(found))
            runs.append(hashes)
            owners.append(np.full(len(hashes), number, np.uint32))
        self._index(np.concatenate(runs), np.concatenate(owners), common)

    def __len__(self) -> int:
        """Return the number of texts."""
        return len(self._origins)

    def find(self, texts: Iterable[str]) -> Overlap | None:
        """Return the first overlap of any of these texts, which are parts of one prompt."""
        for text in texts:
            found = words(text)
            if len(found) < self._n:
                number = self._short.get(tuple(found)) if found else None
                if number is not None:
                    return self._overlap(number, found)
                continue
            if not self._keys.size:
                continue
            hashes = self._runs(found)
            # searchsorted returns the length for a hash above all keys.
            places = np.minimum(np.searchsorted(self._keys, hashes), len(self._keys) - 1)
            hits = np.flatnonzero(self._keys[places] == hashes)
            if hits.size:
                first = int(hits[0])
                return self._overlap(self._owners[places[first]], found[first : first + self._n])
        return None

    def _overlap(self, number: int, shared: Iterable[str]) -> Overlap:
        benchmark, id = self._origins[number]
        return Overlap(benchmark, id, " ".join(shared))

    def _index(self, runs: Any, owners: Any, common: int | None) -> None:
        # Stable, so that the first text with a run is the one that an overlap names.
        order = np.argsort(runs, kind="stable")
        runs, owners = runs[order], owners[order]
        if common is not None:
            kept = ~np.isin(runs, self._templates(runs, owners, common))
            runs, owners = runs[kept], owners[kept]
        self._keys, first = np.unique(runs, return_index=True)
        self._owners = owners[first]

    def _templates(self, runs: Any, owners: Any, common: int) -> Any:
        """Return the runs that occur in more than `common` prompts of one benchmark."""
        names = {name: place for place, name in enumerate(dict.fromkeys(b for b, _ in self._origins))}
        of_text = np.array([names[benchmark] for benchmark, _ in self._origins], np.uint32)
        found = [np.empty(0, np.uint64)]
        for place in names.values():
            benchmark_runs, counts = np.unique(runs[of_text[owners] == place], return_counts=True)
            found.append(benchmark_runs[counts > common])
        return np.concatenate(found)

    def _runs(self, found: list[str]) -> Any:
        """Return the hash of each run of n words: a polynomial in the words' hashes, modulo 2**64."""
        # Clearing is rare and cheaper than keeping an order of use.
        if len(self._hashes) > _KNOWN_WORDS:
            self._hashes.clear()
        known = self._hashes
        hashes = np.array([known.get(word) or self._hash(word) for word in found], np.uint64)
        length = len(found) - self._n + 1
        runs = np.zeros(length, np.uint64)
        # Adding n shifted arrays takes n numpy calls instead of a Python step per run.
        for place, power in enumerate(self._powers):
            runs += hashes[place : place + length] * np.uint64(power)
        return runs

    def _hash(self, word: str) -> int:
        digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        self._hashes[word] = value = int.from_bytes(digest, "little")
        return value
