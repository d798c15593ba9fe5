"""verl's configuration of an RL stage: every value is the recipe's, and what it lacks is verl's default."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tirjudge_environments.adapters.dialogues import VERL_MANAGER
from tirjudge_training.recipe import Recipe
from tirjudge_training.recipe_file import BadRecipe
from tirjudge_training.rl.config import RlConfig
from tirjudge_training.run.model_size import HALF, TRAINED, Shape, gib
from tirjudge_training.run.preflight import TooSmall
from tirjudge_training.stages.reinforcement import Reinforcement

Backend = Literal["fsdp2", "megatron"]
CONFIG, LOOPS, TRAIN, VALIDATION = "config.yaml", "agent_loops.yaml", "train.parquet", "validation.parquet"
"""The files of a stage's folder `verl` that are written before verl starts."""
CHECKPOINTS, VALIDATED, METRICS = "checkpoints", "validated", "metrics.jsonl"
"""Checkpoints, every validated step's answers, and the metrics that verl leaves there."""
SNAPSHOTS = "tirjudge_training.launch.verl_snapshots.Snapshots"
LOSSES: dict[str, dict[str, Any]] = {
    "dapo": {"loss_agg_mode": "token-mean"},
    "per_response": {"loss_agg_mode": "seq-mean-token-mean"},
    "sequence": {"loss_agg_mode": "seq-mean-token-mean", "policy_loss": {"loss_mode": "gspo"}},
}
"""verl's names of our losses."""
UNCLIPPED = 1e9
"""A bound of the ratio that never acts: verl also clips the loss of bad rollouts ("dual clip")."""
ETA = 1e-6
"""verl's addition to the standard deviation of a group's rewards."""
SHARE = 0.5
"""verl's own `gpu_memory_utilization`, if the recipe does not set it."""
ROOMY = 0.4
"""Share of a GPU's memory up to which weights and moments stay there while vLLM samples."""
ENGINE = (
    "gpu_memory_utilization",
    "max_model_len",
    "max_num_batched_tokens",
    "max_num_seqs",
    "enforce_eager",
)
"""Arguments of vLLM that verl has a key of its own for; the others are passed on as they are."""


@dataclass(frozen=True, slots=True)
class Machines:
    """The machines that train."""

    nodes: int = 1
    gpus_per_node: int = 8
    address: str | None = None
    """HOST:PORT of a Ray cluster, or `auto`; None starts one on this machine."""
    backend: Backend = "fsdp2"

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node


@dataclass(frozen=True, slots=True)
class Rows:
    """The sizes of the stage's rows."""

    count: int
    groups: float
    """Groups in a row, on average: a row of a judge with linked views has one per view."""
    most: int
    """The most groups in a row."""


