"""`tirjudge train` under `accelerate launch` with the shipped FSDP2 configuration, in two CPU processes."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import PartialState
from accelerate.utils import DistributedType
from safetensors.torch import load_file
from torch.distributed.fsdp import FSDPModule
from trl.trainer.utils import add_fused_lm_head

from tests.training.launching import FLOAT32, launched, take_cpus_for, typed
from tirjudge.storage.json_lines import read_lines
from tirjudge_training import model_folder
from tirjudge_training.distributed.fsdp import sharded_reference
from tirjudge_training.distributed.processes import ALONE, Processes
from tirjudge_training.rl import rollout_engine, training_loop
from tirjudge_training.sft import Sample, SftConfig, train_sft

RECIPES = {"whole": "tir-judge-zero-4b", "lora": "tir-judge-zero-8b"}
"""Models with and without an output layer that shares its weights with the embedding."""
KEYS = ("--set", "rl.sandbox=local", "--set", "rl.learning_rate=1e-3", "--set", "rl.entropy_bonus=0.1")
"""Random weights earn no reward, so that without the entropy bonus there would be no gradient."""
RUNS = {
    name: ("--recipe", recipe, "--shrink", *KEYS, *(("--set", "model.lora.rank=4") if name == "lora" else ()))
    for name, recipe in RECIPES.items()
}
PACKED = {"whole": ("--set", "rl.token_budget=4000"), "lora": ()}
"""Further options of the two processes only, which must not change the result."""
CHECKPOINT = "rl/checkpoints/checkpoint-{}"


ROUNDED = ("--recipe", RECIPES["lora"], "--shrink", *KEYS, "--set", "rl.beta=0.5")
"""A recipe whose reference moves away from the policy, so that the KL divergence is not 0."""
SAMPLES = [Sample((1, 2 + i % 9, 3 + i % 5), (-100, 2 + i % 9, 3 + i % 5)) for i in range(16)]


def main(folder: Path, precision: str, start: Path) -> None:
    """Run each recipe in all launched processes, and once more from its first checkpoint.

    In bfloat16 one recipe is run once, and a stage of SFT.
    """
    take_cpus_for(
        DistributedType.MULTI_GPU
    )  # the type whose model accelerate shards; torch's FSDP2 needs no GPU
    if precision == "bfloat16":
        typed(*ROUNDED, "--output", str(folder / "lora"))
        fine_tuned(start, folder / "sft", Processes.launched())
        return
    training_loop.build_trainer = partial(observed, training_loop.build_trainer, folder)
    for name, options in RUNS.items():
        typed(*options, *PACKED[name], "--output", str(folder / name))
        if PartialState().is_main_process:
            shutil.copytree(folder / name / "rl", folder / name / "uninterrupted")
            shutil.rmtree(folder / name / CHECKPOINT.format(2))
            (folder / name / "rl" / "done.json").unlink()
        PartialState().wait_for_everyone()
        typed(*options, *PACKED[name], "--output", str(folder / name))


def fine_tuned(start: Path, folder: Path, processes: Processes = ALONE) -> None:
    config = SftConfig(batch=4, micro_batch=1, learning_rate=1e-3)
    with processes.folder(folder) as run:
        train_sft(start, run, config, SAMPLES, seed=1, say=lambda line: None, processes=processes)


def observed(build: Callable[..., Any], folder: Path, model: Any, *args: Any, **options: Any) -> Any:
    """Build a trainer and write what this process holds, before and after it shards model and reference."""
    # Tensors without memory of their own have the storage of one number.
    sizes = [weight.untyped_storage().nbytes() for weight in model.parameters()]
    found: dict[str, Any] = {"loaded": sum(size for size in sizes if size > 4)}
    trainer = build(model, *args, **options)
    if trainer.ref_model is not None:
        found["bfloat16"] = reference_in_bfloat16(trainer)
    train = trainer.train

    def trained(**resumed: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            # Turned off, a process adds up whole gradients.
            reduced = FSDPModule.set_requires_gradient_sync
            patch.setattr(
                FSDPModule,
                "set_requires_gradient_sync",
                lambda unit, on, **kw: (found.setdefault("reduced", []).append(on), reduced(unit, on, **kw)),
            )
            train(**resumed)
        models = {"policy": trainer.model, "reference": trainer.ref_model}
        found["units"] = {name: units(model) for name, model in models.items() if model is not None}
        name = f"{Path(trainer.args.output_dir).parts[-3]}-{PartialState().process_index}.json"
        (folder / name).write_text(json.dumps(found))

    trainer.train = trained
    return trainer


def units(model: Any) -> list[str]:
    """Return the modules whose weights are gathered together."""
    return [name for name, module in model.named_modules() if isinstance(module, FSDPModule)]


def reference_in_bfloat16(trainer: Any) -> dict[str, Any]:
    """Make the reference as on GPUs; return what this process holds, and its logprobs next to plain ones."""
    accelerator = trainer.accelerator
    state, plugin = accelerator.state, accelerator.state.fsdp_plugin
    state._mixed_precision = "bf16"
    plugin.set_mixed_precision("bf16", override=True)
    reference = sharded_reference(trainer.model, accelerator, add_fused_lm_head)
    state._mixed_precision, plugin.mixed_precision_policy = "no", None
    ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        logprobs = reference(
            input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids, fused_lm_head=True
        ).log_probs
        plain = model_folder.load(trainer.model.config._name_or_path, dtype="bfloat16")[0](ids).logits
    expected = plain[:, :-1].float().log_softmax(2).gather(2, ids[:, 1:, None])[:, :, 0]
    return {
        "types": sorted({str(weight.dtype) for weight in reference.parameters()}),
        "held": sum(weight.to_local().numel() for weight in reference.parameters()),
        "gap": (logprobs - expected).abs().max().item(),
    }


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same commands in this process and in two launched processes."""
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    for name, options in RUNS.items():
        typed(*options, "--output", str(one / name))
    ran = launched("fsdp2.yaml", FLOAT32, __file__, str(two), "float32", ".")
    assert ran.returncode == 0, ran.stderr[-3000:]
    return one, two


