"""What is looked at before a run begins, since finding it out later would cost work or money."""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from tirjudge.generation import GeneratorFailed
from tirjudge_sandbox.registry import sandbox_names
from tirjudge_training import footprint, reporters
from tirjudge_training.config import BadRecipe
from tirjudge_training.course import Course
from tirjudge_training.data import Data
from tirjudge_training.disk import disk_bytes
from tirjudge_training.distillation import asked_by
from tirjudge_training.footprint import Shape, gib
from tirjudge_training.lora import LoraConfig
from tirjudge_training.policies import weight_folder
from tirjudge_training.policies.vllm_server import VllmServerConfig
from tirjudge_training.policies.weight_server import WeightServer
from tirjudge_training.recipe import Recipe
from tirjudge_training.sharing import Sharing
from tirjudge_training.stages.reinforcement import Reinforcement

LIBRARIES = ("torch", "transformers", "accelerate", "datasets", "trl", "peft")


FSDP = {
    "FSDP_VERSION": "2",
    "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
    "FSDP_CPU_RAM_EFFICIENT_LOADING": "false",
}
"""What training needs of accelerate's FSDP, as its launcher hands it on."""


class TooSmall(RuntimeError):
    """The machine has not the memory or the disk that the run needs; one line with both numbers."""


def check(recipe: Recipe, course: Course, data: Data, folder: Path) -> None:
    """Nothing is written and no weight is loaded.

    Raises ImportError for a library of the extra `train` that is missing, BadRecipe for a model or an engine
    that cannot be had, a launch that cannot work or a teacher without prompts, TooSmall.
    """
    for library in LIBRARIES:
        import_module(library)
    reporters.require(recipe.rl.report_to)
    _is_launched_well()
    _has_one_gpu()
    for key, name in (("rl", recipe.rl.sandbox), ("teacher", recipe.teacher.sandbox)):
        if name not in sandbox_names():
            raise BadRecipe(f"{key}.sandbox: no sandbox {name!r}; there are {', '.join(sandbox_names())}")
    if recipe.rl.generator == "vllm" and find_spec("vllm") is None:
        raise BadRecipe(
            "rl.generator: vLLM is not installed: `pip install tirjudge[vllm]`, or use transformers"
        )
    if recipe.rl.server is not None:
        _are_there(recipe.rl.server)
    if recipe.method == "distill":
        _has_prompts(recipe, data)
    if recipe.model.base is not None:
        _has_room(recipe, course, data, recipe.model.base, folder)


def _is_launched_well() -> None:
    """Of what else accelerate takes, each would go wrong late: without checkpoints, or without a word."""
    if os.environ.get("ACCELERATE_USE_FSDP") == "true":
        for name, wanted in FSDP.items():
            found = os.environ.get(name, "")
            if found.lower() != wanted.lower():
                raise BadRecipe(
                    f"{name.lower()} is {found!r} and must be {wanted}, as in the file that "
                    "`tirjudge train --launch-config fsdp2` names"
                )
    if os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE") == "3":
        raise BadRecipe("zero_stage is 3: samples cannot be drawn with parts of weights; take 2, or FSDP2")


def _has_one_gpu() -> None:
    """A process trains on one GPU at most: TRL refuses to spread a single process over several."""
    import torch

    if not torch.cuda.is_available():
        return
    if "LOCAL_RANK" not in os.environ and torch.cuda.device_count() > 1:
        raise BadRecipe(
            f"there are {torch.cuda.device_count()} GPUs and one process: start one for each, `torchrun "
            "--nproc-per-node=N --no-python tirjudge train ...`, or show it one, CUDA_VISIBLE_DEVICES=0"
        )
    if not torch.cuda.is_bf16_supported(including_emulation=False):
        raise BadRecipe(
            f"{torch.cuda.get_device_name()} does not compute in bfloat16: train on another, or on the CPU, "
            "with CUDA_VISIBLE_DEVICES= in front of the command"
        )


def _are_there(config: VllmServerConfig) -> None:
    if config.weights is not None and not config.weights.is_dir():
        raise BadRecipe(f"rl.server.weights: there is no folder {str(config.weights)!r}")
    for url in config.urls:
        try:
            WeightServer(url).check()
        except GeneratorFailed as error:
            raise BadRecipe(f"rl.server.urls: {error}") from None


def _has_prompts(recipe: Recipe, data: Data) -> None:
    teacher = recipe.teacher
    tiers = {teacher.tier, *([teacher.corrector.tier] if teacher.corrector else [])}
    for environment in data.environments.values():
        for tier in tiers:
            try:
                asked_by(environment, teacher, tier)
            except ValueError as error:
                raise BadRecipe(f"teacher.family: {error}") from None


def _has_room(recipe: Recipe, course: Course, data: Data, base: str, folder: Path) -> None:
    shape = _shape(base, recipe.model.lora)
    reference = any(isinstance(stage, Reinforcement) and stage.config.beta > 0 for stage in course.stages)
    needed = footprint.training_bytes(shape, reference=reference, sampler=recipe.rl.generator)
    there, where = footprint.memory_there()
    told = f"{base} has {shape.parameters / 1e9:.2f} billion parameters"
    if needed > there:
        raise TooSmall(
            f"{told}: to train them takes {gib(needed)} at least, and {gib(there)} are {where}; "
            "take a smaller model or a larger machine, or share it out with accelerate's FSDP"
        )
    _has_way_to_vllm(recipe, shape, told)
    written = sum(disk_bytes(recipe, course, data, shape, sharing=Sharing.launched()).values())
    room = footprint.disk_there(folder)
    if written > room:
        raise TooSmall(
            f"{told}: the run writes about {gib(written)} of checkpoints, models and rollouts, and there is "
            f"room for {gib(room)} at {folder}; make some, or choose another --output"
        )


def _has_way_to_vllm(recipe: Recipe, shape: Shape, told: str) -> None:
    if recipe.rl.generator == "transformers":
        return
    parent = recipe.rl.server.weights if recipe.rl.server is not None else None
    passing, room = footprint.FROZEN * shape.parameters, weight_folder.room(parent)
    if passing > room:
        raise TooSmall(
            f"{told}: on their way to vLLM they take {gib(passing)} in {weight_folder.place(parent)}, and "
            f"there is room for {gib(room)}; make it larger (in a container: docker run --shm-size)"
        )


def _shape(base: str, lora: LoraConfig | None) -> Shape:
    if base.startswith((".", "/", "~")) and not Path(base).expanduser().is_dir():
        raise BadRecipe(f"no model {base!r}: there is no such folder")
    try:
        shape = footprint.shape(base)
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise BadRecipe(f"no model {base!r}, neither a folder with one nor a hub id: {reason}") from None
    try:
        return shape if lora is None else footprint.adapted(base, lora)
    except ValueError as error:
        raise BadRecipe(f"model.lora: {error}") from None
