"""Coverage of the intervals and type I error of the tests that `tirjudge score` and `compare` print.

`python -m benchmarks.coverage` simulates runs whose true figures are known, and prints for each kind of
figure the share of intervals that contain the truth, and of tests that reject a true null. `--repeats` is the
number of simulated runs behind each number. Where the command line prints no interval, the share of runs with
one is given.
"""

from __future__ import annotations

import argparse
import json
import sys

from benchmarks.coverage import cases, measured


def main(arguments: list[str] | None = None) -> int:
    """Print a table; return 1 if a share is out of bounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    found = []
    for case in cases():
        if options.only in case.name:
            found.append(measured(case, options.repeats, options.seed))
            one = found[-1]
            if not options.json:
                mark = "" if one.holds() else "  OUT OF BOUNDS"
                what = "rejected" if one.is_test else "covered"
                print(f"| {one.name} | {one.printed:.2f} | {what} {one.covered:.3f}{mark} |", flush=True)
    if options.json:
        print(json.dumps([vars(one) | {"holds": one.holds()} for one in found], indent=2))
    return 0 if all(one.holds() for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
