"""Decontamination: an index of the benchmarks' word sequences, and the rows that share some with them."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tirjudge.data.rows import BadRow, Row
from tirjudge.data.sources import HubRows, RowSource, open_rows
from tirjudge.evaluation.benchmarks import benchmark_names, open_benchmark
from tirjudge.evaluation.benchmarks.base import BenchmarkRows
from tirjudge.progress import ProgressReporter
from tirjudge.storage.durable_files import complete_file
from tirjudge.storage.json_lines import encode_line
from tirjudge_training.corpora.config import WORDS

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+")
"""A run of letters and digits; each Chinese or Japanese character is a word, since they write no blanks."""
# An odd number, whose powers are invertible modulo 2**64: no word's hash loses bits by its place in a run.
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
    """The first shared words in the compared form: lower case, without punctuation."""


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
        # Stable, so that an overlap names the first text with a run.
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


PROMPT, EVERY = "prompt", "all"
BEST_OF_N = {
    "aime-2024": ("HuggingFaceH4/aime_2024", "train", "problem"),
    "aime-2025": ("MathArena/aime_2025", "train", "problem"),
    "bigcodebench": ("bigcode/bigcodebench", "v0.1.4", "complete_prompt"),
    "ifeval": ("google/IFEval", "train", "prompt"),
}
"""Prompts of TIR's best-of-N experiment (App. E) that are no judge benchmarks: hub id, split and column."""


class BenchmarkUnavailable(RuntimeError):
    """A benchmark with unreadable prompts; the message is one line: benchmark, reason, remedy."""


class BadRows(ValueError):
    """Rows that cannot be decontaminated; one line with file, row and column."""


@dataclass
class Tally:
    """Counts of rows read and dropped."""

    rows: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    """Dropped rows by benchmark."""


def decontaminate(
    rows: RowSource, index: OverlapIndex, output: Path, *, column: str, say: Callable[[str], None]
) -> Tally:
    """Write clean rows to `output` as JSON lines, and other rows, with the reason, to a file beside `output`.

    Both files appear when complete. Raises BadRows for a row that cannot be read, has no prompt in `column`,
    or holds values unknown to JSON; OSError.
    """
    tally, progress = Tally(), ProgressReporter(say, "decontaminating", total=rows.count())
    with ExitStack() as stack:
        kept, dropped = (stack.enter_context(complete_file(path)) for path in (output, dropped_path(output)))
        for row in rows:
            if isinstance(row, BadRow):
                raise BadRows(f"{row.where}: {row.reason}")
            try:
                found = index.find(messages(row.fields.get(column)))
            except ValueError as error:
                raise BadRows(f"{row.where}: {column} {error}") from None
            tally.rows += 1
            # Written as they were read, including columns that tirjudge does not know.
            if found is None:
                kept.write(_encoded(row, row.fields))
            else:
                tally.dropped[found.benchmark] += 1
                dropped.write(_encoded(row, {"row": row.where, **asdict(found), "fields": row.fields}))
            progress.count(row)
    return tally


def _encoded(row: Row, content: Mapping[str, Any]) -> bytes:
    """Encode what is written of a row; raises BadRows for dates, bytes and the like, as Parquet has them."""
    try:
        return encode_line(content)
    except TypeError as error:
        columns = ", ".join(name for name, value in row.fields.items() if not _is_json(value))
        raise BadRows(f"{row.where}: {columns}: {error}: convert or drop this column") from None


def _is_json(value: Any) -> bool:
    try:
        encode_line({"": value})
    except TypeError:
        return False
    return True


def dropped_path(output: Path) -> Path:
    """Return the path of the dropped rows: `NAME.dropped.jsonl` next to `output`."""
    return output.with_name(f"{output.name}.dropped.jsonl")


def all_benchmarks(say: Callable[[str], None]) -> tuple[str, ...]:
    """Return all benchmarks with prompts on the hub; report the others through `say`."""
    public = tuple(name for name in benchmark_names() if _public_parts(name))
    private = [name for name in benchmark_names() if name not in public]
    if private:
        say(
            f"not on the hub, so not decontaminated against: {', '.join(private)}; "
            "pass their prompts with --against all --against FILE"
        )
    return (*public, *BEST_OF_N)


def benchmark_texts(against: Iterable[str] | None, say: Callable[[str], None]) -> Iterator[Text]:
    """Yield the prompts of benchmarks, by name, or of rows, as `FILE` or `FILE:COLUMN`.

    `all` and None stand for every benchmark on the hub. Each message of a conversation is a separate text;
    system messages are left out. Raises BenchmarkUnavailable.
    """
    named = [EVERY] if against is None else against
    for name in (one for given in named for one in (all_benchmarks(say) if given == EVERY else (given,))):
        try:
            yield from _texts_of(name)
        except (OSError, ValueError) as error:
            raise BenchmarkUnavailable(
                f"cannot decontaminate against {name}: {error}; choose benchmarks or files with --against"
            ) from None


def messages(prompt: Any) -> Iterator[str]:
    """Yield the texts of a row's prompt, a string or chat messages; raises ValueError for anything else."""
    if isinstance(prompt, str):
        yield prompt
        return
    if not isinstance(prompt, list) or not all(isinstance(one, Mapping) for one in prompt):
        raise ValueError("is neither a string nor a list of chat messages")
    for message in prompt:
        if message.get("role") != "system" and isinstance(message.get("content"), str):
            yield message["content"]


def _texts_of(name: str) -> Iterator[Text]:
    if name in benchmark_names():
        return _benchmark_texts(name)
    if name in BEST_OF_N:
        place, split, column = BEST_OF_N[name]
        return _row_texts(name, HubRows(place, split=split), column)
    path, _, column = name.rpartition(":")
    # A colon may also be a part of the file name.
    if not path or Path(name).exists():
        path, column = name, PROMPT
    return _row_texts(path, open_rows(path), column)


def _benchmark_texts(name: str) -> Iterator[Text]:
    # Several rows of a benchmark share a prompt; each text is yielded once.
    seen: set[str] = set()
    for task in BenchmarkRows(open_benchmark(name), _public_parts(name)).tasks():
        for message in task.prompt:
            if message.role != "system" and message.content not in seen:
                seen.add(message.content)
                yield Text(name, task.id, message.content)


def _public_parts(name: str) -> list[str]:
    return [part.name for part in open_benchmark(name).parts if part.hub]


def _row_texts(name: str, rows: RowSource, column: str) -> Iterator[Text]:
    for row in rows:
        if isinstance(row, BadRow):
            raise ValueError(f"{row.where}: {row.reason}")
        try:
            found = list(messages(row.fields[column]))
        except KeyError:
            raise ValueError(f"{row.where}: no column {column!r}; name one with FILE:COLUMN") from None
        except ValueError as error:
            raise ValueError(f"{row.where}: {column} {error}") from None
        yield from (Text(name, row.default_id, text) for text in found)
