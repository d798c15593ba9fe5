"""A small run folder as `tirjudge train` leaves it behind after a health check stopped it."""

from __future__ import annotations

import json
from pathlib import Path


def training_run(folder: Path) -> Path:
    """Write a run of four batches with one restart, two checkpoints and a stop; return the folder."""
    stage, heldout = folder / "rl", folder / "heldout-base"
    heldout.mkdir(parents=True)
    for step in (2, 4):
        (stage / "checkpoints" / f"checkpoint-{step}").mkdir(parents=True)
    rows = [
        {
            "step": step,
            "loss": 0.1,
            "kl": 0.01 * step,
            "reward": round(0.1 + 0.1 * step, 2),
            "reward/correct": round(0.2 + 0.2 * step, 2),
            "correct/tir-pairwise": 0.5,
            "groups/dropped": 0.25,
            "programs/right": 0.5,
            "programs/tie": 0.5,
            "gib/process": 1.5,
            "seconds/step": 90.0,
            "tokens/generated": 900,
        }
        for step in range(4)
    ]
    (stage / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    events = [
        {"step": 2, "event": "resumed", "about": "resumed at step 3"},
        {"step": 4, "event": "stopped", "about": "rl stopped at step 4: tool use has collapsed"},
    ]
    (stage / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    accuracy = {"accuracy": {"rate": 0.8, "low": 0.6, "high": 0.9, "n": 20}}
    measured = {"tir-pairwise": {**accuracy, "families": {"contains": accuracy, "": accuracy}}}
    (heldout / "done.json").write_text(json.dumps(measured))
    (folder / "config.toml").write_text('method = "rl"\nseed = 3\n\n[rl]\nsteps = 10\n')
    return folder


def finish(folder: Path) -> Path:
    """Measure the run of `training_run` after its training, and end its stage; return the folder."""
    accuracy = {"rate": 0.9, "low": 0.7, "high": 0.95, "n": 20}
    (folder / "heldout-rl").mkdir()
    (folder / "heldout-rl" / "done.json").write_text(json.dumps({"tir-pairwise": {"accuracy": accuracy}}))
    for name, right in (("base", 16), ("rl", 18)):
        answers = [{"id": f"{n}", "format": "tir-pairwise", "correct": n < right} for n in range(20)]
        path = folder / f"heldout-{name}" / "answers.jsonl"
        path.write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    (folder / "rl" / "done.json").write_text("{}")
    return folder
