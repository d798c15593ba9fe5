"""The product modules that three flows pass: those with a function that is called in this process.

python -m benchmarks.flows
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from pathlib import Path
from types import FrameType
from typing import Any

from typer.testing import CliRunner

from benchmarks.layout import PACKAGES
from tirjudge.cli import app
from tirjudge.evaluation.protocols import open_protocol
from tirjudge.evaluation.scoring import score
from tirjudge.evaluation.stored_outputs.reading import open_replay
from tirjudge.judging.batch import BatchRunner
from tirjudge_sandbox import Limits, Program, open_sandbox

ROOT = Path(__file__).parent.parent


@cache
def module_of(file: str) -> str:
    """Return the product module in a file; empty for another file."""
    for package, folder in PACKAGES.items():
        path = Path(file)
        if path.is_relative_to(ROOT / folder):
            inner = path.relative_to(ROOT / folder).with_suffix("")
            return ".".join((package, *(part for part in inner.parts if part != "__init__")))
    return ""


class Trace:
    """The modules of which a function was called while the trace was on, in every thread that starts then."""

    def __init__(self) -> None:
        self._files: set[str] = set()

    @contextmanager
    def on(self) -> Iterator[None]:
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]

    def modules(self) -> list[str]:
        return sorted(map(module_of, self._files))

    def _called(self, frame: FrameType, event: str, argument: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file not in self._files and module_of(file) and not _imports(frame):
            self._files.add(file)


def _imports(frame: FrameType | None) -> bool:
    """Return True for a call that only happens because a module is imported."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def a_row(trace: Trace, folder: Path) -> None:
    """A row to its verdict with the embedded model: from the file of rows to the line of the result file."""
    run = BatchRunner.run

    @wraps(run)
    async def traced(batch: BatchRunner[Any], rows: Any) -> int:
        with trace.on():
            return await run(batch, rows)

    BatchRunner.run = traced  # type: ignore[method-assign]
    try:
        rows, output = ROOT / "examples/instructions.jsonl", folder / "row.jsonl"
        done = CliRunner().invoke(app, ["judge", str(rows), "--limit=1", f"--output={output}"])
    finally:
        BatchRunner.run = run  # type: ignore[method-assign]
    assert done.exit_code == 0, done.output


def a_program(trace: Trace, folder: Path) -> None:
    """A program through the open local sandbox, on the side of the host."""

    async def run() -> None:
        async with open_sandbox("local", preload=()) as box:
            with trace.on():
                assert (await box.run(Program("print(6 * 7)"), Limits())).stdout == "42\n"

    asyncio.run(run())


def a_stored_file(trace: Trace, folder: Path) -> None:
    """Scoring a stored file: from its rows to the line of the score."""
    with trace.on():
        run = open_replay(ROOT / "examples/instructions.verdicts.jsonl")
        score(open_protocol("verdict"), run)


FLOWS: dict[str, Callable[[Trace, Path], None]] = {
    "scoring a stored file": a_stored_file,
    "a program through the local sandbox": a_program,
    "a row to its verdict with the embedded model": a_row,
}


def main() -> None:
    """Print the modules of each flow."""
    for name, flow in FLOWS.items():
        trace = Trace()
        with tempfile.TemporaryDirectory() as folder:
            flow(trace, Path(folder))
        found = trace.modules()
        print(f"{name}: {len(found)} modules", *(f"  {module}" for module in found), sep="\n", flush=True)


if __name__ == "__main__":
    main()
