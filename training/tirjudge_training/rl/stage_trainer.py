"""The trainer of an RL stage, built from its configuration: TRL's arguments, and our additions to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tirjudge_training.distributed.checkpoints import CheckpointWriter, ShardedTrainer
from tirjudge_training.distributed.device import current_device
from tirjudge_training.distributed.fsdp import each_batch_reduced
from tirjudge_training.distributed.processes import ALONE, Processes
from tirjudge_training.model_folder import LoraConfig, network
from tirjudge_training.rl.config import RlConfig, require_reporters
from tirjudge_training.rl.dynamic_sampling import RoundProgress
from tirjudge_training.rl.losses import open_loss
from tirjudge_training.rl.packed_attention import can_pack, pack_rows
from tirjudge_training.rl.packing import without_left_padding
from tirjudge_training.rl.rollout_engine import Engine
from tirjudge_training.rl.stream import TaskSource
from tirjudge_training.rl.trainer import BatchCallback, JudgeBatches
from tirjudge_training.rl.trl_rollout import RolloutTokens, quiet, rollout_output


def build_trainer(
    model: Any,
    tokenizer: Any,
    config: RlConfig,
    *,
    engine: Engine,
    source: TaskSource,
    seed: int,
    output: str,
    on_batch: BatchCallback = lambda generation: {},
    on_sampled: RoundProgress = lambda ended, tokens, rollouts: None,
    on_weights: Callable[[int], None] | None = None,
    compared: Callable[[], Sequence[RolloutTokens]] = lambda: (),
    processes: Processes = ALONE,
    writer: CheckpointWriter | None = None,
    lora: LoraConfig | None = None,
) -> Any:
    """Return a GRPOTrainer for a model, which is also the KL reference as it is now.

    `on_weights` is called with the number of trained batches when the sampler has received their weights.
    `compared` returns rows that the start of the stage sampled, on which `kl_start` is measured; it is called
    after the first batch is recorded.
    """
    from datasets import Dataset
    from transformers import PrinterCallback, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    require_reporters(config.report_to)
    # The reference is the model without its adapter, or TRL's copy of the adapter that RL goes on with.
    adapted = lora is not None or hasattr(model, "peft_config")
    with quiet():
        # Made here because GRPOTrainer is only imported here: trl takes seconds to load.
        trainer: Any = type("JudgeTrainer", (JudgeBatches, ShardedTrainer, GRPOTrainer), {})(
            engine=engine,
            source=source,
            config=config,
            seed=seed,
            on_batch=on_batch,
            on_sampled=on_sampled,
            on_weights=on_weights,
            compared=compared,
            processes=processes,
            writer=writer or CheckpointWriter(processes),
            model=model,
            processing_class=tokenizer,
            peft_config=lora.adapter() if lora else None,
            args=GRPOConfig(
                output_dir=output,
                seed=seed,
                project="tirjudge",
                # The names of the run and of the stage: the last part of the path is the same in all runs.
                run_name="/".join(Path(output).parts[-3:-1]),
                # Without a beta TRL makes no reference; `JudgeBatches` then copies the model.
                beta=config.beta if adapted else 0.0,
                **_arguments(config, processes),
                **current_device().arguments(),
            ),
            # TRL needs a dataset; its rows are never read, only counted.
            train_dataset=Dataset.from_dict({"slot": list(range(config.groups))}),
            rollout_func=lambda prompts, trainer: rollout_output(
                [without_left_padding(row) for row in trainer.rows]
            ),
            reward_funcs=[lambda reward, **row: reward],  # the rewards come with the rollouts
        )
    if config.token_budget is not None:
        for one in (trainer.model, trainer.ref_model):
            if one is not None and can_pack(network(one)):
                pack_rows(network(one))

    class SkipEmptySteps(TrainerCallback):
        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            trainer.skip_empty_step()

    trainer.add_callback(SkipEmptySteps())
    # It prints every log as a dict, and the metrics log already reports a line of progress per batch.
    trainer.remove_callback(PrinterCallback)
    return trainer


def _arguments(config: RlConfig, processes: Processes) -> dict[str, Any]:
    micro_batch, micro_steps = config.shares(processes.world)
    return {
        "max_steps": config.steps * config.optimizer_steps,
        "per_device_train_batch_size": micro_batch,
        "steps_per_generation": micro_steps,
        "gradient_accumulation_steps": micro_steps // config.optimizer_steps,
        "num_generations": config.samples,
        "max_completion_length": config.max_tokens,
        "temperature": config.temperature,
        **open_loss(config.loss).arguments(),
        **each_batch_reduced(processes),
        "scale_rewards": "none",  # advantages arrive normalised, see `advantages`
        "epsilon": config.epsilon,
        "epsilon_high": config.epsilon_high,
        "use_bias_correction_kl": False,  # the papers print the KL term without it
        "entropy_coef": config.entropy_bonus,
        "learning_rate": config.learning_rate,
        "max_grad_norm": config.max_grad_norm,
        # One log per generation batch, because the metrics log makes one row of each log.
        "logging_steps": config.optimizer_steps,
        "save_steps": config.checkpoint_every * config.optimizer_steps,
        "ignore_data_skip": True,  # on resume there is no data to skip: the source knows the step
        "report_to": list(config.report_to),
        "logging_nan_inf_filter": False,  # health.py must see a loss of nan
        "disable_tqdm": True,
    }
