"""The checks before a run starts, since a mistake that shows up later costs work or money."""

from __future__ import annotations

import asyncio
import os
import shutil
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from tirjudge.console_text import first_line
from tirjudge.generation import GeneratorFailed
from tirjudge.generation.local.transformers import ATTENDING, layer_kinds
from tirjudge.models.machine import free_memory
from tirjudge_environments.formats.rationale import Rationale
from tirjudge_environments.registry import offers_tools
from tirjudge_sandbox import SandboxUnavailable, open_sandbox
from tirjudge_sandbox.registry import sandbox_names
from tirjudge_training.data.base import Data
from tirjudge_training.distributed.checkpoints import SHARDED, STATE_DICT_TYPE
from tirjudge_training.distributed.fsdp import EFFICIENT
from tirjudge_training.distributed.processes import Sharding, launched_processes
from tirjudge_training.methods import Pipeline
from tirjudge_training.model_folder import LoraConfig
from tirjudge_training.recipe import Recipe
from tirjudge_training.recipe_file import BadRecipe
from tirjudge_training.rl.config import require_reporters
from tirjudge_training.rl.rollout_engine import RolloutConfig
from tirjudge_training.run import model_size
from tirjudge_training.run.cpu_memory import largest_passes, trains_on_cpu
from tirjudge_training.run.model_size import Shape, gib
from tirjudge_training.stages.base import DONE, Say
from tirjudge_training.stages.reinforcement import Reinforcement
from tirjudge_training.weight_sync.base import free_bytes, parent_folder
from tirjudge_training.weight_sync.vllm_servers import VllmServerConfig, WeightServer

LIBRARIES = ("torch", "transformers", "accelerate", "datasets", "trl", "peft")
LOCAL = "local"
"""The sandbox that every machine has."""
FLASH = {
    "flash_attention_2": ("FlashAttention", "flash_attn", "flash-attn"),
    "flash_attention_3": ("FlashAttention 3", "flash_attn_interface", "flash-attn-3"),
}
"""The kernels that are no part of torch, by transformers' name: name, module and package."""
FSDP = {"FSDP_VERSION": ("2",), STATE_DICT_TYPE: (SHARDED,), EFFICIENT: ("true",)}
"""The settings of accelerate's FSDP that training needs, as the launcher passes them on."""


class TooSmall(RuntimeError):
    """The machine lacks the memory or the disk space for the run. The message has both numbers."""


def require_packages(recipe: Recipe) -> None:
    """Raise BadRecipe, in one line, if a package that training needs is not installed; none is imported."""
    if missing := [name for name in LIBRARIES if find_spec(name) is None]:
        raise BadRecipe(f"training needs {', '.join(missing)}: pip install 'tirjudge[train]'")
    require_reporters(recipe.rl.report_to)


def check(recipe: Recipe, pipeline: Pipeline, data: Data, folder: Path, say: Say = print) -> None:
    """Refuse a run that would fail later. Writes nothing and loads no weights.

    Raises ImportError if a library of the extra `train` is broken; BadRecipe for a model or an engine that
    is not available, a launch that cannot work, or a stage that would fail; TooSmall.
    """
    # Imported and not only looked up, since a broken installation shows up only then.
    for library in LIBRARIES:
        import_module(library)
    _check_launch()
    _check_gpus()
    _check_kernels(recipe)
    for key, name in (("rl", recipe.rl.sandbox), ("teacher", recipe.teacher.sandbox)):
        if name not in sandbox_names():
            raise BadRecipe(f"{key}.sandbox: no sandbox {name!r}; there are {', '.join(sandbox_names())}")
    # A stage with limits of rollouts uses the sandbox and the sampler of `[rl]`.
    rolls_out = any(isinstance(value, RolloutConfig) for stage in pipeline.stages for _, value in stage)
    asks_teacher = any(stage.asks_teacher for stage in pipeline.stages)
    if rolls_out:
        _check_tools(recipe, data)
        _check_meta_judge(recipe, data)
        _check_sandbox("rl", recipe.rl.sandbox)
    if asks_teacher and not (rolls_out and recipe.teacher.sandbox == recipe.rl.sandbox):
        _check_sandbox("teacher", recipe.teacher.sandbox)
    if recipe.rl.generator == "vllm" and any(stage.size(data).sampled for stage in pipeline.stages):
        _check_engine(recipe)
    if recipe.rl.server is not None and rolls_out:
        _check_server(recipe.rl.server)
    for stage in pipeline.stages:
        if (folder / stage.name / DONE).exists():
            continue
        try:
            stage.check(data)
        except ValueError as error:
            raise BadRecipe(str(error)) from None
    _check_packing(recipe, recipe.model.base)
    if rolls_out:
        _check_decoding(recipe, pipeline, recipe.model.base)
    _check_space(recipe, pipeline, recipe.model.base, folder, say)


