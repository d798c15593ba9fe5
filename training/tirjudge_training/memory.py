"""The most memory that a run held: of this process, and of its GPU."""

from __future__ import annotations

import gc
import resource

GIB = 2**30


def forget_peak() -> None:
    """Begin anew with the GPU's peak; torch keeps one for each device."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def gpu_peak(phase: str) -> dict[str, float]:
    """`gib/gpu_PHASE`: the most that this process's tensors took since the last call. Nothing on a CPU."""
    import torch

    if not torch.cuda.is_available():
        return {}
    peak = torch.cuda.max_memory_allocated()
    forget_peak()
    return {f"gib/gpu_{phase}": round(peak / GIB, 3)}


def held() -> dict[str, float]:
    """`gib/process`, the most of the machine's memory so far, and `gib/gpu_used`, by all programs now."""
    import torch

    found = {"gib/process": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB, 3)}
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        found["gib/gpu_used"] = round((total - free) / GIB, 3)
    return found


def release() -> None:
    """Give back what is no longer used: trainers and models hold each other, and torch keeps what was freed.

    An engine that starts next counts what is free on the GPU.
    """
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
