"""Training curves of a run folder as SVG pictures, and what each of its stages cost.

    python -m research.smol.curves runs/smol-0 --output FOLDER

Writes `STAGE.svg` for each stage with metrics, and `costs.md` with hours, tokens per second and peak memory.
A stage whose metrics have no seconds is timed by its files: from its configuration to its end.
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
    "reward/correct": "share of right verdicts",
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


def panels(rows: Sequence[Fields]) -> dict[str, list[tuple[float, float]]]:
    """Return the points (step, value) of each drawn metric that at least two rows have."""
    found = {}
    for name in TITLES:
        values = [(float(row["step"]), float(row[name])) for row in rows if _is_number(row.get(name))]
        if len(values) > 1:
            found[name] = values
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def picture(title: str, rows: Sequence[Fields]) -> str:
    """Return an SVG with one panel per metric: the values, and their running mean as a thick line."""
    drawn = panels(rows)
    lines = -(-len(drawn) // _COLUMNS)
    width, height = _COLUMNS * _WIDTH, lines * _HEIGHT + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="12" y="20" font-size="14">{escape(title)}</text>',
    ]
    for number, (name, points) in enumerate(drawn.items()):
        left, top = number % _COLUMNS * _WIDTH, number // _COLUMNS * _HEIGHT + 30
        parts.append(f'<g transform="translate({left},{top})">{_panel(TITLES[name], points)}</g>')
    return "\n".join([*parts, "</svg>\n"])


def _panel(title: str, points: Sequence[tuple[float, float]]) -> str:
    steps, values = [step for step, _ in points], [value for _, value in points]
    low, high = min(values), max(values)
    if high - low < 1e-12:
        low, high = low - 0.5, high + 0.5
    across, down = _WIDTH - _MARGIN - 12, _HEIGHT - 50

    def place(step: float, value: float) -> str:
        x = _MARGIN + across * (step - steps[0]) / max(steps[-1] - steps[0], 1e-12)
        return f"{x:.1f},{20 + down * (high - value) / (high - low):.1f}"

    def line(shown: Sequence[float], style: str) -> str:
        path = " ".join(place(step, value) for step, value in zip(steps, shown, strict=True))
        return f'<polyline points="{path}" fill="none" {style}/>'

    return "".join(
        [
            f'<text x="{_MARGIN}" y="12">{escape(title)}</text>',
            f'<rect x="{_MARGIN}" y="20" width="{across}" height="{down}" fill="none" stroke="#ccc"/>',
            f'<text x="{_MARGIN - 4}" y="28" text-anchor="end">{high:.3g}</text>',
            f'<text x="{_MARGIN - 4}" y="{20 + down}" text-anchor="end">{low:.3g}</text>',
            f'<text x="{_MARGIN}" y="{36 + down}">step {steps[0]:.0f}</text>',
            f'<text x="{_MARGIN + across}" y="{36 + down}" text-anchor="end">{steps[-1]:.0f}</text>',
            line(values, 'stroke="#9cc3e6" stroke-width="1"'),
            line(_running_mean(values), 'stroke="#1f5a99" stroke-width="2"'),
        ]
    )


def _running_mean(values: Sequence[float]) -> list[float]:
    """Return the mean of each value and up to four before and after it."""
    windows = [values[max(0, i - 4) : i + 5] for i in range(len(values))]
    return [sum(window) / len(window) for window in windows]


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
        "stage": stage.name,
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
    """Write the pictures and the table of costs of a run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="a run folder of `tirjudge train`")
    parser.add_argument("--output", type=Path, required=True, help="the folder for pictures and costs")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    stages = sorted(
        (file.parent for file in options.run.glob(f"*/{METRICS}")), key=lambda stage: stage.stat().st_ctime
    )
    for stage in stages:
        text = picture(f"{options.run.name}: {stage.name}", read_lines(stage / METRICS))
        (options.output / f"{stage.name}.svg").write_text(text, encoding="utf-8")
    costs = table([cost(stage) for stage in stages])
    (options.output / "costs.md").write_text(costs + "\n", encoding="utf-8")
    print(costs)


if __name__ == "__main__":
    main()
