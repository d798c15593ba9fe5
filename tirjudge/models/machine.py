"""Memory, disk and arithmetic of this machine, as far as loading a model depends on them."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tirjudge_sandbox.workers.memory_group import own_groups


class ModelUnavailable(ValueError):
    """A model cannot be found, verified, converted or loaded; the message is one line with the remedy."""


TOKENIZER = ("huggingface_hub", "safetensors", "tokenizers", "transformers")
"""Modules of the extra `local` that read a tokenizer."""
LOCAL = (*TOKENIZER, "torch")
"""Modules of the extra `local` that run a model in this process."""


def require(purpose: str, modules: tuple[str, ...] = LOCAL, extra: str = "local") -> None:
    """Raise ModelUnavailable, in one line, if a module of the extra is missing; imports no module."""
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise ModelUnavailable(
            f"{purpose} needs {', '.join(missing)}: pip install 'tirjudge[{extra}]', or give "
            "--base-url, an endpoint"
        )


def cache_folder() -> Path:
    """Return the folder of converted models: `tirjudge/models` in the user's cache folder (XDG)."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "tirjudge" / "models"


MEMORY = Path("/proc/meminfo")
PROCESSOR = Path("/proc/cpuinfo")
_BFLOAT16 = {"avx512_bf16", "amx_bf16", "bf16"}
"""Names of processor features, of x86 and ARM, with bfloat16 products."""
OWN_GROUPS = Path("/proc/self/cgroup")


def check_memory(needed: int, purpose: str, remedy: str) -> None:
    """Raise ModelUnavailable, in one line with the remedy, if `needed` bytes of memory are not free."""
    free = free_memory()
    if free < needed:
        raise ModelUnavailable(
            f"{purpose} needs {gigabytes(needed)} of memory, and {gigabytes(free)} are free: {remedy}"
        )


def check_disk(needed: int, folder: Path, purpose: str, remedy: str) -> None:
    """Raise ModelUnavailable, in one line with the remedy, if `needed` bytes are not free in a folder."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ModelUnavailable(
            f"{purpose} needs {gigabytes(needed)} in {folder}, and {gigabytes(free)} are free: {remedy}"
        )


def free_memory() -> int:
    """Return the bytes of memory that this process may still use, in the machine and its control groups."""
    lines = MEMORY.read_text().splitlines()
    # The file always names it: it exists since Linux 3.14.
    free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    for own, version in own_groups(OWN_GROUPS.read_text()):
        # A container may see the path that its host has for the group, which does not exist in it.
        for group in (own, *own.parents):
            with suppress(OSError, ValueError):  # there is no such group, or its limit is `max`
                left = int((group / version.limit).read_text())
                with suppress(OSError, ValueError):
                    # The usage includes cached files, whose memory the kernel takes back when needed.
                    values = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
                    cached = sum(int(values[name]) for name in version.cached if name in values)
                    left -= int((group / version.usage).read_text()) - cached
                free = min(free, max(left, 0))
    return free


def has_bfloat16() -> bool:
    """Return True if this processor has instructions for products of bfloat16 matrices."""
    with suppress(OSError):
        for line in PROCESSOR.read_text().splitlines():
            name, _, flags = line.partition(":")
            if name.strip() in ("flags", "Features"):  # x86 and ARM
                return not _BFLOAT16.isdisjoint(flags.split())
    return False


def bfloat16_gain() -> float:
    """Measure how many times faster this CPU multiplies matrices in bfloat16 than in float32.

    The matrices are those of a small model's layers, and the best of six products counts. It takes a few
    milliseconds with bfloat16 instructions, and seconds where torch emulates them.
    """
    import torch

    def fastest(dtype: torch.dtype) -> float:
        rows, weights = torch.ones(64, 576, dtype=dtype), torch.ones(576, 1536, dtype=dtype)
        seconds = []
        for _ in range(6):
            start = time.perf_counter()
            rows @ weights
            seconds.append(time.perf_counter() - start)
        return min(seconds)

    return fastest(torch.float32) / fastest(torch.bfloat16)


def gigabytes(size: int) -> str:
    """Format bytes as GB, or as MB below one GB."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def complete(loaded: tuple[Any, Mapping[str, Any]]) -> Any:
    """Return a model that transformers loaded with `output_loading_info`.

    Raises ModelUnavailable if weights are missing, which transformers draws at random.
    """
    model, info = loaded
    if missing := sorted(info["missing_keys"]):
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ModelUnavailable(
            f"the weights {missing[0]}{more} are not in the files: download the model again"
        )
    return model
