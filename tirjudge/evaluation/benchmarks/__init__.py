"""Benchmarks of judges by name, with the benchmarks of other packages.

Each member is a `Benchmark`; one module per benchmark says where its rows are and how they are read.

To add one, copy `judgelm.py` (`base.py` describes the fields) and add a line to the table below and to the
table of docs/evaluation.md. `pytest tests/tirjudge/evaluation/test_benchmarks.py` tests what its row in
`benchmark_rows.json` becomes, and `test_evaluation_docs.py`, beside it, prints the line of the documentation.
"""

from __future__ import annotations

from difflib import get_close_matches

from tirjudge.evaluation.benchmarks.base import Benchmark
from tirjudge_sandbox.registry import Plugins

BENCHMARKS = Plugins(
    "tirjudge.benchmarks",
    "benchmark",
    "tirjudge.evaluation.benchmarks",
    {
        "codejudgebench": "codejudgebench:CODEJUDGEBENCH",
        "cw-atomic": "rationale_rm:CW_ATOMIC",
        "followbench-eval": "instruction_pairs:FOLLOWBENCH_EVAL",
        "helpsteer3-atomic": "rationale_rm:HELPSTEER3_ATOMIC",
        "ifbench-agentrm": "instruction_pairs:IFBENCH_AGENTRM",
        "judgebench": "judgebench:JUDGEBENCH",
        "judgelm": "judgelm:JUDGELM",
        "pandalm": "pandalm:PANDALM",
        "plan-rewardbench": "plan_rewardbench:PLAN_REWARDBENCH",
        "ppe-correctness": "ppe:PPE_CORRECTNESS",
        "ppe-preference": "ppe:PPE_PREFERENCE",
        "rewardbench": "rewardbench:REWARDBENCH",
        "rewardbench2": "rewardbench2:REWARDBENCH2",
        "rm-bench": "rm_bench:RM_BENCH",
        "rmb": "rmb:RMB",
    },
)
_AMBIGUOUS = {
    "ifbench": "ifbench-agentrm is the 444 pairs of TIR-Judge (THU-KEG/IFBench); allenai's IFBench of 300 "
    "prompts asks for responses and has no pairs to judge",
    "ppe": "ppe-correctness has checkable answers, ppe-preference has people's votes",
    "reward-bench": "rewardbench is the first one, rewardbench2 the second",
    "followbench": "followbench-eval has pairs; FollowBench itself has only prompts",
}
"""Names that several benchmarks are known by, with an explanation."""


def benchmark_names() -> tuple[str, ...]:
    """Return the names that `open_benchmark` knows, sorted."""
    return BENCHMARKS.names()


def open_benchmark(name: str) -> Benchmark:
    """Return the benchmark of this name. Raises ValueError, in one line, for an unknown or ambiguous name."""
    if name in benchmark_names():
        found = BENCHMARKS.load(name)
        if not isinstance(found, Benchmark):
            raise ValueError(f"benchmark {name!r}: {BENCHMARKS.entry(name).value} is not a Benchmark")
        return found
    if name.lower() in _AMBIGUOUS:
        raise ValueError(f"{name!r} could be several: {_AMBIGUOUS[name.lower()]}")
    near = get_close_matches(name.lower(), benchmark_names(), n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(benchmark_names())}"
    raise ValueError(f"no benchmark {name!r}; {hint}")