def verl_config(
    recipe: Recipe,
    stage: Reinforcement,
    *,
    start: str,
    shape: Shape,
    rows: Rows,
    validated: bool,
    machines: Machines,
    folder: Path,
    enable_thinking: bool | None,
    resumed: int = 0,
) -> dict[str, Any]:
    """Return the configuration for `verl.trainer.main_ppo`, on top of verl's own defaults.

    `start` is the model, `validated` True if there are validation rows, `resumed` the step of verl's last
    checkpoint, and `folder` the absolute path of the stage's folder `verl`, which all nodes must see. Raises
    BadRecipe for a setting that verl lacks, and TooSmall if the model does not fit on the GPUs.
    """
    config = stage.config
    check_settings(recipe, config, machines)
    offloaded = _offloaded(recipe, shape, machines, reference=stage.reference)
    prompt, response = recipe.data.max_prompt_tokens, config.max_tokens
    assert prompt is not None  # checked above
    # A packed micro-batch must at least hold the longest row.
    budget = max(config.token_budget or 0, prompt + response)
    batch = max(1, round(config.groups / rows.groups))
    every = config.checkpoint_every
    if stage.validation is not None and validated:
        every = stage.validation.every
    tensor_parallel = _tensor_parallel(recipe, shape, machines)
    files = {
        "train_files": [str(folder / TRAIN)],
        "val_files": [str(folder / (VALIDATION if validated else TRAIN))],
    }
    template = {} if enable_thinking is None else {"enable_thinking": enable_thinking}
    rewarded = "reward" if config.filter == "reward" else "teaches"
    return {
        "hydra": {
            "searchpath": ["pkg://verl.trainer.config"],
            "run": {"dir": str(folder)},
            "output_subdir": None,
        },
        "defaults": [
            "ppo_trainer",
            {"override model_engine": "megatron" if machines.backend == "megatron" else "dp"},
            "_self_",
        ],
        "data": {
            **files,
            "train_batch_size": batch,
            "max_prompt_length": prompt,
            "max_response_length": response,
            # Rows are in the order in which our own trainer draws them, and none is too long.
            "shuffle": False,
            "filter_overlong_prompts": False,
            "seed": stage.seed % 2**31,
            "apply_chat_template_kwargs": template,
        },
        "actor_rollout_ref": {
            "model": _model(recipe, start),
            "actor": {
                "strategy": machines.backend,
                **_optimizer(config, machines.backend),
                "ppo_mini_batch_size": _mini_batch(batch * rows.most, config, machines),
                "use_dynamic_bsz": True,
                "ppo_max_token_len_per_gpu": budget,
                "clip_ratio": config.epsilon,
                "clip_ratio_low": config.epsilon,
                "clip_ratio_high": config.epsilon_high,
                "clip_ratio_c": UNCLIPPED,
                **LOSSES[config.loss],
                "entropy_coeff": config.entropy_bonus,
                "use_kl_loss": stage.reference,
                "kl_loss_coef": config.beta,
                # verl's name of the estimator (k3) that TRL computes too.
                "kl_loss_type": "low_var_kl",
                **_engine(machines, offloaded, tensor_parallel),
            },
            "ref": _engine(machines, offloaded, tensor_parallel, frozen=True),
            "rollout": {
                "name": "vllm",
                "n": config.samples,
                "temperature": config.temperature,
                "top_p": config.top_p,
                "top_k": -1,
                "tensor_model_parallel_size": tensor_parallel,
                "max_model_len": prompt + response,
                **_sampler(config),
                "log_prob_use_dynamic_bsz": True,
                "log_prob_max_token_len_per_gpu": budget,
                "seed": stage.seed % 2**31,
                "agent": {
                    "agent_loop_config_path": str(folder / LOOPS),
                    "agent_loop_manager_class": VERL_MANAGER,
                },
            },
        },
        "algorithm": {
            "adv_estimator": "grpo",
            "norm_adv_by_std_in_grpo": True,
            "use_kl_in_reward": False,
            # As in verl's DAPO recipe: groups without a learning signal are replaced by further rows.
            "filter_groups": {
                "enable": config.filter != "none" and config.replacement_rounds > 0,
                "metric": rewarded,
            },
            "rollout_correction": {
                "rollout_is": None if config.importance_cap is None else "token",
                **({} if config.importance_cap is None else {"rollout_is_threshold": config.importance_cap}),
            },
        },
        "trainer": {
            "nnodes": machines.nodes,
            "n_gpus_per_node": machines.gpus_per_node,
            "total_training_steps": config.steps,
            # verl stops at the steps; a further pass only begins where replacements used rows up.
            "total_epochs": config.steps,
            "save_freq": every,
            "max_actor_ckpt_to_keep": config.keep_checkpoints,
            "default_local_dir": str(folder / CHECKPOINTS),
            "val_before_train": False,
            "test_freq": every if validated else -1,
            "validation_data_dir": str(folder / VALIDATED) if validated else None,
            "checkpoint_callback_class": SNAPSHOTS if validated else None,
            "project_name": "tirjudge",
            "experiment_name": f"{folder.parent.parent.name}/{stage.name}",
            "logger": ["console", "file", *config.report_to],
            # A rollout whose sandbox failed has no reward; a group without any reward is replaced.
            "v1": {"sampler": {"sync_refill_failed_groups": True}},
        },
        "ray_kwargs": {
            "ray_init": {
                **({} if machines.address is None else {"address": machines.address}),
                # verl's file logger empties its file, so that a resumed run gets one of its own.
                "runtime_env": {"env_vars": {"VERL_FILE_LOGGER_PATH": str(folder / f"{resumed}-{METRICS}")}},
            }
        },
    }


def check_settings(recipe: Recipe, config: RlConfig, machines: Machines) -> None:
    """Raise BadRecipe, in one line, for a setting that verl does not have."""
    with_trl = "train it with TRL, by `tirjudge train`"
    wrong = {
        "data.max_prompt_tokens": (
            recipe.data.max_prompt_tokens is None,
            "verl needs the most tokens of a prompt: set it",
        ),
        "meta_judge": (
            recipe.meta_judge is not None,
            f"verl's agent loop asks no other model for a reward: {with_trl}",
        ),
        "model.lora": (recipe.model.lora is not None, f"this path trains whole models: {with_trl}"),
        "rl.loss": (
            config.loss not in LOSSES,
            f"{config.loss!r} is not one of {', '.join(LOSSES)}, which verl has: {with_trl}",
        ),
        "rl.sigma": (config.sigma != "sample", f"verl divides by n - 1: set it to sample, or {with_trl}"),
        "rl.off_policy": (config.off_policy, f"this path samples with the latest weights: {with_trl}"),
        "rl": (
            bool(config.truncation.keys() - {"top_p"}),
            f"verl truncates by top_p alone, not by {', '.join(config.truncation)}: {with_trl}",
        ),
        "rl.eta": (config.eta not in (0.0, ETA), f"verl adds {ETA:g}: set that, or {with_trl}"),
        "rl.decay": (
            config.decay and machines.backend == "fsdp2",
            "verl lowers the learning rate linearly with Megatron only: add --backend megatron",
        ),
    }
    for key, (fault, why) in wrong.items():
        if fault:
            raise BadRecipe(f"{key}: {why}")