@pytest.fixture(scope="module")
def rounded(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same commands in float32 in this process, and in bfloat16, as shipped, in two processes."""
    one, two = tmp_path_factory.mktemp("exact"), tmp_path_factory.mktemp("rounded")
    typed(*ROUNDED, "--output", str(one / "lora"))
    fine_tuned(tiny_model, one / "sft")
    ran = launched("fsdp2.yaml", (), __file__, str(two), "bfloat16", str(tiny_model))
    assert ran.returncode == 0, ran.stderr[-3000:]
    return one, two


@pytest.mark.slow
def test_products_are_rounded_and_logprobs_are_not(rounded: tuple[Path, Path]) -> None:
    """Logprobs with the eight bits of bfloat16 made the KL divergence 0, and gaps of .016 to the sampler."""
    exact, found = (list(read_lines(folder / "lora/rl/metrics.jsonl")) for folder in rounded)
    assert exact[1]["kl"] > 1e-4
    assert found[1]["kl"] == pytest.approx(exact[1]["kl"], rel=0.05)
    for one, two in zip(exact, found, strict=True):
        assert two["entropy"] == pytest.approx(one["entropy"], rel=1e-3)
        assert torch.tensor(two["entropy"]).bfloat16().item() != two["entropy"]
        assert two["grad_norm"] == pytest.approx(one["grad_norm"], rel=0.01)
        assert 1e-5 < two["sampler_gap"] < 0.01, "the sampler here is in float32, and the trainer is not"


@pytest.mark.slow
def test_the_loss_of_sharded_fine_tuning_is_not_rounded(rounded: tuple[Path, Path]) -> None:
    exact, found = (list(read_lines(folder / "sft/metrics.jsonl")) for folder in rounded)
    for one, two in zip(exact, found, strict=True):
        assert two["loss"] == pytest.approx(one["loss"], rel=2e-3)
        assert two["grad_norm"] == pytest.approx(one["grad_norm"], rel=0.01)


@pytest.mark.slow
def test_no_process_keeps_a_whole_gradient(runs: tuple[Path, Path]) -> None:
    for rank in (0, 1):
        found = json.loads((runs[1] / f"lora-{rank}.json").read_text())
        assert all(found.get("reduced", [True])), "every micro-batch is reduced"


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_recipe_sharded_over_two_processes_has_the_loss_of_one(name: str, runs: tuple[Path, Path]) -> None:
    alone, shared = (list(read_lines(folder / name / "rl" / "metrics.jsonl")) for folder in runs)
    assert len(alone) == len(shared) == 2
    for one, two in zip(alone, shared, strict=True):
        for number in ("loss", "grad_norm", "kl", "entropy", "reward"):
            assert two[number] == pytest.approx(one[number], abs=1e-5), number
        assert one["grad_norm"] > 1e-4
        assert two["sampler_gap"] < 1e-5, "the sampler must use the current weights"


@pytest.mark.slow
def test_the_reference_is_sharded_as_the_policy_and_one_process_reads_the_weights(
    runs: tuple[Path, Path],
) -> None:
    first, second = (json.loads((runs[1] / f"whole-{rank}.json").read_text()) for rank in (0, 1))
    saved = load_file(runs[0] / "whole" / "rl" / "model" / "model.safetensors").values()
    weights = sum(weight.numel() for weight in saved)
    assert (first["loaded"], second["loaded"]) == (4 * weights, 0)
    for found in (first, second):
        assert found["units"]["reference"] == found["units"]["policy"]
        assert {"model.layers.0", "model.layers.1"} < set(found["units"]["reference"])
        assert found["bfloat16"]["types"] == ["torch.bfloat16"]
        assert found["bfloat16"]["gap"] < 0.05
    assert first["bfloat16"]["held"] + second["bfloat16"]["held"] == weights


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_sharded_checkpoint_is_resumed(name: str, runs: tuple[Path, Path]) -> None:
    one, two = runs
    expected = load_file(one / name / "rl" / "model" / "model.safetensors")
    assert (two / name / CHECKPOINT.format(2) / "optimizer_0" / ".metadata").exists(), "shards"
    for stage in ("uninterrupted", "rl"):
        found = load_file(two / name / stage / "model" / "model.safetensors")
        assert found.keys() == expected.keys()
        assert all(torch.allclose(found[key], expected[key], rtol=0, atol=1e-5) for key in expected), stage


def test_a_model_that_is_only_sampled_from_is_in_memory_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No trainer shards the model of a measurement, so that it needs no whole copy beside it."""
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setattr(model_folder, "load", lambda *model, **options: ("model", "tokenizer"))
    for name in ("CopyPolicy", "OwnPolicy"):
        policy = SimpleNamespace(generator=name)
        monkeypatch.setattr(rollout_engine, name, lambda *model, policy=policy, **options: policy)
    trained = rollout_engine.Engine("model", "tokenizer", {})
    measured = rollout_engine.Engine.load("folder", {}, rollout_engine.RolloutConfig())
    assert [str(one.generator) for one in (trained, measured)] == ["CopyPolicy", "OwnPolicy"]


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
