"""Peak memory of this process and its GPU, and releasing of unused GPU memory."""

from __future__ import annotations

import gc
import resource

GIB = 2**30


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


def held() -> dict[str, float]:
    """Return `gib/process`, this process's peak RAM, and `gib/gpu_used`, the GPU memory in use by all."""
    import torch

    # Linux counts ru_maxrss in KiB.
    found = {"gib/process": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB, 3)}
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        found["gib/gpu_used"] = round((total - free) / GIB, 3)
    return found


def release() -> None:
    """Release GPU memory that is no longer used, for an engine that measures the free memory when it starts.

    Trainer and model refer to each other, so only the garbage collector frees them, and torch caches freed
    memory.
    """
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
