"""Training runs for a page: their stages, curves and events, read from the files of the run folder."""

from __future__ import annotations

import fcntl
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from tirjudge.statistics.proportions import paired_difference
from tirjudge.storage.json_lines import read_lines
from tirjudge.storage.settings_text import json_file, toml_value

_METRICS, _DONE, _CONFIG, _EVENTS = "metrics.jsonl", "done.json", "config.toml", "events.jsonl"
_HELDOUT, _ANSWERS = "heldout-", "answers.jsonl"
_LOCK, _CHECKPOINT = ".lock", "checkpoint-"
_RECENT = 10
"""Rows of metrics by whose seconds the time left is estimated."""
_CHARTS: Mapping[str, tuple[str, ...]] = {
    "Reward and its parts": ("reward", "reward/*"),
    "Right by format, share": ("correct/*",),
    "Right by domain, share": ("domain/*",),
    "Right tokens, share": ("mean_token_accuracy",),
    "Last programs, share": (
        "programs/right",
        "programs/wrong",
        "programs/unread",
        "programs/tie",
        "programs/failed",
        "programs/missing",
    ),
    "Right verdicts by last program, share": ("verdicts/*",),
    "Verdicts that follow a counting program, share": ("programs/followed",),
    "Loss": ("loss",),
    "Lengths, tokens per response": ("tokens/model", "tokens/sandbox", "tokens/longest"),
    "Entropy, nats per token": ("entropy",),
    "KL divergence": ("kl", "kl_start"),
    "Difference of sampler and trainer, logprobs": ("sampler_gap",),
    "Tokens by that difference, share": ("sampler_gap/*",),
    "Clipped tokens, share": ("clipped_low", "clipped_high"),
    "Programs per response": ("tools/calls",),
    "Programs that failed, share": ("tools/error_rate",),
    "Groups dropped, share": ("groups/dropped",),
    "Ends of dialogues, share": ("stop/*",),
    "Time, share of a step": ("share/*",),
    "Seconds per step": ("seconds/rollout", "seconds/logprobs", "seconds/train", "seconds/step"),
    "Memory, GiB": ("gib/*",),
    "Gradient norm": ("grad_norm",),
    "Learning rate": ("learning_rate",),
}
"""Charts of a stage by title, with their metrics; `*` is any ending."""
_MOST_SERIES, _LONGEST_NAME = 40, 200
"""Curves of a chart under one `*`, and characters of a metric's name; further ones are left out."""
_WATCHED = ("model.base", "method", "seed", "rl.steps", "rl.groups", "rl.samples", "rl.loss", "description")
"""Settings that are shown first."""


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A training run, read once."""

    name: str
    summary: Mapping[str, Any]
    """Stages, events and held-out accuracy, as JSON values."""
    charts: Mapping[str, Any]
    """The curves of every stage with their marks, as JSON values."""


def is_training_run(folder: Path) -> bool:
    """Return True if a folder, or one up to two levels below it, has metrics or measurements."""
    return any(True for _ in _stages(folder))


def _stages(folder: Path, names: Sequence[str] = (_METRICS, _DONE)) -> Iterator[Path]:
    """Yield the folders in a run that have one of these files, in the order in which the stages began."""
    found = {
        file.parent
        for name in names
        for pattern in (name, f"*/{name}", f"*/*/{name}")
        for file in folder.glob(pattern)
        if file.is_file()
    }
    # A stage writes its settings when it begins.
    files = {stage: stage / _CONFIG if (stage / _CONFIG).exists() else stage for stage in found}
    yield from sorted(found, key=lambda stage: (files[stage].stat().st_mtime, str(stage)))


def read_training_run(folder: Path) -> TrainingRun:
    """Read a run folder of `tirjudge train`, or one of its stages, finished or not.

    Raises OSError for files that cannot be read, and ValueError, in one line, for metrics that are no JSON.
    """
    stages = [_stage(stage, folder) for stage in _stages(folder)]
    measured, going = _measured(folder), is_going_on(folder)
    curves = [stage for stage in stages if stage["charts"]]
    summary = {
        "name": folder.resolve().name,
        "settings": _settings(folder),
        "stages": [{name: value for name, value in one.items() if name != "charts"} for one in stages],
        "events": [{"stage": one["name"], **event} for one in stages for event in one["events"]],
        "measured": measured,
        "gains": _gains(folder, measured),
        "going_on": going,
        "progress": _progress(folder) if going or any(not one["finished"] for one in curves) else None,
    }
    charts = {
        "stages": [{"name": one["name"], "marks": one["marks"], "charts": one["charts"]} for one in curves]
    }
    return TrainingRun(folder.resolve().name, summary, charts)


def _stage(stage: Path, run: Path) -> dict[str, Any]:
    rows = list(read_lines(stage / _METRICS))
    done = _done(stage)
    seconds = _number(done.get("seconds")) or sum(_number(row.get("seconds/step")) or 0 for row in rows)
    generated = sum(_number(row.get("tokens/generated")) or 0 for row in rows)
    trained = sum(_number(row.get("tokens/trained")) or 0 for row in rows)
    memory = [value for row in rows if (value := _number(row.get("gib/process"))) is not None]
    # RL counts its batches from 0; people count steps from 1.
    offset = 1 if rows and rows[0].get("step") == 0 else 0
    checkpoints = sorted(
        int(number)
        for path in (stage / "checkpoints").glob(f"{_CHECKPOINT}*")
        if (number := path.name.removeprefix(_CHECKPOINT)).isdecimal() and path.is_dir()
    )
    events = _events(stage)
    marks = [{"step": step, "kind": "checkpoint", "about": "checkpoint"} for step in checkpoints]
    return {
        "name": "." if stage == run else str(stage.relative_to(run)),
        "finished": (stage / _DONE).exists(),
        "steps": len(rows) and int(_number(rows[-1].get("step")) or 0) + offset,
        "seconds": seconds or None,
        "tokens_per_second": (generated + trained) / seconds if seconds and generated + trained else None,
        "peak_gib": max(memory) if memory else None,
        "checkpoints": checkpoints,
        "last": {name: _number(rows[-1].get(name)) for name in ("reward", "reward/teaches", "loss") if rows},
        "events": events,
        "marks": sorted([*marks, *events], key=lambda mark: mark["step"]),
        "charts": _charts(rows, offset),
    }


def _charts(rows: Sequence[Mapping[str, Any]], offset: int) -> list[dict[str, Any]]:
    """Return the curves that at least one row has; a metric that a row lacks is null."""
    names = [
        name for name in dict.fromkeys(name for row in rows for name in row) if len(name) <= _LONGEST_NAME
    ]
    charts = []
    for title, wanted in _CHARTS.items():
        found = {name: [_number(row.get(name)) for row in rows] for name in _matching(names, wanted)}
        series = {name: values for name, values in found.items() if set(values) != {None}}
        if series:
            steps = [int(_number(row.get("step")) or 0) + offset for row in rows]
            charts.append({"title": title, "steps": steps, "series": series})
    return charts


def _matching(names: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Return the names that are wanted; those that are wanted by their whole name come first."""
    starts = tuple(one[:-1] for one in wanted if one.endswith("*"))
    whole = [name for name in names if name in wanted]
    others = (name for name in names if starts and name.startswith(starts) and name not in wanted)
    return [*whole, *islice(others, _MOST_SERIES)]


