"""The findings of a step of the check, written one by one, so that a killed step keeps its findings."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MINIATURE = ROOT / "examples/miniature/trained"
WORK = "TIRJUDGE_CHECK_WORK"
"""The environment variable with the folder for models and runs."""


@dataclass(slots=True)
class Findings:
    """The findings of a step, in `STEP.json` of the output folder and on the terminal."""

    step: str
    folder: Path
    found: dict[str, Any] = field(default_factory=dict)
    began: float = field(default_factory=time.perf_counter)

    def note(self, finding: str, /, **values: Any) -> None:
        """Record and print a finding."""
        self.found[finding] = values
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / f"{self.step}.json").write_text(json.dumps(self.found, indent=1, default=str) + "\n")
        seconds = time.perf_counter() - self.began
        print(f"[{seconds:6.1f} s] {self.step}, {finding}: {json.dumps(values, default=str)}", flush=True)


def work_folder(name: str) -> Path:
    """Return an empty folder for the models and runs of a step."""
    import shutil

    folder = Path(os.environ[WORK]) / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def on_gpu() -> bool:
    """Return True if there is a GPU. Without a GPU every step runs with a tiny network."""
    import torch

    return torch.cuda.is_available()


def device() -> str:
    return "cuda" if on_gpu() else "cpu"


def peak(*, reset: bool = False) -> float:
    """Return the most GiB of GPU memory in tensors since the last reset; 0 without a GPU."""
    import torch

    if not on_gpu():
        return 0.0
    most = torch.cuda.max_memory_allocated() / 2**30
    if reset:
        torch.cuda.reset_peak_memory_stats()
    return round(most, 2)


def median_seconds(work: Callable[[], Any], *, repeats: int = 3, warm: int = 1) -> float:
    """Return the median wall seconds of `repeats` calls, after `warm` calls that do not count."""
    import torch

    def wait() -> None:
        if on_gpu():
            torch.cuda.synchronize()

    for _ in range(warm):
        work()
    wait()
    took = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        wait()
        took.append(time.perf_counter() - start)
    return sorted(took)[len(took) // 2]
