"""Batches of RL with random weights of published shapes: tokens a second, and memory against the plan.

Rows never end, so that each has `max_tokens` new tokens, and no program runs.
"""

from __future__ import annotations

import gc
import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.findings import MINIATURE, Findings, device, on_gpu, work_folder
from benchmarks.gpu_check.kernels import TINY
from benchmarks.gpu_check.training import trained
from tirjudge_training.model_folder import LoraConfig
from tirjudge_training.run import model_size
from tirjudge_training.run.model_size import SHAPES

KNOWN = "Qwen/Qwen3-4B"
SMALL = {"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28, "num_attention_heads": 16}
"""Qwen3-1.7B's sizes where they differ from those of Qwen3-4B."""
LORA = 'dtype = "bfloat16"\nlora = { rank = 16, merge = false }'
SHOWN = (
    *("seconds/step", "seconds/generating", "seconds/logprobs", "seconds/train", "tokens/generated"),
    *(
        "tokens/trained",
        "sampler_gap",
        "grad_norm",
        "loss",
        "gib/gpu_rollout",
        "gib/gpu_train",
        "gib/gpu_used",
    ),
    "gib/process",
)


@dataclass(frozen=True, slots=True)
class Case:
    """A shape with the batch that it trains on."""

    name: str
    model: str = ""
    """Further keys of the recipe's `[model]`."""
    groups: int = 16
    tokens: int = 192
    micro_batch: int = 8
    token_budget: int | None = None


def full(findings: Findings) -> None:
    run(findings, Case("Qwen/Qwen3-1.7B"))


def lora(findings: Findings) -> None:
    run(findings, Case("Qwen/Qwen3-8B", LORA, groups=8, tokens=128, micro_batch=4))


def packed(findings: Findings) -> None:
    run(findings, Case("Qwen/Qwen3-1.7B", token_budget=16384))


def run(findings: Findings, case: Case) -> None:
    """Train two batches; the first includes compiling kernels."""
    folder = work_folder("shape")
    parameters = write_model(findings, folder / "model", case)
    rl: dict[str, Any] = {
        "samples": 8 if on_gpu() else 2,
        "micro_batch": case.micro_batch if on_gpu() else 2,
        "learning_rate": 1e-6,
        "beta": 0.0,
        "max_tokens": case.tokens if on_gpu() else 24,
        "tool_calls": 0,
        "checkpoint_every": 1000,
        "rollouts_at_once": 256,
        "steps": 2,
        "groups": case.groups if on_gpu() else 2,
    }
    if case.token_budget is not None:
        rl["token_budget"] = case.token_budget
    if case.model:
        rl["importance_cap"] = 2.0
    rows = trained(findings, folder, folder / "model", rl, case.model)
    adapter = LoraConfig(rank=16, merge=False) if case.model else None
    shape = model_size.shape(str(folder / "model"), adapter, "bfloat16" if adapter else None)
    plan = model_size.training_bytes(shape, shards=1, rounded=True, reference=False, sampler="transformers")
    for number, row in enumerate(rows):
        train, generate = (max(row[f"seconds/{phase}"], 1e-9) for phase in ("train", "generating"))
        # Twice forward, since activations are computed again, and backward: 8 operations per parameter and
        # token; under an adapter 6, without the gradients of the weights.
        operations = (6 if adapter else 8) * parameters * row["tokens/trained"]
        findings.note(
            f"batch {number}",
            **{name: row.get(name) for name in SHOWN},
            plan_gib=plan / 2**30,
            sampled_per_second=row["tokens/generated"] / generate,
            trained_per_second=row["tokens/trained"] / (row["seconds/logprobs"] + train),
            training_tflops=operations / train / 1e12,
        )
    shutil.rmtree(folder, ignore_errors=True)


def write_model(findings: Findings, folder: Path, case: Case) -> int:
    """Write a model with random weights and the miniature's tokenizer; return its number of parameters."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    known = json.loads(SHAPES.read_text(encoding="utf-8"))
    known["Qwen/Qwen3-1.7B"] = known[KNOWN] | SMALL
    sizes = known[case.name] if on_gpu() else known[KNOWN] | TINY | {"num_hidden_layers": 2}
    config = AutoConfig.for_model(
        **sizes, max_position_embeddings=40960, eos_token_id=1, pad_token_id=2, bos_token_id=None
    )
    write_tokenizer(folder, sizes["vocab_size"])
    start = time.perf_counter()
    with torch.device(device()):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    parameters: int = model.num_parameters()
    model.save_pretrained(folder)
    del model
    gc.collect()
    if on_gpu():
        torch.cuda.empty_cache()
    name = case.name if on_gpu() else "tiny"
    findings.note("model", name=name, parameters=parameters, seconds=time.perf_counter() - start)
    return parameters


def write_tokenizer(folder: Path, size: int) -> None:
    """Write the miniature's tokenizer with made-up tokens, so that every id of a vocabulary decodes."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        shutil.copy(MINIATURE / name, folder / name)
    content = json.loads((MINIATURE / "tokenizer.json").read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary |= {f"\u0120q{number}": number for number in range(len(vocabulary), size)}
    (folder / "tokenizer.json").write_text(json.dumps(content))