def _events(stage: Path) -> list[dict[str, Any]]:
    """Return restarts, health stops and changed settings, with the step after which they happened."""
    events = []
    for event in read_lines(stage / _EVENTS):
        step = _number(event.get("step"))
        if step is not None:
            kind = str(event.get("event"))
            events.append({"step": int(step), "kind": kind, "about": str(event.get("about") or kind)})
    return events


def _measured(folder: Path) -> dict[str, Any]:
    """Return held-out accuracy: by format, and by family, for every measurement in order."""
    tables: dict[str, dict[str, dict[str, Any]]] = {"format": {}, "family": {}}
    names = []
    for stage in _stages(folder):
        done, name = _done(stage), stage.name.removeprefix(_HELDOUT)
        formats = {
            kind: found
            for kind, found in done.items()
            if isinstance(found, dict) and isinstance(found.get("accuracy"), dict)
        }
        if not formats:
            continue
        names.append(name)
        for kind, found in formats.items():
            tables["format"].setdefault(kind, {})[name] = _accuracy(found["accuracy"])
            families = found.get("families")
            for family, one in families.items() if isinstance(families, dict) else ():
                if family and isinstance(one, dict) and isinstance(one.get("accuracy"), dict):
                    row = tables["family"].setdefault(f"{family}, {kind}", {})
                    row[name] = _accuracy(one["accuracy"])
    return {"names": names, "tables": tables}


