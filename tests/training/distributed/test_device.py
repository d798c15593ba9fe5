"""The settings of a GPU, tested on a CPU, which also supports bfloat16 and activation checkpointing."""

from __future__ import annotations

import gc
import json
import math
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import load_file
from transformers import Lfm2Config

from tests.training.conftest import ENVIRONMENTS, source
from tests.training.miniature import MINI, assignments
from tirjudge.generation.local.transformers import TransformersGenerator
from tirjudge.storage.durable_files import RunFolder
from tirjudge.storage.json_lines import JsonObject, read_lines
from tirjudge_sandbox import open_sandbox
from tirjudge_training import model_folder, sft
from tirjudge_training.data.base import Data
from tirjudge_training.distributed import device
from tirjudge_training.distributed.checkpoints import full_weights
from tirjudge_training.distributed.device import Device, moments_on_host, weights_dtype
from tirjudge_training.distributed.processes import Processes
from tirjudge_training.distributed.profiling import memory_in_use
from tirjudge_training.methods import pipeline_of
from tirjudge_training.model_folder import LoraConfig
from tirjudge_training.recipe import Recipe
from tirjudge_training.recipe_file import BadRecipe, load
from tirjudge_training.rl import rollout_engine, stage_trainer
from tirjudge_training.rl.config import RlConfig
from tirjudge_training.rl.rollout_engine import Engine, RolloutConfig, pool_options
from tirjudge_training.rl.training_loop import train_rl
from tirjudge_training.run import context, preflight
from tirjudge_training.run.context import data_of
from tirjudge_training.run.plan import NoRows
from tirjudge_training.run.preflight import check
from tirjudge_training.run.run import _done as run_stage
from tirjudge_training.stages.base import Run, Size, Stage
from tirjudge_training.weight_sync import same_process

CONFIG = RlConfig(
    steps=2,
    groups=4,
    samples=4,
    optimizer_steps=2,
    micro_batch=4,
    length_buckets=2,
    beta=0.01,
    importance_cap=2.0,
    learning_rate=1e-3,
    max_tokens=60,
    filter="none",
)
HALF = Device("cpu", autocast="bfloat16", checkpointing=True)


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (device, model_folder, same_process, stage_trainer, sft):
        monkeypatch.setattr(module, "current_device", lambda: HALF)


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> set[tuple[bool, torch.dtype]]:
    """Return (gradient kept, type) of every product of a query projection."""
    seen: set[tuple[bool, torch.dtype]] = set()
    forward = torch.nn.Linear.forward

    def watched(self: torch.nn.Linear, value: torch.Tensor) -> torch.Tensor:
        product = forward(self, value)
        seen.add((torch.is_grad_enabled(), product.dtype))
        return product

    monkeypatch.setattr(torch.nn.Linear, "forward", watched)
    return seen


def reinforced(
    start: Path, folder: Path, lora: LoraConfig | None = None, config: RlConfig = CONFIG
) -> list[dict[str, Any]]:
    with RunFolder(folder) as run:
        model = train_rl(
            start,
            run,
            config,
            lora=lora,
            environments=ENVIRONMENTS,
            source=source,
            seed=1,
            say=lambda line: None,
        )
    # The property that says so has another name in older versions of transformers.
    checkpointing = any(getattr(layer, "gradient_checkpointing", False) for layer in model.modules())
    assert checkpointing == stage_trainer.current_device().checkpointing
    model_folder.save(folder / "model", model, start=str(start))
    return list(read_lines(folder / "metrics.jsonl"))


