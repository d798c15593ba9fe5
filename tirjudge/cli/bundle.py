"""`tirjudge eval --bundle` and `--check`: a run packed into one file, and a file of somebody else checked."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tirjudge.cli.benchmark_run import parts_of
from tirjudge.cli.errors import INTERRUPTED, say, stop
from tirjudge.console_text import printable
from tirjudge.data.sources import open_rows
from tirjudge.evaluation.benchmarks import benchmark_names, open_benchmark
from tirjudge.evaluation.benchmarks.rows import BenchmarkRows
from tirjudge.evaluation.bundles.bundle import Manifest, Unpacked, read_bundle, write_bundle
from tirjudge.evaluation.bundles.check import Checked, Finding, GivenRows, checked, recorded_columns
from tirjudge.evaluation.stored_outputs.reading import Replay
from tirjudge.judging.config import SandboxConfig
from tirjudge.judging.result_rows import read_result_rows
from tirjudge.storage.run_folder import JsonObject
from tirjudge_sandbox import Limits

_LISTED = 50
"""Findings that are printed; `--json` has all of them."""
_LONGEST = 400
_SCORE = ("protocol", "about", "ties", "failures", "figures", "units", "counts")


def pack(place: Path, run: Replay, records: Iterable[JsonObject], *, seed: int, quiet: bool) -> None:
    """Pack a scored run. Raises ValueError for a run that is not one result file of tirjudge."""
    if run.format.name != "tirjudge" or len(run.files.paths) != 1:
        raise ValueError("--bundle packs one result file of tirjudge judge or eval")
    scores = [{name: one[name] for name in _SCORE} for one in records]
    count = write_bundle(place, run.path, scores, seed=seed)
    if not quiet:
        print(printable(f"{place}: {count} rows, {len(scores)} protocols"))


def check(file: Path, sandbox: SandboxConfig, data: Sequence[str], *, as_json: bool) -> bool:
    """Check a bundle and print what does not hold; return True if everything holds.

    Raises ValueError, in one line, for a file that is no bundle, and SandboxUnavailable.
    """
    with tempfile.TemporaryDirectory(prefix="tirjudge-bundle-") as folder:
        try:
            bundle = read_bundle(file, Path(folder))
            given = _given(bundle, data) if data else None
            found = asyncio.run(_checked(bundle, sandbox, given))
        except KeyboardInterrupt:
            stop("eval", f"interrupted while checking {file}", INTERRUPTED)
        except ValueError as error:
            # The members are unpacked where nobody can look them up.
            raise ValueError(str(error).replace(f"{folder}/", f"{file}: ")) from None
    _print_record(file, bundle.manifest, found) if as_json else _print(file, bundle.manifest, found)
    return not found.findings


async def _checked(bundle: Unpacked, sandbox: SandboxConfig, given: GivenRows | None) -> Checked:
    async with sandbox.sandbox() as opened:
        return await checked(bundle, opened, Limits(), given=given, weak=sandbox.allow_weak_isolation)


def _given(bundle: Unpacked, data: Sequence[str]) -> GivenRows:
    """Read the rows that `--data` names, in the columns of the bundle's benchmark or of its settings."""
    settings, name = bundle.manifest.settings, bundle.manifest.benchmark
    if name in benchmark_names():
        benchmark = open_benchmark(name)
        first = next(read_result_rows(bundle.verdicts), None)
        alone = first is not None and all(len(view.order) == 1 for view in first[0].views)
        chosen = settings.get("parts")
        parts = [one for one in chosen if isinstance(one, str)] if isinstance(chosen, list) else []
        rows = BenchmarkRows(benchmark, parts, parts_of(benchmark, parts, data), alone=alone)
        return GivenRows.of(name, rows, *recorded_columns({}))
    if len(data) != 1:
        raise ValueError("--data: give the one file of rows that this bundle was judged on")
    return GivenRows.of(data[0], open_rows(data[0]), *recorded_columns(settings))


def _print(file: Path, manifest: Manifest, found: Checked) -> None:
    for one in found.findings[:_LISTED]:
        print(printable(_line(one), _LONGEST))
    if len(found.findings) > _LISTED:
        print(f"and {len(found.findings) - _LISTED} more; --json lists all of them")
    against = "not compared with any" if found.given_rows is None else f"compared with {found.given_rows}"
    say(
        f"tirjudge eval: {file}: {found.rows} rows ({against}), {found.verdicts} verdicts read again, "
        f"{found.programs} programs run again, {found.figures} numbers computed again, judged by tirjudge "
        f"{manifest.versions.get('tirjudge', '?')}: "
        + (f"{len(found.findings)} findings" if found.findings else "everything holds")
    )


def _line(one: Finding) -> str:
    return f"{one.what} {one.where}: {one.reason}"


def _print_record(file: Path, manifest: Manifest, found: Checked) -> None:
    record: dict[str, Any] = {"file": str(file), "holds": not found.findings, **asdict(found)}
    print(json.dumps(record | {"versions": manifest.versions}, indent=2))
