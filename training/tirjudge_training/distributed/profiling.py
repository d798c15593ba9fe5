"""Time and peak memory of the phases of a generation batch."""

from __future__ import annotations

import ctypes
import gc
import resource
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

GIB = 2**30


class PhaseTimer:
    """Times consecutive phases; the first one starts at construction."""

    def __init__(self) -> None:
        self.parts: dict[str, tuple[float, float]] = {}
        """Wall seconds and CPU seconds of this process by phase, rounded to milliseconds."""
        self._began = self._now()

    def end(self, part: str) -> None:
        """End the current phase, which gets the name `part`, and start the next.

        Phases of the same name are added up.
        """
        began, self._began = self._began, self._now()
        before = self.parts.get(part, (0.0, 0.0))
        wall, cpu = (
            round(known + now - then, 3) for known, now, then in zip(before, self._began, began, strict=True)
        )
        self.parts[part] = wall, cpu

    @staticmethod
    def _now() -> tuple[float, float]:
        return time.perf_counter(), time.process_time()


def times(every: Sequence[Mapping[str, tuple[float, float]]]) -> dict[str, float]:
    """Return the timings for `metrics.jsonl`: wall seconds of the first process, CPU seconds of all."""
    first = every[0]
    return {
        **{f"seconds/{part}": wall for part, (wall, _) in first.items()},
        "seconds/step": round(sum(wall for wall, _ in first.values()), 3),
        **{f"cpu_seconds/{part}": round(sum(parts[part][1] for parts in every), 3) for part in first},
    }


def shares_of_time(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return the shares of wall time spent generating, waiting for programs alone, and training.

    Programs run while other rollouts generate, so only time in which no token was computed counts as theirs.
    Training includes the trainer's passes that only compute logprobs. The rest belongs to none of the three:
    weight synchronisation, scoring, logging.
    """
    total = max(seconds["seconds/step"], 1e-9)
    training = seconds["seconds/logprobs"] + seconds["seconds/train"]
    return {
        "share/generation": seconds["seconds/generating"] / total,
        "share/sandbox": seconds["seconds/waiting"] / total,
        "share/training": training / total,
    }


def forget_peak() -> None:
    """Reset the GPU's peak memory; torch keeps one per device."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def gpu_peak(phase: str) -> dict[str, float]:
    """Return `gib/gpu_PHASE`, the peak memory of our tensors since the last call; empty on a CPU."""
    import torch

    if not torch.cuda.is_available():
        return {}
    peak = torch.cuda.max_memory_allocated()
    forget_peak()
    return {f"gib/gpu_{phase}": round(peak / GIB, 3)}


def memory_in_use() -> dict[str, float]:
    """Return this process's RAM, at its peak and now, and the GPU memory in use by all, in GiB."""
    import torch

    # Linux counts ru_maxrss in KiB.
    found = {
        "gib/process": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB, 3),
        "gib/resident": round(_resident() / GIB, 3),
    }
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        found["gib/gpu_used"] = round((total - free) / GIB, 3)
    return found


def return_free_memory() -> None:
    """Return freed memory that glibc keeps to the system; else memory grows with every batch.

    Batches differ in shape, and the generator's thread has a separate allocation arena, so large tensors
    rarely fit where other tensors were freed.
    """
    with suppress(OSError, AttributeError):  # another C library has no such function
        ctypes.CDLL(None).malloc_trim(0)


def _resident() -> int:
    """Return the bytes of RAM in use by this process; 0 where Linux's /proc is missing."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return 0


def release() -> None:
    """Release unused memory, since the next engine measures the free memory of a GPU.

    Trainer and model refer to each other, so only the garbage collector frees both, and torch and glibc keep
    freed memory.
    """
    gc.collect()
    return_gpu_cache()
    return_free_memory()


def return_gpu_cache() -> None:
    """Return GPU memory that torch keeps for later tensors and an engine such as vLLM cannot use."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