@pytest.mark.slow
@pytest.mark.parametrize("lora", [LoraConfig(rank=4), None], ids=["lora", "all weights"])
def test_policy_and_trainer_compute_in_bfloat16_over_float32_weights(
    lora: LoraConfig | None,
    tiny_model: Path,
    tmp_path: Path,
    as_on_a_gpu: None,
    products: set[tuple[bool, torch.dtype]],
) -> None:
    rows = reinforced(tiny_model, tmp_path, lora)
    assert {kind for _, kind in products} == {torch.bfloat16}
    assert {kept for kept, _ in products} == {True, False}
    for row in rows:
        assert math.isfinite(row["loss"])
        assert row["grad_norm"] > 0
        # There is no lower bound: some processors round both passes alike. `products` asserts the type.
        assert row["sampler_gap"] < 0.2
        shares = [row[f"sampler_gap/above_{least}"] for least in (0.001, 0.01, 0.1, 1)]
        assert shares == sorted(shares, reverse=True)
        assert [share > 0 for share in shares] == [
            row["sampler_gap"] > least for least in (0.001, 0.01, 0.1, 1)
        ]
    machine = json.loads((tmp_path / "machine.json").read_text())
    assert (machine["weights"], machine["training"], machine["sampling"]) == ("float32", *["bfloat16"] * 2)
    before, after = (load_file(folder / "model.safetensors") for folder in (tiny_model, tmp_path / "model"))
    assert {weight.dtype for weight in after.values()} == {torch.float32}
    assert any(not before[name].equal(after[name]) for name in before)


