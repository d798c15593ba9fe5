"""The benchmark of vLLM's prefix cache: what a run reuses, and what it judges with the cache and without."""

from __future__ import annotations

from argparse import Namespace
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.prefix_cache import BLOCK, DIALOGUES, SHARE, benches, both_sides, merge_model
from examples.miniature import TRAINED

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed"),
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(600),
]


async def test_a_run_counts_only_its_own_reuse_and_judges_as_without_the_cache(tmp_path: Path) -> None:
    merge_model(str(TRAINED), tmp_path)
    bench = benches(tmp_path, Namespace(rows=3, samples=2))["greedy"]
    with both_sides(tmp_path) as (cached, uncached):
        runs = [await bench.run(cached), await bench.run(cached)]
        known = await bench.run(cached, empty=False)
        without = await bench.run(uncached)
    assert [run.others[DIALOGUES] for run in (*runs, known, without)] == [0] * 4
    assert without.others[SHARE] == 0
    assert 0 < runs[0].others[SHARE] == pytest.approx(runs[1].others[SHARE], abs=0.05)
    # vLLM computes the last block of a prompt again even if the whole prompt is in its cache. A row has two
    # dialogues with one prompt each, and every program adds a prompt: the dialogue so far, for the next turn.
    tokens, programs = (runs[0].others[name] for name in ("prompt tokens per row", "programs per row"))
    assert programs > 0
    assert 1 - (2 + programs) * BLOCK / tokens <= known.others[SHARE] < 1
    assert known.others[SHARE] > runs[1].others[SHARE] + 0.1