def _check_sandbox(key: str, name: str) -> None:
    """Open a sandbox that depends on something outside of this process, such as a Docker engine."""
    if name == LOCAL:
        return

    async def opened() -> None:
        async with open_sandbox(name):
            pass

    try:
        asyncio.run(opened())
    except SandboxUnavailable as error:
        other = f"--set {key}.sandbox={LOCAL}"
        raise BadRecipe(
            f"{key}.sandbox: {first_line(error)}; or use {other}, which needs neither an engine nor a server"
        ) from None


def _check_launch() -> None:
    """Refuse launch settings that accelerate accepts but that would fail late or silently."""
    if os.environ.get("ACCELERATE_USE_FSDP") == "true":
        for name, wanted in FSDP.items():
            found = os.environ.get(name, "")
            if found.lower() not in map(str.lower, wanted):
                raise BadRecipe(
                    f"{name.lower()} is {found!r} and must be {wanted[0]}, as in the file that "
                    "`tirjudge train --launch-config fsdp2` prints"
                )


def _check_gpus() -> None:
    """Refuse more than one GPU per process, which TRL cannot use, and a GPU without bfloat16."""
    import torch

    if not torch.cuda.is_available():
        return
    # Without LOCAL_RANK no launcher started this process, so TRL would see all GPUs of the machine.
    if "LOCAL_RANK" not in os.environ and torch.cuda.device_count() > 1:
        raise BadRecipe(
            f"there are {torch.cuda.device_count()} GPUs and one process: start one per GPU, `torchrun "
            "--nproc-per-node=N --no-python tirjudge train ...`, or choose one with CUDA_VISIBLE_DEVICES=0"
        )
    # By default torch also says yes for GPUs that only emulate bfloat16.
    if not torch.cuda.is_bf16_supported(including_emulation=False):
        raise BadRecipe(
            f"{torch.cuda.get_device_name()} does not support bfloat16: train on another GPU, or on the CPU "
            "with CUDA_VISIBLE_DEVICES= before the command"
        )


def _check_kernels(recipe: Recipe) -> None:
    """Refuse kernels that this machine cannot run."""
    import torch

    attention, sdpa = recipe.model.attn_implementation, '= "sdpa"'
    wanted = []
    if recipe.model.liger:
        wanted.append(("model.liger", "Liger", "liger_kernel", "liger-kernel", "= false"))
    if attention in FLASH:
        wanted.append(("model.attn_implementation", *FLASH[attention], sdpa))
    for key, name, module, package, instead in wanted:
        if not torch.cuda.is_available():
            raise BadRecipe(f"{key}: {name} needs a GPU, and there is none: set {key} {instead}")
        if find_spec(module) is None:
            raise BadRecipe(
                f"{key}: {name} is not installed: `pip install {package}`, or set {key} {instead}"
            )


def _check_tools(recipe: Recipe, data: Data) -> None:
    """Refuse tools besides Python for a judge that can call none."""
    for name, judge in data.environments.items() if recipe.rl.tools.servers else ():
        if not offers_tools(judge):
            raise BadRecipe(f"rl.tools: the judge {name} can call no tools besides Python: leave them out")


def _check_meta_judge(recipe: Recipe, data: Data) -> None:
    """Refuse a reward that asks another model if there is none."""
    for name, judge in data.environments.items() if recipe.meta_judge is None else ():
        if isinstance(judge, Rationale) and judge.reward != "outcome":
            raise BadRecipe(
                f"meta_judge: the reward of the judge {name} asks another model: set meta_judge.model, or "
                f"environments.{name}.options.reward=outcome"
            )