def _gains(folder: Path, measured: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the first and the last accuracy of each format, and their difference with its interval.

    A format that was measured once has only a last one.
    """
    found = []
    for name, cells in measured["tables"]["format"].items():
        known = [(when, cells[when]) for when in measured["names"] if when in cells]
        (first, before), (last, after) = known[0], known[-1]
        several = len(known) > 1 and None not in (before["value"], after["value"])
        found.append(
            {
                "format": name,
                "after": after | {"name": last},
                "before": before | {"name": first} if several else None,
                "gain": after["value"] - before["value"] if several else None,
                "paired": _paired(folder, first, last, name) if several else None,
            }
        )
    return found


def _paired(folder: Path, first: str, last: str, format: str) -> dict[str, Any] | None:
    """Return the 95 % interval of the change of the tasks that both measurements answered; None without any.

    It is that of Agresti and Min for matched pairs.
    """
    before, after = (_answers(folder / f"{_HELDOUT}{name}" / _ANSWERS, format) for name in (first, last))
    both = before.keys() & after.keys()
    if not both:
        return None
    gained, lost = (sum(after[id] is now and before[id] is not now for id in both) for now in (True, False))
    _, (low, high) = paired_difference(gained, lost, len(both))
    return {"low": low, "high": high, "n": len(both), "gained": gained, "lost": lost}


def _answers(file: Path, format: str) -> dict[str, bool]:
    """Return whether each task of a format was answered right; tasks without an outcome are left out."""
    return {
        str(row.get("id")): right
        for row in read_lines(file)
        if row.get("format") == format and isinstance(right := row.get("correct"), bool)
    }


def is_going_on(folder: Path) -> bool:
    """Return True while a process is training in a run folder: it holds the lock of the folder or a stage."""
    return any(map(_is_locked, [folder / _LOCK, *folder.glob(f"*/{_LOCK}"), *folder.glob(f"*/*/{_LOCK}")]))


def _is_locked(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _progress(folder: Path) -> dict[str, Any] | None:
    """Return how far the last stage is: its step, of how many, and the seconds that are left.

    A stage that has begun and has no metrics yet is at step 0.
    """
    stages = [
        one
        for one in _stages(folder, (_METRICS, _CONFIG))
        if (one / _METRICS).exists() or not (one == folder or (one / _DONE).exists())
    ]
    if not stages:
        return None
    stage = stages[-1]
    name = "" if stage == folder else str(stage.relative_to(folder))
    rows = list(read_lines(stage / _METRICS))
    if not rows:
        return {"stage": name, "step": 0, "total": None, "seconds_left": None}
    # RL counts its batches from 0; people count steps from 1.
    step = int(_number(rows[-1].get("step")) or 0) + (rows[0].get("step") == 0)
    total = _total(folder, stage, rows[-1], step)
    recent = [one for row in rows[-_RECENT:] for one in (_step_seconds(row),) if one is not None]
    left = None
    if total is not None and recent:
        left = max(0, total - step) * sum(recent) / len(recent)
    return {"stage": name, "step": step, "total": total, "seconds_left": left}


def _step_seconds(row: Mapping[str, Any]) -> float | None:
    seconds = _number(row.get("seconds/step"))
    return _number(row.get("seconds/mean_step")) if seconds is None else seconds


def _total(folder: Path, stage: Path, last: Mapping[str, Any], step: int) -> int | None:
    """Return the steps of a stage: those of RL by the recipe, and of fine-tuning by its epochs."""
    settings = _settings(folder)
    steps, epoch = _number(_parsed(settings.get("rl.steps"))), _number(last.get("epoch"))
    if epoch:
        epochs = _number(_parsed(settings.get(f"{stage.name}.sft.epochs") or settings.get("sft.epochs")))
        return None if epochs is None else max(step, round(step * epochs / epoch))
    return max(step, int(steps)) if steps else None


def _parsed(text: str | None) -> Any:
    try:
        return json.loads(text or "null")
    except ValueError:
        return None


def _accuracy(found: Mapping[str, Any]) -> dict[str, Any]:
    n = _number(found.get("n"))
    parts = {"value": "rate", "low": "low", "high": "high"}
    return {
        "n": int(n or 0),
        **{part: _number(found.get(name)) if n else None for part, name in parts.items()},
    }


def _done(stage: Path) -> dict[str, Any]:
    try:
        done = json_file(stage / _DONE)
    except (OSError, ValueError, RecursionError):
        return {}
    return done if isinstance(done, dict) else {}


def _settings(folder: Path) -> dict[str, str]:
    """Return the recipe's settings as `table.key`, the most telling ones first."""
    try:
        recipe = toml_value((folder / _CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    flat = dict(_flat(recipe, ""))
    first = {name: flat[name] for name in _WATCHED if name in flat}
    return first | flat


def _flat(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        elif value not in ("", []):
            yield f"{prefix}{key}", value if isinstance(value, str) else json.dumps(value, default=str)


def _number(value: Any) -> float | None:
    """Return a finite number; None for everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # JSON has integers of any size
        return None
    return number if math.isfinite(number) else None