def _model(recipe: Recipe, start: str) -> dict[str, Any]:
    attention = recipe.model.attn_implementation
    return {
        "path": start,
        "use_liger": recipe.model.liger,
        "enable_gradient_checkpointing": True,
        # Rows without padding share one sequence: transformers tells them apart by their positions.
        "use_remove_padding": True,
        "override_config": {"attn_implementation": attention},
    }


def _optimizer(config: RlConfig, backend: Backend) -> dict[str, Any]:
    schedule: dict[str, Any] = {"lr_scheduler_type": "constant"}
    if backend == "megatron":
        schedule = {"lr_decay_style": "constant"}
        if config.decay:
            schedule = {"lr_decay_style": "linear", "min_lr": config.final_learning_rate}
    return {
        "optim": {
            "lr": config.learning_rate,
            "lr_warmup_steps": config.warmup_steps,
            "clip_grad": config.max_grad_norm,
            "weight_decay": 0.0,  # as in our own trainer
            **schedule,
        }
    }


def _engine(
    machines: Machines, offloaded: bool, tensor_parallel: int, *, frozen: bool = False
) -> dict[str, Any]:
    """Return how weights are distributed; the reference of the KL divergence is `frozen`."""
    offload: dict[str, Any] = {"param_offload": offloaded}
    if machines.backend == "megatron":
        offload |= {} if frozen else {"optimizer_offload": offloaded}
        return {"megatron": {"tensor_model_parallel_size": tensor_parallel, **offload}}
    offload |= {"model_dtype": "bfloat16"} if frozen else {"optimizer_offload": offloaded}
    return {"fsdp_config": {"strategy": "fsdp2", **offload}}


def _mini_batch(groups: int, config: RlConfig, machines: Machines) -> int:
    """Return the groups of an optimizer step, where a batch has at most so many `groups`.

    verl fills a batch up with empty rollouts to a multiple of a step's rollouts and of the processes. The
    rollouts of a step are therefore a multiple of the processes, so that filling up adds no step.
    """
    whole = machines.gpus // math.gcd(machines.gpus, config.samples)
    return -(-groups // (config.optimizer_steps * whole)) * whole


def _sampler(config: RlConfig) -> dict[str, Any]:
    """Return the recipe's arguments of vLLM under verl's keys."""
    own = {name: value for name, value in config.vllm.items() if name in ENGINE}
    others = {k: v for k, v in config.vllm.items() if k not in (*ENGINE, "tensor_parallel_size")}
    return {**own, **({"engine_kwargs": {"vllm": others}} if others else {})}


def _tensor_parallel(recipe: Recipe, shape: Shape, machines: Machines) -> int:
    """Return over how many GPUs vLLM spreads a model: the recipe's number, or the smallest that fits."""
    vllm: Mapping[str, Any] = recipe.rl.vllm
    if "tensor_parallel_size" in vllm:
        return int(vllm["tensor_parallel_size"])
    # Half of vLLM's share is for the weights, and half for the KV cache.
    room = recipe.rates.memory * float(vllm.get("gpu_memory_utilization", SHARE)) / 2
    size = 1
    while HALF * shape.parameters > room * size and size * 2 <= machines.gpus_per_node:
        size *= 2
    return size


def _offloaded(recipe: Recipe, shape: Shape, machines: Machines, *, reference: bool) -> bool:
    """Return True if weights and moments must leave the GPUs while vLLM samples; raises TooSmall."""
    state = TRAINED * shape.parameters + (HALF * shape.parameters if reference else 0)
    each, memory = state / machines.gpus, recipe.rates.memory
    if each > memory:
        nodes = -(-state // int(memory * machines.gpus_per_node))
        raise TooSmall(
            f"{shape.parameters / 1e9:.2f} billion parameters: their training takes {gib(int(each))} on each "
            f"of {machines.gpus} GPUs, which have {gib(int(memory))}: --nodes {nodes} or more"
        )
    return each > ROOMY * memory