def _check_engine(recipe: Recipe) -> None:
    import torch

    if find_spec("vllm") is None:
        raise BadRecipe(
            "rl.generator: vLLM is not installed: pip install 'tirjudge[vllm]', or use transformers"
        )
    if recipe.rl.vllm.get("enable_sleep_mode") and not torch.cuda.is_available():
        raise BadRecipe(
            "rl.vllm.enable_sleep_mode: vLLM sleeps on GPUs only, and there is none: set it to false"
        )


def _check_server(config: VllmServerConfig) -> None:
    if config.weights is not None and not config.weights.is_dir():
        raise BadRecipe(f"rl.server.weights: there is no folder {str(config.weights)!r}")
    for url in config.urls:
        try:
            WeightServer(url).check()
        except GeneratorFailed as error:
            raise BadRecipe(f"rl.server.urls: {error}") from None


def _other_layers(base: str) -> str:
    """Return the kinds of a model's layers that are no attention, separated by commas."""
    with model_size.model_errors(base):
        kinds = layer_kinds(model_size.config_of(base).get_text_config())
    return ", ".join(sorted(kinds - ATTENDING))


def _check_packing(recipe: Recipe, base: str) -> None:
    """Refuse packed rows for a model whose layers would carry a state from one row into the next."""
    if recipe.rl.token_budget is None:
        return
    if others := _other_layers(base):
        raise BadRecipe(
            f"rl.token_budget: {base} has layers ({others}) that read all rows of a pack as one: leave it out"
        )


def _check_decoding(recipe: Recipe, pipeline: Pipeline, base: str) -> None:
    """Refuse a model that the generator `transformers` cannot decode in a padded batch."""
    if recipe.rl.generator != "transformers":
        return
    if others := _other_layers(base):
        raise BadRecipe(
            f'rl.generator: "transformers" cannot decode the layers ({others}) of {base}: '
            'set rl.generator = "vllm"'
        )
    # The other stages load models of their own to sample with.
    stages = (stage for stage in pipeline.stages if isinstance(stage, Reinforcement))
    trained = any(stage.config.trainer == "trl" for stage in stages)
    if trained and recipe.model.attn_implementation not in ("sdpa", "eager"):
        raise BadRecipe(
            f'rl.generator: "transformers" cannot decode with {recipe.model.attn_implementation}: set '
            'rl.generator = "vllm", or model.attn_implementation = "sdpa"'
        )


def _check_space(recipe: Recipe, pipeline: Pipeline, base: str, folder: Path, say: Say = print) -> None:
    """Refuse a run that needs more memory or disk space than there is; say so if it only may need more."""
    shape = model_size.trained_shape(base, recipe.model.lora, recipe.model.dtype)
    reference = any(stage.reference for stage in pipeline.stages)
    # A lower limit: activations and logits depend on the batch.
    needed = model_size.launched_bytes(
        shape, reference=reference, sampler=recipe.rl.generator, off_policy=recipe.rl.off_policy
    )
    available, where = available_memory()
    model = f"{base} has {shape.parameters / 1e9:.2f} billion parameters"
    if recipe.rl.generator == "vllm":
        _check_engine_space(recipe, shape, needed, model)
    if needed > available:
        advice = "use a smaller model or a larger machine, or shard it with accelerate's FSDP"
        if Sharding.launched() is Sharding.FSDP and recipe.rl.generator == "transformers":
            copy = gib(shape.weight * shape.parameters)
            advice = f'{copy} of them are a whole copy to sample with: set rl.generator = "vllm"'
        raise TooSmall(
            f"{model}: training takes at least {gib(needed)}, and {gib(available)} are {where}; {advice}"
        )
    waiting = [stage for stage in pipeline.stages if not (folder / stage.name / DONE).exists()]
    if trains_on_cpu(launched_processes()) and recipe.rl.generator == "transformers":
        found = largest_passes(recipe, waiting, shape, needed)
        if found is not None and found.total > available:
            say(
                f"warning: training may take up to {gib(found.total)}, and {gib(available)} are {where}: "
                f"{found.parts(needed)}; {found.smaller(available)}"
            )
    _check_weight_folder(recipe, shape, model)
    written, room = disk_bytes(pipeline, shape, recipe.model.lora), available_disk(folder)
    if written > room:
        raise TooSmall(
            f"{model}: the run writes at least {gib(written)} of checkpoints and models, and {gib(room)} are "
            f"free at {folder}; free some space, or choose another --output"
        )


