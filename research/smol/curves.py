"""Training curves of run folders as SVG pictures, and what each of their stages cost.

    python -m research.smol.curves runs/smol-0 [runs/smol-1 ...] --output FOLDER

Writes `STAGE.svg` for each stage with metrics, with a line per run, and `costs.md` with hours, tokens per
second and peak memory. A stage whose metrics have no seconds is timed by its files: from its configuration to
its end.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from research.smol.sources import Fields, read_lines

METRICS, DONE, CONFIG = "metrics.jsonl", "done.json", "config.toml"
TITLES: Mapping[str, str] = {
    "loss": "loss",
    "mean_token_accuracy": "token accuracy",
    "reward": "reward",
    "reward/teaches": "share of right verdicts",
    "correct/tir-pairwise": "right, pairs",
    "correct/tir-listwise": "right, lists",
    "correct/tir-pointwise": "right, single responses",
    "reward/right": "share of right verdicts, paid or not",
    "programs/right": "share of right, separating programs",
    "programs/tie": "share of programs that tie",
    "programs/failed": "share of programs that fail",
    "programs/followed": "share of verdicts that follow a program",
    "kl_start": "KL divergence from the start, nats",
    "entropy": "entropy, nats",
    "groups/dropped": "share of groups dropped",
    "tools/calls": "programs per dialogue",
    "tools/error_rate": "share of programs that failed",
    "tokens/model": "tokens written per dialogue",
    "sampler_gap": "sampler gap",
    "gib/process": "memory, GiB",
    "seconds/step": "seconds per step",
}
"""Metrics that are drawn, with the title of the panel."""
_WIDTH, _HEIGHT, _MARGIN, _COLUMNS = 300, 170, 44, 3
_COLOURS = ("#1f5a99", "#c0504d", "#4f8f3a", "#8064a2", "#d08a1d")
"""Colours of the runs; a sixth run begins again with the first."""
_STYLE = """<style>
.paper { fill: #fff } text { fill: #1d1c1a } .frame { fill: none; stroke: #ccc }
@media (prefers-color-scheme: dark) {
.paper { fill: #161717 } text { fill: #e8e6e1 } .frame { stroke: #4a4b4e }
[fill="#1f5a99"] { fill: #6fa8e0 } [fill="#c0504d"] { fill: #e88b88 } [fill="#4f8f3a"] { fill: #86c472 }
[fill="#8064a2"] { fill: #b79ad8 } polyline { opacity: .5 }
polyline[stroke-width="2"] { opacity: 1; filter: brightness(1.6) }
}
</style>"""
"""The colours of paper, text and frames, which follow the reader's choice of a dark page."""
Points = list[tuple[float, float]]
"""The pairs (step, value) of one metric of one run."""


def panels(runs: Sequence[Sequence[Fields]]) -> dict[str, list[Points]]:
    """Return, for each drawn metric that at least two rows of every run have, the points of each run."""
    found = {}
    for name in TITLES:
        curves = [
            [(float(row["step"]), float(row[name])) for row in rows if _is_number(row.get(name))]
            for rows in runs
        ]
        if all(len(points) > 1 for points in curves):
            found[name] = curves
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def picture(title: str, runs: Mapping[str, Sequence[Fields]]) -> str:
    """Return an SVG with one panel per metric: each run's values, and their running mean as a thick line."""
    drawn = panels(list(runs.values()))
    lines = -(-len(drawn) // _COLUMNS)
    width, height = _COLUMNS * _WIDTH, lines * _HEIGHT + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="11">',
        _STYLE,
        f'<rect width="{width}" height="{height}" class="paper"/>',
        f'<text x="12" y="20" font-size="14">{escape(title)}{_legend(list(runs))}</text>',
    ]
    for number, (name, curves) in enumerate(drawn.items()):
        left, top = number % _COLUMNS * _WIDTH, number // _COLUMNS * _HEIGHT + 30
        parts.append(f'<g transform="translate({left},{top})">{_panel(TITLES[name], curves)}</g>')
    return "\n".join([*parts, "</svg>\n"])


def _legend(names: Sequence[str]) -> str:
    """Return the names of the runs in the colours of their lines, for the title."""
    return "".join(
        f'<tspan dx="12" fill="{_colour(number)}">{escape(name)}</tspan>' for number, name in enumerate(names)
    )


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


def _panel(title: str, curves: Sequence[Points]) -> str:
    steps = [step for points in curves for step, _ in points]
    values = [value for points in curves for _, value in points]
    first, last, low, high = min(steps), max(steps), min(values), max(values)
    if high - low < 1e-12:
        low, high = low - 0.5, high + 0.5
    across, down = _WIDTH - _MARGIN - 12, _HEIGHT - 50

    def place(step: float, value: float) -> str:
        x = _MARGIN + across * (step - first) / max(last - first, 1e-12)
        return f"{x:.1f},{20 + down * (high - value) / (high - low):.1f}"

    def line(points: Points, style: str) -> str:
        path = " ".join(place(step, value) for step, value in points)
        return f'<polyline points="{path}" fill="none" {style}/>'

    parts = [
        f'<text x="{_MARGIN}" y="12">{escape(title)}</text>',
        f'<rect x="{_MARGIN}" y="20" width="{across}" height="{down}" class="frame"/>',
        f'<text x="{_MARGIN - 4}" y="28" text-anchor="end">{high:.3g}</text>',
        f'<text x="{_MARGIN - 4}" y="{20 + down}" text-anchor="end">{low:.3g}</text>',
        f'<text x="{_MARGIN}" y="{36 + down}">step {first:.0f}</text>',
        f'<text x="{_MARGIN + across}" y="{36 + down}" text-anchor="end">{last:.0f}</text>',
    ]
    for number, points in enumerate(curves):
        colour = f'stroke="{_colour(number)}"'
        parts.append(line(points, f'{colour} stroke-opacity="0.4" stroke-width="1"'))
        parts.append(line(_running_mean(points), f'{colour} stroke-width="2"'))
    return "".join(parts)


def _running_mean(points: Points) -> Points:
    """Return each step with the mean of its value and up to four values before and after it."""
    means = []
    for i, (step, _) in enumerate(points):
        window = [value for _, value in points[max(0, i - 4) : i + 5]]
        means.append((step, sum(window) / len(window)))
    return means


def cost(stage: Path) -> Fields:
    """Return the hours, CPU hours, tokens per second and peak memory of a stage; None where unknown."""
    rows = read_lines(stage / METRICS)
    done = json.loads((stage / DONE).read_text(encoding="utf-8")) if (stage / DONE).exists() else {}
    seconds = done.get("seconds") or sum(row.get("seconds/step", 0.0) for row in rows) or _by_files(stage)
    generated = sum(row.get("tokens/generated", 0) for row in rows)
    # RL counts the tokens of each batch, SFT the tokens so far.
    trained = sum(row.get("tokens/trained", 0) for row in rows) or (
        rows[-1].get("num_tokens", 0) if rows else 0
    )
    memory = [row["gib/process"] for row in rows if _is_number(row.get("gib/process"))]
    return {
        "stage": str(stage),
        "finished": bool(done),
        "steps": done.get("steps") or _steps(rows),
        "hours": seconds / 3600 if seconds else None,
        "cpu_hours": done["cpu_seconds"] / 3600 if "cpu_seconds" in done else None,
        "tokens_generated": generated,
        "tokens_trained": trained,
        "tokens_per_second": (generated + trained) / seconds if seconds else None,
        "peak_gib": max(memory) if memory else None,
    }


def _steps(rows: Sequence[Fields]) -> int:
    """Return the steps of an unfinished stage: RL has a row for each, SFT for several, with their number."""
    if not rows or "tokens/trained" in rows[-1]:
        return len(rows)
    return int(rows[-1]["step"])


def _by_files(stage: Path) -> float:
    """Return the seconds between the first and the last file of a stage; an interruption counts as work."""
    begun = stage / CONFIG
    ended = stage / DONE if (stage / DONE).exists() else stage / METRICS
    return ended.stat().st_mtime - begun.stat().st_mtime if begun.exists() else 0.0


def table(costs: Sequence[Fields]) -> str:
    """Return the costs as a Markdown table."""
    heads = [
        "stage",
        "steps",
        "hours",
        "CPU hours",
        "tokens generated",
        "tokens trained",
        "tokens/s",
        "peak GiB",
    ]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for one in costs:
        cells = [one["stage"] + ("" if one["finished"] else " (unfinished)"), str(one["steps"])]
        cells += [_number(one["hours"], 2), _number(one["cpu_hours"], 2)]
        cells += [f"{one['tokens_generated']:.0f}", f"{one['tokens_trained']:.0f}"]
        cells += [_number(one["tokens_per_second"], 0), _number(one["peak_gib"], 2)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def main() -> None:
    """Write the pictures of runs, and the table of their costs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="a run folder of `tirjudge train`")
    parser.add_argument("--output", type=Path, required=True, help="the folder for pictures and costs")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    stages: dict[str, dict[str, Path]] = {}
    for run in options.runs:
        # In the order of their work, for the table.
        for file in sorted(run.glob(f"*/{METRICS}"), key=lambda file: file.parent.stat().st_ctime):
            stages.setdefault(file.parent.name, {})[str(run)] = file.parent
    for name, folders in stages.items():
        rows = {run: read_lines(folder / METRICS) for run, folder in folders.items()}
        (options.output / f"{name}.svg").write_text(picture(name, rows), encoding="utf-8")
    costs = table([cost(folder) for folders in stages.values() for folder in folders.values()])
    (options.output / "costs.md").write_text(costs + "\n", encoding="utf-8")
    print(costs)


if __name__ == "__main__":
    main()
