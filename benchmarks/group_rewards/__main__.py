"""Measure group rewards: `simulation` with a noisy judge of known accuracy, `training` with a real one.

    python -m benchmarks.group_rewards simulation --groups 500
    python -m benchmarks.group_rewards training --calls 168 --seeds 3 --output FOLDER

`training` gives every method the same number of judge calls, and measures the share of constraints that the
policy keeps by the constraints' own checks, which the policy's reward never sees.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import defaultdict
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from scipy.stats import t

from benchmarks.group_rewards.simulation import simulate
from examples.miniature import TRAINED
from tirjudge.statistics import Proportion

RESULTS = "runs.jsonl"


def main(words: Sequence[str] | None = None) -> int:
    """Run the measurement that the command line names."""
    options = _parser().parse_args(words)
    if options.what == "simulation":
        simulate(options.sizes, options.accuracies, options.groups, options.seed, print)
        return 0
    try:
        _train(options)
    except ValueError as error:
        print(f"benchmarks.group_rewards: {error}", file=sys.stderr)
        return 2
    return 0


def _train(options: argparse.Namespace) -> None:
    """Run what is not in the file of results yet, seed by seed, so that an interrupted series goes on."""
    from benchmarks.group_rewards.training import Plan, run, warm_policy
    from tirjudge import Judge

    options.output.mkdir(parents=True, exist_ok=True)
    file = options.output / RESULTS
    kept = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    done = {(one["method"], one["seed"], one["calls"]) for one in kept}
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        missing = [name for name in options.methods if (name, seed, options.calls) not in done]
        if not missing:
            continue
        # One warm-up for all methods of a seed: they start from the same policy.
        policy, tokenizer = warm_policy(seed, options.warm_up_steps)
        with Judge(options.judge, max_tokens=options.judge_tokens) as judge:
            for method in missing:
                plan = Plan(
                    method=method,
                    seed=seed,
                    calls=options.calls,
                    group_size=options.group_size,
                    learning_rate=options.learning_rate,
                    warm_up_steps=options.warm_up_steps,
                    prompts=options.prompts,
                )
                kept.append(run(plan, judge, policy=(deepcopy(policy), tokenizer)))
                with file.open("a") as lines:
                    lines.write(json.dumps(kept[-1]) + "\n")
    print("\n".join(table(kept)))


def table(runs: Sequence[dict[str, Any]]) -> list[str]:
    """Return a Markdown table with a line per method, from all seeds of it.

    The share after training has Wilson's interval over the prompts of all seeds.
    """
    by_method: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for run in runs:
        by_method[run["method"]].append(run)
    lines = [
        "| method | steps | calls | constraints kept, before | after | gain, paired by seed | seeds |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for method, found in by_method.items():
        ends = [(run["curve"][0]["kept"], run["curve"][-1]["kept"]) for run in found]
        calls = found[0]["curve"][-1]["calls"]
        before, prompts = fmean(start for start, _ in ends), sum(run["prompts"] for run in found)
        kept = sum(run["curve"][-1]["kept"] * run["prompts"] for run in found)
        after = Proportion(round(kept), prompts)
        gain = interval([end - start for start, end in ends])
        lines.append(
            f"| {method} | {found[0]['steps']} | {calls} | {before:.1%} | {after} | {gain} | {len(ends)} |"
        )
    return lines


def interval(gains: Sequence[float]) -> str:
    """Return the mean with Student's 95 % interval over seeds, in percentage points.

    Without three seeds there is no useful interval: the gain of each seed is returned instead.
    """
    mean = fmean(gains)
    if len(gains) < 3:
        return ", ".join(f"{100 * gain:+.1f}" for gain in gains)
    half = float(t.ppf(0.975, len(gains) - 1)) * stdev(gains) / math.sqrt(len(gains))
    return f"{100 * mean:+.1f} [{100 * (mean - half):+.1f}, {100 * (mean + half):+.1f}]"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="what", required=True)
    noisy = commands.add_parser("simulation", help="rank correlation with a judge of known accuracy")
    noisy.add_argument("--sizes", type=int, nargs="+", default=[8, 16])
    noisy.add_argument("--accuracies", type=float, nargs="+", default=[0.65, 0.8, 0.95])
    noisy.add_argument("--groups", type=int, default=500, help="groups per line")
    noisy.add_argument("--seed", type=int, default=0)
    train = commands.add_parser("training", help="a policy trained by GRPO at an equal number of judge calls")
    train.add_argument("--methods", nargs="+", default=["round-robin", "swiss", "knockout", "pivot"])
    train.add_argument("--calls", type=int, default=168, help="judge calls of one training")
    train.add_argument("--seeds", type=int, default=3)
    train.add_argument("--first-seed", type=int, default=0)
    train.add_argument("--group-size", type=int, default=8)
    train.add_argument("--learning-rate", type=float, default=5e-4)
    train.add_argument("--warm-up-steps", type=int, default=150)
    train.add_argument("--prompts", type=int, default=200, help="prompts of the verifier")
    train.add_argument("--judge", default=str(TRAINED), help="a model; the default is the miniature")
    train.add_argument("--judge-tokens", type=int, default=200)
    train.add_argument("--output", type=Path, required=True, help=f"the folder for {RESULTS}")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
