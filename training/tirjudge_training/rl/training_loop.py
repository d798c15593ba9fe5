"""A run of RL in a folder: it resumes after any interruption and leaves a trained model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tirjudge.judging.meta_judge import RewardQuestions
from tirjudge.storage.durable_files import RunFolder
from tirjudge.storage.settings_text import Damaged
from tirjudge_environments import Environment
from tirjudge_training.cpu_forward import score_learned_tokens
from tirjudge_training.distributed import checkpoints
from tirjudge_training.distributed.checkpoints import CheckpointWriter
from tirjudge_training.distributed.device import PLAIN, Dtype, Kernels, record_machine
from tirjudge_training.distributed.interruption import Interrupted, Interruption, checkpoint_callback
from tirjudge_training.distributed.processes import ALONE, Processes
from tirjudge_training.model_folder import LoraConfig, load_tokenizer, load_trainable, name_base, network
from tirjudge_training.rl.batch_sampler import BatchSampler
from tirjudge_training.rl.config import RlConfig
from tirjudge_training.rl.health import Health
from tirjudge_training.rl.metrics import MetricsLog, compared_rows
from tirjudge_training.rl.rollout_engine import Engine
from tirjudge_training.rl.stage_trainer import build_trainer
from tirjudge_training.rl.stream import STREAM, RowStream, TaskSource

CHECKPOINTS = "checkpoints"
Validate = Callable[[Engine, Any, int, bool], None]
"""Receives the engine with the weights after so many batches, the model, their number, and whether they are
the last ones."""


def checkpoints_kept(config: RlConfig, steps: int) -> int:
    """Return how many checkpoints an RL stage of so many generation batches leaves.

    For 0 steps (epochs that have not been counted yet) it is the upper limit.
    """
    return min(config.keep_checkpoints, -(-steps // config.checkpoint_every)) or config.keep_checkpoints


def train_rl(
    start: Path,
    run: RunFolder,
    config: RlConfig,
    *,
    lora: LoraConfig | None = None,
    dtype: Dtype = "float32",
    kernels: Kernels = PLAIN,
    environments: Mapping[str, Environment],
    source: TaskSource,
    seed: int,
    say: Callable[[str], None],
    processes: Processes = ALONE,
    enable_thinking: bool | None = None,
    reward_questions: RewardQuestions | None = None,
    validation: Validate | None = None,
) -> Any:
    """Train the model folder `start`, which is also the KL reference, by RL; return the trained model.

    With `lora` the returned model contains an adapter, see `full_weights`. `dtype` is the type of the
    weights that are not trained; trained ones are float32.

    Checkpoints are written to `run`. An interrupted stage resumes from the last complete checkpoint and
    writes what an uninterrupted one would have written. Ctrl-C writes a checkpoint after the step in progress
    and raises Interrupted. Each of several `processes` must make this call.
    `enable_thinking` is the thinking mode of the prompts, see `ChatEncoder`.
    `reward_questions` answers the questions that rewards depend on and is closed here. Raises NotAnswered if
    it gets no answers. `validation` measures the policy from time to time, and at the end.
    """
    tokenizer = load_tokenizer(start)
    # Trained weights stay float32: Adam updates at a rate of 1e-6 would be lost to rounding in bfloat16.
    trained = load_trainable(start, lora, dtype=dtype, kernels=kernels, processes=processes)
    model = network(trained)
    saved = processes.first(lambda: checkpoints.resumable(run.path / CHECKPOINTS))
    metrics_log = MetricsLog(run, config.steps, say, Health(config.health))
    # A step that was logged after the last checkpoint is repeated, so its rows are dropped.
    step = checkpoints.step_of(saved) // config.optimizer_steps if saved else 0
    metrics_log.resume(step)
    if isinstance(source, RowStream):
        source.go_to(processes.first(lambda: _place(run, step)))
    interruption, writer = Interruption(say), CheckpointWriter(processes)
    with Engine(
        model,
        tokenizer,
        environments,
        config,
        reward_questions=reward_questions,
        processes=processes,
        enable_thinking=enable_thinking,
        off_policy=config.off_policy,
    ) as engine:
        trainer = build_trainer(
            trained,
            tokenizer,
            config,
            engine=engine,
            source=source,
            seed=seed,
            output=str(run.path / CHECKPOINTS),
            on_batch=metrics_log.generation,
            on_sampled=metrics_log.sampled,
            compared=lambda: compared_rows(run.path),
            on_weights=(lambda step: validation(engine, trained, step, False)) if validation else None,
            processes=processes,
            writer=writer,
            # A model that begins with an adapter goes on with it: a second adapter would be put on top of it.
            lora=None if trained is not model else lora,
        )
        # In this order: a checkpoint is complete only with the batch that was sampled ahead of it.
        trainer.add_callback(_callback(metrics_log, trainer.sampling, config.optimizer_steps))
        trainer.add_callback(
            checkpoint_callback(
                interruption, writer, keep=config.keep_checkpoints, unit=config.optimizer_steps
            )
        )
        name_base(trainer.model, start)
        # Only now, because building the trainer replaces the model's forward pass by TRL's.
        score_learned_tokens(
            model, temperature=config.temperature, differentiable_entropy=config.entropy_bonus > 0
        )
        record_machine(
            run, say, model, sampler=type(engine.generator).__name__, precision=engine.generator.precision
        )
        trainer.sampling.resume(saved)
        if saved is not None and trainer.sampling.ended:
            trainer.args.max_steps = checkpoints.step_of(saved)  # killed after its last step
        with interruption:
            trainer.train(resume_from_checkpoint=str(saved) if saved else None)
        if interruption.requested:
            done = trainer.state.global_step // config.optimizer_steps
            raise Interrupted(f"interrupted after step {done} of {config.steps}, which has a checkpoint")
        if validation is not None:
            engine.refresh()  # no batch follows that would do it
            validation(engine, trained, trainer.state.global_step // config.optimizer_steps, True)
            engine.rest()
    return model


def _place(run: RunFolder, step: int) -> dict[str, Any]:
    """Return the place in the stream of rows after the batch before `step`."""
    if step == 0:
        return {"next": 0, "deferred": []}
    place = next((row for row in run.read(STREAM) if row["step"] == step - 1), None)
    if place is None:
        raise Damaged(
            f"{run.path / STREAM} lacks the batch before step {step + 1}: put the former file back, or "
            f"delete {run.path} to repeat the stage"
        )
    return place


def _callback(metrics_log: MetricsLog, sampling: BatchSampler, unit: int) -> Any:
    from transformers import TrainerCallback

    class Watch(TrainerCallback):
        """Passes the trainer's logs on, saves what is sampled ahead, and ends training where the rows end."""

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            metrics_log.log(logs or {})

        def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            metrics_log.passed(args.steps_per_generation)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            metrics_log.passed(args.steps_per_generation)
            # At the planned last step the trainer stops and saves by itself.
            if sampling.ended and state.global_step % unit == 0 and not control.should_training_stop:
                control.should_save = control.should_training_stop = True

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            sampling.save(Path(args.output_dir) / f"checkpoint-{state.global_step}")

    return Watch()
