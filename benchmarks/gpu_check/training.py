"""Runs of `tirjudge train`: the trained miniature with programs, and FSDP2 in a world of one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from benchmarks.gpu_check.findings import MINIATURE, ROOT, Findings, on_gpu, work_folder
from examples.miniature.__main__ import write_rows
from tirjudge_training.cli import train

RECIPE = """
description = "A check on a GPU."
[model]
base = "{base}"
enable_thinking = false
{model}
[data]
train = "{train}"
[environments.tir-pairwise]
name = "tir-pairwise"
options = {{ prompts = "mini" }}
[environments.tir-pointwise]
name = "tir-pointwise"
options = {{ prompts = "mini" }}
[environments.tir-listwise]
name = "tir-listwise"
options = {{ prompts = "mini" }}
[rl]
filter = "none"
replacement_rounds = 0
warmup_steps = 0
{rl}
[rl.health]
tool_use = 0
errors = 1
position = 1
"""
"""Groups are not filtered, so that every batch trains on all of its rollouts."""
PROGRAMS = {
    "samples": 8,
    "micro_batch": 64,
    "learning_rate": 1e-5,
    "beta": 0.01,
    "max_tokens": 200,
    "tool_calls": 3,
    "program_cpu_seconds": 1.0,
    "cpu_seconds": 3.0,
    "checkpoint_every": 1,
    "importance_cap": 2.0,
    "steps": 3,
    "groups": 16,
}
SHOWN = (
    *("reward", "tools/calls", "tools/error_rate", "sampler_gap", "kl", "grad_norm", "loss", "seconds/step"),
    *("seconds/generating", "seconds/waiting", "seconds/train", "tokens/generated", "gib/gpu_train"),
)
LAUNCHED = """
import sys
sys.path.insert(0, {root!r})
import torch
if not torch.cuda.is_available():  # accelerate shards no model on a CPU by itself
    from accelerate.utils import DistributedType
    from tests.training.launching import take_cpus_for
    take_cpus_for(DistributedType.MULTI_GPU)
import typer
from tirjudge_training.cli import train
app = typer.Typer()
app.command()(train)
app(sys.argv[1:], standalone_mode=False)
"""
CHECKPOINT = "run/rl/checkpoints/checkpoint-{}"


def metrics(folder: Path) -> list[dict[str, Any]]:
    """Return the batches of a run; none if it has not come so far."""
    file = folder / "run/rl/metrics.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def trained(
    findings: Findings, folder: Path, base: Path, rl: Mapping[str, Any], model: str = ""
) -> list[dict[str, Any]]:
    """Run, or resume, `tirjudge train` on rows of the miniature; return the metrics of its batches."""
    if not (folder / "train.jsonl").exists():
        write_rows(folder, train=rl["groups"] * rl["steps"] + 40, heldout=1, seed=0)
    keys = "\n".join(f"{name} = {json.dumps(value)}" for name, value in rl.items())
    recipe = folder / "recipe.toml"
    recipe.write_text(RECIPE.format(base=base, model=model, train=folder / "train.jsonl", rl=keys))
    try:
        train(recipe=str(recipe), output=folder / "run", assign=[], seed=0)
    except typer.Exit as stopped:
        findings.note("tirjudge train", exit_code=stopped.exit_code)
    return metrics(folder)


def forget(folder: Path, batch: int) -> None:
    """Undo the last batch of a finished run, as if it had been killed before its checkpoint."""
    shutil.rmtree(folder / CHECKPOINT.format(batch), ignore_errors=True)
    (folder / "run/rl/done.json").unlink(missing_ok=True)


def reinforcement(findings: Findings) -> None:
    """Train the miniature with programs, and once more from its checkpoint; with packed rows too."""
    forms = {
        "padded": PROGRAMS,
        "packed": {**PROGRAMS, "token_budget": 8192},
        "moments in host memory": {**PROGRAMS, "offload_moments": True},
    }
    for form, keys in forms.items():
        folder = work_folder(f"reinforcement-{form.split()[0]}")
        rows = trained(findings, folder, MINIATURE, keys)
        for number, row in enumerate(rows):
            findings.note(f"{form}, batch {number}", **{name: row.get(name) for name in SHOWN})
        if form == "padded" and len(rows) == PROGRAMS["steps"]:
            forget(folder, len(rows))
            again = trained(findings, folder, MINIATURE, keys)
            pairs = {
                name: (rows[-1].get(name), again[-1].get(name)) for name in ("reward", "loss", "grad_norm")
            }
            findings.note("resumed", batches=len(again), **pairs)


def sharded(findings: Findings) -> None:
    """FSDP2 as shipped, in one process: a shrunk recipe with a KL reference, a checkpoint, and resumed.

    Where the trainer sees logprobs in bfloat16, `entropy` is a number of eight bits, and a small `kl` is 0.
    """
    import torch

    folder = work_folder("sharded")
    script = folder / "launched.py"
    script.write_text(LAUNCHED.format(root=str(ROOT)))
    sizes = {"rl.learning_rate": 1e-3, "rl.entropy_bonus": 0.1, "rl.beta": 0.5, "rl.offload_moments": "true"}
    words = ["--recipe", "tir-judge-zero-8b", "--shrink", "--set", "rl.sandbox=local"]
    words += [word for name, value in sizes.items() for word in ("--set", f"{name}={value}")]
    for kind in ("run", "resumed"):
        ran = launch(script, [*words, "--output", str(folder / "run")])
        shown = ("loss", "grad_norm", "kl", "entropy", "sampler_gap", "gib/gpu_train")
        rows = metrics(folder)
        findings.note(
            kind,
            exit_code=ran.returncode,
            error=ran.stderr[-1500:] if ran.returncode else None,
            logprobs_in_bfloat16=[
                torch.tensor(row["entropy"]).bfloat16().item() == row["entropy"] for row in rows
            ],
            batches=[{name: row.get(name) for name in shown} for row in rows],
        )
        forget(folder, 2)


def launch(script: Path, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    config = ROOT / "training/tirjudge_training/launch/fsdp2.yaml"
    launcher = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(config)]
    launcher += ["--num_processes", "1", "--main_process_port", "0", str(script)]
    environment = {**os.environ, **({} if on_gpu() else {"CUDA_VISIBLE_DEVICES": ""})}
    return subprocess.run([*launcher, *words], check=False, capture_output=True, text=True, env=environment)
