"""Benchmarks by name, third parties' included, through the entry-point group `tirjudge.benchmarks`."""

from __future__ import annotations

from difflib import get_close_matches

from tirjudge.evaluation.benchmarks.base import Benchmark
from tirjudge_sandbox.registry import Plugins

BENCHMARKS = Plugins("tirjudge.benchmarks", "benchmark")
"""Each entry is a `Benchmark`."""
_SEVERAL = {
    "ifbench": "ifbench-agentrm is the 444 pairs of TIR-Judge (THU-KEG/IFBench); allenai's IFBench of 300 "
    "prompts asks for responses and has no pairs to judge",
    "ppe": "ppe-correctness has checkable answers, ppe-preference has people's votes",
    "reward-bench": "rewardbench is the first one, rewardbench2 the second",
    "followbench": "followbench-eval has pairs; FollowBench itself has prompts alone",
}
"""Names that more than one thing goes by."""


def benchmark_names() -> tuple[str, ...]:
    """The names that `open_benchmark` knows, sorted."""
    return BENCHMARKS.names()


def open_benchmark(name: str) -> Benchmark:
    """The benchmark of this name; raises ValueError, in one line, for a name of none or of several."""
    if name in benchmark_names():
        found = BENCHMARKS.load(name)
        if not isinstance(found, Benchmark):
            raise ValueError(f"benchmark {name!r}: {BENCHMARKS.entry(name).value} is no Benchmark")
        return found
    if name.lower() in _SEVERAL:
        raise ValueError(f"{name!r} could be several: {_SEVERAL[name.lower()]}")
    near = get_close_matches(name.lower(), benchmark_names(), n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(benchmark_names())}"
    raise ValueError(f"no benchmark {name!r}; {hint}")
