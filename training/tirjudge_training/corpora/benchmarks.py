"""The prompts that training must not have seen: of benchmarks by name, and of files of one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tirjudge.data.rows import BadRow
from tirjudge.data.sources import HubRows, RowSource, open_rows
from tirjudge.evaluation.benchmarks.catalog import benchmark_names, open_benchmark
from tirjudge.evaluation.benchmarks.reading import BenchmarkRows
from tirjudge_training.corpora.overlap import Text

PROMPT, EVERY = "prompt", "all"
BEST_OF_N = {
    "aime-2024": ("HuggingFaceH4/aime_2024", "train", "problem"),
    "aime-2025": ("MathArena/aime_2025", "train", "problem"),
    "bigcodebench": ("bigcode/bigcodebench", "v0.1.4", "complete_prompt"),
    "ifeval": ("google/IFEval", "train", "prompt"),
}
"""Prompts of TIR's best-of-N experiment (App. E), which are no rows to judge: hub id, split and column."""


class BenchmarkGone(RuntimeError):
    """A benchmark whose prompts cannot be had; one line: which, why, and what can be done."""


def every(say: Callable[[str], None]) -> tuple[str, ...]:
    """All whose prompts are on the hub; tells of the others."""
    public = tuple(name for name in benchmark_names() if _public_parts(name))
    private = [name for name in benchmark_names() if name not in public]
    if private:
        say(f"not on the hub, so not looked at: {', '.join(private)}; name files with --against all FILE")
    return (*public, *BEST_OF_N)


def texts(against: Iterable[str] | None, say: Callable[[str], None]) -> Iterator[Text]:
    """Prompts of benchmarks by name, or of rows as `FILE` or `FILE:COLUMN`; `all` and None are every one.

    Of a conversation each message is a text of its own, system messages left out. Raises BenchmarkGone.
    """
    named = [EVERY] if against is None else against
    for name in (one for given in named for one in (every(say) if given == EVERY else (given,))):
        try:
            yield from _of(name)
        except (OSError, ValueError) as error:
            raise BenchmarkGone(
                f"cannot decontaminate against {name}: {error}; --against names what there is"
            ) from None


def messages(prompt: Any) -> Iterator[str]:
    """The texts of a prompt as rows hold it, a text or chat messages; raises ValueError."""
    if isinstance(prompt, str):
        yield prompt
        return
    if not isinstance(prompt, list) or not all(isinstance(one, Mapping) for one in prompt):
        raise ValueError("is neither a text nor a list of chat messages")
    for message in prompt:
        if message.get("role") != "system" and isinstance(message.get("content"), str):
            yield message["content"]


def _of(name: str) -> Iterator[Text]:
    if name in benchmark_names():
        return _of_benchmark(name)
    if name in BEST_OF_N:
        place, split, column = BEST_OF_N[name]
        return _of_rows(name, HubRows(place, split=split), column)
    path, _, column = name.rpartition(":")
    if not path or Path(name).exists():
        path, column = name, PROMPT
    return _of_rows(path, open_rows(path), column)


def _of_benchmark(name: str) -> Iterator[Text]:
    """One prompt is asked about several times: each text once."""
    seen: set[str] = set()
    for task in BenchmarkRows(open_benchmark(name), _public_parts(name)).tasks():
        for message in task.prompt:
            if message.role != "system" and message.content not in seen:
                seen.add(message.content)
                yield Text(name, task.id, message.content)


def _public_parts(name: str) -> list[str]:
    return [part.name for part in open_benchmark(name).parts if part.hub]


def _of_rows(name: str, rows: RowSource, column: str) -> Iterator[Text]:
    for row in rows:
        if isinstance(row, BadRow):
            raise ValueError(f"{row.where}: {row.reason}")
        try:
            found = list(messages(row.fields[column]))
        except KeyError:
            raise ValueError(f"{row.where}: no column {column!r}; write FILE:COLUMN") from None
        except ValueError as error:
            raise ValueError(f"{row.where}: {column} {error}") from None
        yield from (Text(name, row.default_id, text) for text in found)