def engine_share(recipe: Recipe) -> float:
    """Return the share of a GPU's whole memory that vLLM's engine takes, by vLLM's default nine tenths."""
    return float(recipe.rl.vllm.get("gpu_memory_utilization", 0.9))


def _check_engine_space(recipe: Recipe, shape: Shape, needed: int, model: str) -> None:
    """Refuse an engine of vLLM that does not fit on its GPU beside the state of training."""
    import torch

    if not torch.cuda.is_available():
        return
    free, whole = torch.cuda.mem_get_info()
    share = engine_share(recipe)
    beside, sleeps = needed, bool(recipe.rl.vllm.get("enable_sleep_mode"))
    if sleeps:
        beside = model_size.beside_engine_bytes(
            needed, shape, shards=model_size.launched_shards(), offloaded=recipe.rl.offload_moments
        )
    engine = int(share * whole)
    if beside + engine <= free:
        return
    # In hundredths, which is how people set it.
    fitting = int(100 * (free - beside) / whole) / 100
    advice = "rl.offload_moments = true" if sleeps else "rl.vllm.enable_sleep_mode = true"
    if sleeps and recipe.rl.offload_moments:
        advice = "more GPUs with accelerate's FSDP"
    lower = f"rl.vllm.gpu_memory_utilization = {fitting:g} or less, or " if fitting > 0 else ""
    raise TooSmall(
        f"{model}: vLLM's engine takes {gib(engine)} (rl.vllm.gpu_memory_utilization = {share:g}) beside at "
        f"least {gib(beside)} of training, and {gib(free)} are free on {torch.cuda.get_device_name()}: set "
        f"{lower}{advice}"
    )


def disk_bytes(pipeline: Pipeline, shape: Shape, lora: LoraConfig | None) -> int:
    """Return the bytes of checkpoints, models and snapshots; the records of rollouts come on top."""
    disks = [stage.disk() for stage in pipeline.stages]
    kept = sum(disk.checkpoints for disk in disks)
    checkpoints = kept + 1 if kept else 0  # the next checkpoint is written before the oldest is deleted
    models = sum(disk.models for disk in disks)
    snapshots = sum(disk.snapshots for disk in disks)
    whole = lora is None or lora.merge
    model = shape.weight * shape.parameters if whole else model_size.HALF * shape.trained
    # A checkpoint has the weights and Adam's two moments.
    return (
        checkpoints * 3 * model_size.FROZEN * shape.trained
        + models * model
        + snapshots * model_size.HALF * shape.parameters
    )


def available_memory() -> tuple[int, str]:
    """Return the free bytes of this process's GPU, machine or container, and words for where they are."""
    import torch

    # With a GPU only its memory is checked: model, gradients and moments are there.
    if torch.cuda.is_available():
        return torch.cuda.mem_get_info()[0], f"free on {torch.cuda.get_device_name()}"
    return free_memory(), "free in memory"


def available_disk(folder: Path) -> int:
    """Return the bytes that a run may use: free space, and what its folder already holds."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    # A resumed run writes its files again, so what they take counts as free.
    filled = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return shutil.disk_usage(existing).free + filled


def _check_weight_folder(recipe: Recipe, shape: Shape, model: str) -> None:
    """Refuse a run whose weights do not fit where weight files are passed to vLLM.

    Engines of the run start from such files, also if later weights are passed one tensor at a time.
    """
    if recipe.rl.generator == "transformers":
        return
    parent = recipe.rl.server.weights if recipe.rl.server is not None else None
    passing, room = shape.weight * shape.parameters, free_bytes(parent)
    if passing > room:
        raise TooSmall(
            f"{model}: passing them to vLLM takes {gib(passing)} in {parent_folder(parent)}, and "
            f"{gib(room)} are free; make it larger (in a container: docker run --shm-size)"
        )
