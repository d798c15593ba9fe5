"""The machine: versions, speeds of products, copies and disks, and what the sandbox can do there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

from benchmarks.gpu_check.findings import Findings, median_seconds, on_gpu
from tirjudge_sandbox import Program, SandboxUnavailable, open_sandbox_sync

LIBRARIES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets")


def check(findings: Findings) -> None:
    import torch

    note = findings.note
    note(
        "versions",
        python=sys.version.split()[0],
        cuda=torch.version.cuda,
        **{n: version(n) for n in LIBRARIES},
    )
    if on_gpu():
        card = torch.cuda.get_device_properties(0)
        free = torch.cuda.mem_get_info()[0] / 2**30
        note(
            "card",
            name=card.name,
            gib=card.total_memory / 2**30,
            processors=card.multi_processor_count,
            free=free,
        )
    places = [Path(place) for place in ("/dev/shm", "/tmp")]
    note(
        "machine",
        cpus=len(os.sched_getaffinity(0)),
        kernel=os.uname().release,
        **{f"gib free in {place}": shutil.disk_usage(place).free / 2**30 for place in places},
    )
    data = os.urandom(1 << 20) * 256
    for place in places:
        file = place / "gpu_check.bin"
        start = time.perf_counter()
        with file.open("wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
        note(f"write to {place}", gb_per_second=len(data) / (time.perf_counter() - start) / 1e9)
        file.unlink()
    if on_gpu():
        note("ceilings", **ceilings())
    sandbox(findings)


def ceilings() -> dict[str, float]:
    """Return TFLOP/s of a product in bfloat16, and TB/s of a copy on the card, read and written."""
    import torch

    size = 8192
    one, two = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product = median_seconds(lambda: one @ two, repeats=10, warm=3)
    source = torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    copy = median_seconds(lambda: target.copy_(source), repeats=5, warm=2)
    return {
        "bfloat16_tflops": 2 * size**3 / product / 1e12,
        "copy_tb_per_second": 2 * len(source) / copy / 1e12,
    }


def sandbox(findings: Findings) -> None:
    code = "from tirjudge.cli import main; main()"
    words = [sys.executable, "-c", code, "sandbox", "doctor"]
    ran = subprocess.run(words, check=False, capture_output=True, text=True, timeout=120)
    findings.note("sandbox doctor", exit_code=ran.returncode, output=(ran.stdout + ran.stderr)[-1500:])
    try:
        with open_sandbox_sync() as box:
            start = time.perf_counter()
            done = box.run(Program("print(6 * 7)"))
            findings.note("a program", stdout=done.stdout, milliseconds=1e3 * (time.perf_counter() - start))
    except SandboxUnavailable as error:
        findings.note("a program", error=str(error))