def test_a_model_that_vllm_samples_stays_off_the_gpu(
    tiny_model: Path, as_on_a_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model that only passes its weights to vLLM must not use vLLM's GPU memory."""
    monkeypatch.setattr(model_folder, "current_device", lambda: Device("meta", "bfloat16", True))
    given: list[Any] = []

    class Kept:
        def __init__(self, model: Any, *rest: Any, **options: Any) -> None:
            given.append(model)
            self.generator = TransformersGenerator(model, rest[0], name="kept")

    monkeypatch.setattr(rollout_engine, "VllmPolicy", Kept)
    Engine.load(str(tiny_model), ENVIRONMENTS, RolloutConfig(generator="vllm"))
    assert given[0].device.type == "cpu"
    second = Processes(rank=1, world=2)
    Engine.load(str(tiny_model), ENVIRONMENTS, RolloutConfig(generator="vllm"), processes=second)
    names = [{name for name, _ in full_weights(model)} for model in given]
    assert names[0] == names[1]
    sizes = {weight.untyped_storage().nbytes() for weight in given[1].parameters()}
    assert sizes == {4}, "the first process alone passes the weights on, and the others hold none"
    model, _ = model_folder.load(tiny_model)
    assert model.device.type == "meta"


class OnTheGpu(torch.Tensor):
    """A tensor that says that it lies on a GPU, and that any other device gives a copy of its values."""

    device = torch.device("cuda", 0)

    @staticmethod
    def __new__(cls, values: torch.Tensor) -> OnTheGpu:
        return values.as_subclass(cls)

    def to(self, device: Any) -> torch.Tensor:  # type: ignore[override]
        assert torch.device(device).type == "cpu"
        return Moved(self.as_subclass(torch.Tensor).clone())


class Moved(torch.Tensor):
    """The copy in host memory, which goes back to the GPU alone."""

    @staticmethod
    def __new__(cls, values: torch.Tensor) -> Moved:
        return values.as_subclass(cls)

    def to(self, device: Any) -> torch.Tensor:  # type: ignore[override]
        assert device == OnTheGpu.device
        return OnTheGpu(self.as_subclass(torch.Tensor))


def test_moments_leave_the_gpu_while_a_batch_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([weight])
    weight.sum().backward()
    optimizer.step()
    state = optimizer.state[weight]
    expected = {name: value.clone() for name, value in state.items()}
    for name in ("exp_avg", "exp_avg_sq"):
        state[name] = OnTheGpu(state[name])
    for failure in (None, KeyboardInterrupt):
        with suppress(KeyboardInterrupt), moments_on_host(optimizer):
            assert {type(state[name]) for name in ("exp_avg", "exp_avg_sq")} == {Moved}
            if failure:
                raise failure
        assert {type(state[name]) for name in ("exp_avg", "exp_avg_sq")} == {OnTheGpu}
    for name, value in expected.items():
        assert state[name].as_subclass(torch.Tensor).equal(value), name
    with moments_on_host(None):
        pass


@pytest.mark.slow
def test_moments_in_host_memory_change_nothing_else(tiny_model: Path, tmp_path: Path) -> None:
    plain = CONFIG.model_copy(update={"optimizer_steps": 1, "steps": 3})
    rows = {
        moved: [row["grad_norm"] for row in reinforced(tiny_model, tmp_path / str(moved), config=config)]
        for moved in (False, True)
        for config in [plain.model_copy(update={"offload_moments": moved})]
    }
    # The rows that decode together, which time decides, may change the last digits of a sample's logprobs.
    assert rows[True] == pytest.approx(rows[False], rel=1e-4)
    assert len(rows[True]) == 3


class Cyclic(Stage):
    """A stage that leaves objects with references to each other, as a trainer and its model do."""

    left: ClassVar[list[weakref.ref[Any]]] = []

    def work(self, folder: RunFolder, run: Run) -> JsonObject:
        model = torch.nn.Linear(1, 1)
        model.forward = model.forward  # as accelerate and TRL replace it
        self.left.append(weakref.ref(model))
        return {}

    def size(self, data: Data) -> Size:
        return Size("nothing")


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Turn off automatic garbage collection during a test."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
def test_a_stage_releases_its_memory_when_it_ends(tmp_path: Path) -> None:
    """Otherwise the next stage's engine would find the GPU memory in use."""
    run = Run(tmp_path, "base", NoRows(), say=lambda line: None)
    run_stage(Cyclic(name="stage"), run, "stage 1 of 1")
    assert Cyclic.left[0]() is None


class Fragmenting(Cyclic):
    """A stage after which glibc keeps freed memory, since a later allocation is still in use."""

    pinned: ClassVar[list[bytearray]] = []

    def work(self, folder: RunFolder, run: Run) -> JsonObject:
        blocks = [bytearray(b"1") * 100_000 for _ in range(5_000)]
        self.pinned.append(bytearray(b"1") * 100_000)
        blocks.clear()
        return {}


def test_a_stage_returns_freed_ram_to_the_system(tmp_path: Path) -> None:
    """Otherwise the next stage needs its memory in addition: RL after SFT held 12 GiB in place of 7."""
    run = Run(tmp_path, "base", NoRows(), say=lambda line: None)
    before = memory_in_use()["gib/resident"]
    run_stage(Fragmenting(name="stage"), run, "stage 1 of 1")
    assert memory_in_use()["gib/resident"] - before < 0.1, "the stage held 0.47 GiB"


@pytest.mark.usefixtures("uncollected")
def test_an_engine_frees_its_cache_before_training_and_its_model_when_it_is_closed(tiny_model: Path) -> None:
    """Checkpoints are evaluated one after another, with memory for one."""
    assert sampled_from(tiny_model)() is None


def sampled_from(folder: Path) -> weakref.ref[Any]:
    with Engine.load(str(folder), ENVIRONMENTS, RolloutConfig(max_tokens=20)) as found:
        found.refresh()
        formatted = source(0, 0, 0)
        found.run(found.rollouts(0)[formatted.format].group(formatted.task, 4))
        assert cached()
        found.rest()
        assert not cached()
        return weakref.ref(found.generator._network)  # type: ignore[attr-defined]


def cached() -> int:
    """Count the tensors of a cache's shape: slots or heads, positions, head dimension."""
    return sum(
        issubclass(type(one), torch.Tensor) and one.dim() in (3, 4) and one.shape[-1] == 16
        for one in gc.get_objects()
    )


@pytest.mark.parametrize(
    ("gpus", "exact", "message"),
    [
        (2, True, "there are 2 GPUs and one process: start one per GPU"),
        (1, False, "Tesla does not support bfloat16"),
    ],
)
def test_unusable_gpus_are_refused_before_the_run(
    gpus: int, exact: bool, message: str, recipe_checked: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    played = {
        "is_available": lambda: True,
        "device_count": lambda: gpus,
        "is_bf16_supported": lambda including_emulation: exact,
        "get_device_name": lambda: "Tesla",
    }
    for name, call in played.items():
        monkeypatch.setattr(torch.cuda, name, call)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    with pytest.raises(BadRecipe, match=message):
        recipe_checked()


@pytest.mark.parametrize(
    ("attention", "missing", "package"),
    [
        ("flash_attention_2", "flash_attn", "flash-attn"),
        ("flash_attention_3", "flash_attn_interface", "flash-attn-3"),
    ],
)
def test_each_flash_attention_is_looked_for_under_its_own_name(
    attention: str, missing: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FlashAttention 2 in place of 3 passed, and the run ended with transformers' ImportError."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    recipe = load(Recipe, MINI, [*assignments(), f"model.attn_implementation={attention}"])
    monkeypatch.setattr(preflight, "find_spec", lambda name: None if name == missing else object())
    with pytest.raises(BadRecipe, match=f"is not installed: `pip install {package}`, or set"):
        preflight._check_kernels(recipe)
    monkeypatch.setattr(preflight, "find_spec", lambda name: object() if name == missing else None)
    preflight._check_kernels(recipe)


@pytest.mark.parametrize("stated", ["auto", None])
def test_a_frozen_base_on_a_gpu_is_in_bfloat16(
    stated: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Autocast would round float32 weights again in every step of decoding."""
    for module in (device, context):
        monkeypatch.setattr(module, "current_device", lambda: Device("cuda", "bfloat16", True))
    assert weights_dtype("auto") == "bfloat16"
    words = [*assignments(), *([f"model.dtype={stated}"] if stated else [])]
    whole, adapted = (load(Recipe, MINI, [*words, *more]) for more in ([], ["model.lora.rank=4"]))
    assert context.with_dtype(adapted, tmp_path).model.dtype == "bfloat16"
    assert context.with_dtype(whole, tmp_path).model.dtype in (None, "float32"), "small updates would be lost"
    exact = load(Recipe, MINI, [*assignments(), "model.lora.rank=4", "model.dtype=float32"])
    assert context.with_dtype(exact, tmp_path).model.dtype == "float32"


@pytest.fixture
def recipe_checked(tmp_path: Path) -> Callable[[], None]:
    recipe = load(Recipe, MINI, assignments())
    return lambda: check(recipe, pipeline_of(recipe), data_of(recipe), tmp_path)


def test_packed_rows_need_attention_in_every_layer(tmp_path: Path) -> None:
    """A convolution or a linear attention reads the rows of a pack as one."""
    Lfm2Config(num_hidden_layers=2, full_attn_idxs=[1]).save_pretrained(tmp_path / "model")
    words = ["rl.token_budget=4000", "rl.length_buckets=1", "data.max_prompt_tokens=", "data.demonstrations="]
    recipe = load(Recipe, "smol", [f"model.base={tmp_path / 'model'}", *words])
    with pytest.raises(BadRecipe, match=r"rl.token_budget: .*/model has layers \(conv\) that read all rows"):
        check(recipe, pipeline_of(recipe), data_of(recipe), tmp_path)


def test_a_model_that_transformers_cannot_sample_from_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would raise a ValueError when the first stage samples."""
    Lfm2Config(num_hidden_layers=2, full_attn_idxs=[1]).save_pretrained(tmp_path / "model")
    words = [f"model.base={tmp_path / 'model'}", "data.max_prompt_tokens=", "data.demonstrations="]
    recipe = load(Recipe, "smol", words)
    with pytest.raises(BadRecipe, match=r'rl.generator: "transformers" cannot decode the layers \(conv\)'):
        check(recipe, pipeline_of(recipe), NoRows(), tmp_path)
    monkeypatch.setattr(preflight, "_check_kernels", lambda recipe: None)
    flash = load(Recipe, MINI, [*assignments(), "model.attn_implementation=flash_attention_2"])
    with pytest.raises(BadRecipe, match=r'"transformers" cannot decode with flash_attention_2'):
        check(flash, pipeline_of(flash), NoRows(), tmp_path)


def test_the_processes_of_a_machine_share_its_cpus(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight processes on 16 CPUs run two programs each at a time, and a process alone runs 16."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)))
    for processes, capacity in (("8", 2), ("1", 16), ("32", 1)):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", processes)
        assert open_sandbox("local", **pool_options("local")).capacity == capacity
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    with Engine.load(str(tiny_model), {}, RolloutConfig()) as opened:
        assert opened._sandbox.capacity == 2
