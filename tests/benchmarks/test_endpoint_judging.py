"""The endpoint of the judging benchmark: what it answers and counts, and rows judged by both runners.

Inspect's runner is tested where `.ci/frameworks` installs it.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.endpoint_judging import AT_ONCE, Bench, Rows, summary
from benchmarks.http_load import server


@pytest.mark.parametrize(
    "runner",
    [
        "own",
        pytest.param(
            "inspect", marks=pytest.mark.skipif(find_spec("inspect_ai") is None, reason="not installed")
        ),
    ],
)
async def test_a_runner_judges_all_rows_by_the_same_prompts(runner: str, tmp_path: Path) -> None:
    rows = Rows(tmp_path, 40)
    assert rows.seen["count"] == 40
    async with server("benchmarks.endpoint_judging", "--serve", "0.05") as (url, _):
        bench = Bench(url, rows)
        found = await getattr(bench, runner)()
        # 40 rows are two rounds of 32 at once.
        assert found.rate < 40 / 0.1
        assert await bench.bare() < AT_ONCE / 0.05 * 1.05
        other = Rows(tmp_path, 39)
        other.seen["digest"] = summary(["another prompt"])["digest"]
        with pytest.raises(RuntimeError, match="39 of 39 rows were judged, by the prompts"):
            await getattr(Bench(url, other), runner)()
