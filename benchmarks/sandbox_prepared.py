"""Milliseconds and memory of programs that find a table prepared, beside programs that load it themselves.

    python -m benchmarks.sandbox_prepared [--megabytes 50]   # as root, which may read all memory

Needs pandas and pyarrow. The table has the given size as CSV; its rows come from seed 0. Each comparison is
`prepared/FORMAT/PROGRAM`: the peer is the same sandbox, with pandas loaded already, in which every program
gets the file and reads it. `mean` reads the table, and `change` writes to one of its columns. Memory is what
the worker's processes hold while the program waits at its end, more than before it (PSS: pages that several
share are counted once). The files in the working folder, which only the peer has, are not in it.

The limit is a bare fork in C, and the CPU time of the program on a loaded table.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.peers import Comparison, Limit, Run, Unavailable
from benchmarks.sandbox_latency.measurement import fork_seconds
from tirjudge_sandbox import Limits, Program, Sandbox, SandboxUnavailable, Status, open_sandbox

MIB = 1 << 20
FORMATS = {"csv": "table.csv", "parquet": "table.parquet"}
PROGRAMS = {
    "mean": "print(round(table.groupby('city').amount.mean().sum(), 3))",
    "change": "table['amount'] = table.amount + 1\nprint(round(table.amount.sum(), 3))",
}
LIMITS = Limits(wall_seconds=120, cpu_seconds=120, memory_bytes=2048 * MIB, disk_bytes=128 * MIB)
_HOLD = "\nimport time\nprint('done', flush=True)\ntime.sleep(30)"


async def comparisons(
    names: Sequence[str], options: argparse.Namespace
) -> AsyncIterator[Comparison | Unavailable]:
    """Yield the comparisons, each in two sandboxes of its own."""
    try:
        import pandas
        import pyarrow  # noqa: F401
    except ImportError as error:
        for name in names:
            yield Unavailable(name, str(error))
        return
    fork, files = fork_seconds() or 0.0, _files(options.megabytes)
    for name in names:
        _, kind, title = name.split("/")
        file, source = FORMATS[kind], PROGRAMS[title]
        loading = f"import pandas\ntable = pandas.read_{kind}({file!r})\n"
        table = getattr(pandas, f"read_{kind}")(io.BytesIO(files[file]))
        async with AsyncExitStack() as stack:
            try:
                prepared, plain = [
                    await stack.enter_async_context(open_sandbox("local", capacity=1, spare=0, **chosen))
                    for chosen in (
                        {"prepare": Program(loading, files={file: files[file]})},
                        {"preload": ("numpy", "sympy", "pandas", "pyarrow")},
                    )
                ]
            except SandboxUnavailable as error:
                yield Unavailable(name, str(error))
                continue
            yield Comparison(
                name=name,
                peer=f"pandas {pandas.__version__} loads {len(files[file]) / 1e6:.0f} MB in each program",
                unit="programs/s",
                measure_own=partial(_measure, prepared, Program(source), options.seconds),
                measure_peer=partial(
                    _measure, plain, Program(loading + source, files={file: files[file]}), options.seconds
                ),
                limit=_limit(fork, source, table),
            )


def _files(megabytes: float) -> dict[str, bytes]:
    """Return the table as CSV of about so many million bytes, and as Parquet."""
    import numpy as np
    import pandas

    draw = np.random.default_rng(0)

    def table(rows: int) -> pandas.DataFrame:
        return pandas.DataFrame(
            {
                "order": np.arange(rows),
                "city": np.array([f"city {n}" for n in range(100)])[draw.integers(100, size=rows)],
                "amount": draw.normal(100, 20, rows).round(4),
                "quantity": draw.integers(1, 50, rows),
                "ratio": draw.random(rows),
            }
        )

    each = len(table(10_000).to_csv(index=False)) / 10_000
    whole = table(int(megabytes * 1e6 / each))
    parquet = io.BytesIO()
    whole.to_parquet(parquet)
    return {"table.csv": whole.to_csv(index=False).encode(), "table.parquet": parquet.getvalue()}


async def _measure(box: Sandbox, program: Program, seconds: float) -> Run:
    """Run a program again and again for some seconds, then once more to see the memory that it holds."""
    each: list[float] = []
    until = time.perf_counter() + seconds
    while not each or time.perf_counter() < until:
        started = time.perf_counter()
        await _run(box, program)
        each.append(time.perf_counter() - started)
    cpu = (await box.run(program, LIMITS)).cpu_seconds
    others = {"median, ms": statistics.median(each) * 1000, "CPU, ms": cpu * 1000}
    others["memory, MiB"] = await _memory(box, program) / MIB
    return Run(len(each) / sum(each), others)


async def _run(box: Sandbox, program: Program) -> None:
    ran = await box.run(program, LIMITS)
    if ran.status is not Status.OK:
        raise RuntimeError(f"the program ended with {ran.status}: {ran.stderr or ran.detail}")


async def _memory(box: Sandbox, program: Program) -> int:
    """Return the bytes that all workers hold while the program waits at its end, more than before."""
    held = Program(program.source + _HOLD, files=program.files)
    before = _pss()
    running = asyncio.ensure_future(box.run(held, LIMITS))
    found = 0
    try:
        # Until it sleeps: nothing that runs changes its memory then.
        while not running.done():
            await asyncio.sleep(0.2)
            if (now := _pss()) == found and now > before:
                break
            found = now
    finally:
        running.cancel()
        await asyncio.wait([running])
    return found - before


def _pss() -> int:
    """Return the bytes of memory of all processes below this one, pages that they share counted once."""
    total = 0
    for pid in _descendants(os.getpid()):
        for line in _lines(f"/proc/{pid}/smaps_rollup"):
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def _descendants(pid: int) -> set[int]:
    children = {int(child) for line in _lines(f"/proc/{pid}/task/{pid}/children") for child in line.split()}
    return children.union(*map(_descendants, children))


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return []  # it has just ended


def _limit(fork: float, source: str, table: Any) -> Limit:
    code, each = compile(source.replace("print", "str"), "<program>", "exec"), []
    for _ in range(5):
        started = time.process_time()
        exec(code, {"table": table.copy()})
        each.append(time.process_time() - started)
    body = statistics.median(each)
    why = f"a fork of {fork * 1000:.2f} ms and {body * 1000:.1f} ms of the program"
    return Limit(rate=1 / (fork + body), why=why)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=0.5, help="least seconds of each run")
    parser.add_argument("--megabytes", type=float, default=50.0, help="size of the table as CSV")


SUITE = peers.Suite(
    names=[f"prepared/{kind}/{name}" for kind in FORMATS for name in PROGRAMS],
    open=comparisons,
    options=_options,
)

if __name__ == "__main__":
    raise SystemExit(peers.main(SUITE, __doc__))
