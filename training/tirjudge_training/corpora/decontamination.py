"""Decontamination: the benchmark prompts that training must not contain, and a filter for files of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tirjudge.data.rows import BadRow
from tirjudge.data.sources import HubRows, RowSource, open_rows
from tirjudge.evaluation.benchmarks import benchmark_names, open_benchmark
from tirjudge.evaluation.benchmarks.rows import BenchmarkRows
from tirjudge.storage.run_folder import complete_file, encode_line
from tirjudge_training.corpora.output import Progress
from tirjudge_training.corpora.overlap import OverlapIndex, Text

PROMPT, EVERY = "prompt", "all"
BEST_OF_N = {
    "aime-2024": ("HuggingFaceH4/aime_2024", "train", "problem"),
    "aime-2025": ("MathArena/aime_2025", "train", "problem"),
    "bigcodebench": ("bigcode/bigcodebench", "v0.1.4", "complete_prompt"),
    "ifeval": ("google/IFEval", "train", "prompt"),
}
"""Prompts of TIR's best-of-N experiment (App. E) that are no judge benchmarks: hub id, split and column."""


class BenchmarkUnavailable(RuntimeError):
    """A benchmark whose prompts cannot be read; one line that says which, why, and what to do."""


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
    """Write the clean rows to `output` as JSON lines, and the others, with the reason, to a file next to it.

    Both files appear when they are complete. Raises BadRows for a row that cannot be read or has no prompt in
    `column`; OSError.
    """
    tally, progress = Tally(), Progress("decontaminating", "rows", rows.count(), say)
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
                kept.write(encode_line(row.fields))
            else:
                tally.dropped[found.benchmark] += 1
                dropped.write(encode_line({"row": row.where, **asdict(found), "fields": row.fields}))
            progress.count(row)
    return tally


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
