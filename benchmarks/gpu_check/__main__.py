"""A check of training on one GPU, in about eight minutes. On a CPU, tiny networks show that it runs.

    python -m benchmarks.gpu_check --output FOLDER [--only STEP,...] [--budget SECONDS] [--wheels FOLDER]

Steps are processes with limits, in order of value, so that the check can be cut anywhere: no step starts
after `--budget` seconds. Each writes `STEP.json`. `--wheels` installs missing packages from a folder of
wheels, for a machine without network whose Python has torch, transformers, accelerate and peft. Models and
runs are in FOLDER/gpu_check_work, or in TIRJUDGE_CHECK_WORK/gpu_check_work, and are deleted.

| step | seconds | shows |
|---|---|---|
| facts | 30 | speeds of products and copies, versions, what the sandbox can do |
| numerics | 40 | logprobs and gradients: CPU against GPU, sampler against trainer, packed, output layer |
| reinforcement | 60 | the trained miniature: programs, reward, checkpoint, resume |
| sharded | 60 | FSDP2 in a world of one: type of logprobs, sharded resume, moments in host memory |
| kernels | 40 | attention of a training pass: padded, packed with a mask, packed without, shared prompts |
| full | 80 | tokens a second and memory against `--plan`: 1.7 B parameters, all trained |
| lora | 110 | 8 B parameters with an adapter |
| packed | 80 | 1.7 B parameters, all trained, packed rows |
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.gpu_check.findings import WORK

LIMITS = {
    "facts": 90,
    "numerics": 120,
    "reinforcement": 120,
    "sharded": 120,
    "kernels": 90,
    "full": 120,
    "lora": 150,
    "packed": 120,
}
"""The steps, and the seconds after which each is ended."""
PACKAGES = (".", "sandbox", "environments", "training")


def main() -> int:
    """Run the steps; return 1 if one failed, was ended or was left out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--output", type=Path, required=True, help="gets a JSON file per step")
    parser.add_argument("--only", default=",".join(LIMITS), help="steps, separated by commas")
    parser.add_argument("--budget", type=float, default=480, help="seconds after which no step starts")
    parser.add_argument("--wheels", type=Path, help="a folder of wheels to install beside the output first")
    parser.add_argument("--step", choices=LIMITS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        return run(options.step, options.output)
    chosen = options.only.split(",")
    if unknown := [name for name in chosen if name not in LIMITS]:
        parser.error(f"no step {unknown[0]!r}: there are {', '.join(LIMITS)}")
    began = time.perf_counter()
    work = Path(os.environ.get(WORK, options.output)) / "gpu_check_work"
    environment = {**os.environ, **SETTINGS, WORK: str(work)}
    environment["PYTHONPATH"] = search_path(options.output, options.wheels)
    results = {}
    for name in (step for step in LIMITS if step in chosen):
        if time.perf_counter() - began > options.budget:
            results[name] = "left out"
            continue
        words = [
            sys.executable,
            "-m",
            "benchmarks.gpu_check",
            "--step",
            name,
            "--output",
            str(options.output),
        ]
        start = time.perf_counter()
        shutil.rmtree(work, ignore_errors=True)
        try:
            code = subprocess.run(words, check=False, env=environment, timeout=LIMITS[name]).returncode
            ended = "done" if code == 0 else f"exit code {code}"
        except subprocess.TimeoutExpired:
            ended = f"ended after its {LIMITS[name]} s"
        # A step that reached its limit has written the metrics of its finished batches alone.
        for file in work.rglob("metrics.jsonl"):
            shutil.copy(file, options.output / f"{name}.metrics.jsonl")
        results[name] = f"{ended} in {time.perf_counter() - start:.0f} s"
        print(f"== {name}: {results[name]}", flush=True)
    shutil.rmtree(work, ignore_errors=True)
    print("\n".join(f"{name:14} {result}" for name, result in results.items()))
    return int(not all(result.startswith("done") for result in results.values()))


SETTINGS = {
    "PYTHONUNBUFFERED": "1",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
}


def search_path(output: Path, wheels: Path | None) -> str:
    """Return PYTHONPATH for the steps: this checkout, and what was installed from wheels."""
    root = Path(__file__).parents[2]
    places = [str(root / name) for name in PACKAGES]
    if wheels is not None:
        site = output / "site"
        words = [
            "install",
            "-q",
            "--no-index",
            "--no-deps",
            "--no-compile",
            "--upgrade",
            "--target",
            str(site),
        ]
        files = sorted(map(str, wheels.glob("*.whl")))
        subprocess.run([sys.executable, "-m", "pip", *words, *files], check=True)
        places.append(str(site))
    return os.pathsep.join([*places, *filter(None, [os.environ.get("PYTHONPATH")])])


def run(step: str, output: Path) -> int:
    """Run one step in this process."""
    # Imported here: the driver needs the standard library alone.
    from benchmarks.gpu_check import facts, kernels, numerics, shapes, training
    from benchmarks.gpu_check.findings import Findings

    work = {
        "facts": facts.check,
        "numerics": numerics.check,
        "reinforcement": training.reinforcement,
        "sharded": training.sharded,
        "kernels": kernels.check,
        "full": shapes.full,
        "lora": shapes.lora,
        "packed": shapes.packed,
    }[step]
    work(Findings(step, output))
    return 0


if __name__ == "__main__":
    sys.exit(main())
