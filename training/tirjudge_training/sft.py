"""Supervised fine-tuning on TRL, for the warm-up, rejection sampling and distillation, and its samples."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from tirjudge.console_text import duration
from tirjudge.progress import SECONDS, ProgressReporter
from tirjudge.storage.durable_files import RunFolder
from tirjudge.storage.json_lines import encode_line
from tirjudge_environments import By, Encoder, Message, Prompt, Trajectory, Transcript
from tirjudge_environments.types import FrozenModel, Later
from tirjudge_training.cpu_forward import score_learned_tokens
from tirjudge_training.distributed import checkpoints
from tirjudge_training.distributed.checkpoints import CheckpointWriter, ShardedTrainer
from tirjudge_training.distributed.device import PLAIN, Dtype, Kernels, current_device, record_machine
from tirjudge_training.distributed.fsdp import each_batch_reduced
from tirjudge_training.distributed.interruption import Interrupted, Interruption, checkpoint_callback
from tirjudge_training.distributed.processes import ALONE, Processes
from tirjudge_training.distributed.profiling import PhaseTimer, memory_in_use, return_free_memory
from tirjudge_training.model_folder import LoraConfig, load_tokenizer, load_trainable, name_base, network

SORTED = 6
"""The number of batches that are sorted by length together."""
KEPT_CHECKPOINTS = 2
CHECKPOINTS, METRICS = "checkpoints", "metrics.jsonl"
IGNORED = -100
"""The label of a token that the loss ignores."""


Schedule = Literal[
    "linear",
    "cosine",
    "cosine_with_restarts",
    "polynomial",
    "constant",
    "constant_with_warmup",
    "inverse_sqrt",
]
"""transformers' names of the learning rate schedules that need no further arguments."""


class SftConfig(FrozenModel):
    """The supervised stage. Defaults are TIR-Judge's (§5.1); `ours` marks what the paper does not print."""

    epochs: int = Field(default=1, gt=0)
    batch: int = Field(default=64, gt=0)
    """Samples per optimizer step."""
    micro_batch: int = Field(default=64, gt=0)
    """The most samples of one forward pass on one device; must divide a process's share of `batch` (ours)."""
    learning_rate: float = Field(default=2e-6, gt=0, allow_inf_nan=False)
    schedule: Schedule = "cosine"
    """The learning rate schedule after the warm-up, by its name in transformers (ours)."""
    warmup_steps: int = Field(default=0, ge=0)
    """Optimizer steps over which the learning rate rises linearly (ours)."""
    max_tokens: int = Field(default=8192, gt=0)
    """The most tokens of a sample; a longer one is left out."""
    cut: Annotated[bool, Later(False)] = False
    """Learn the first turns of a longer sample, as many as fit, instead of leaving it out (ours)."""
    checkpoint_every: int = Field(default=100, gt=0)
    """Optimizer steps between checkpoints (ours)."""

    def share(self, processes: int) -> int:
        """Return the samples of one forward pass on each of `processes`.

        Raises ValueError if an optimizer step cannot be divided evenly.
        """
        # More processes than samples per step still get one sample each, which the check below refuses.
        size = min(self.micro_batch, max(1, self.batch // processes))
        if self.batch % (size * processes):
            raise ValueError(
                f"batch = {self.batch} is not a multiple of micro_batch * processes = {size} * {processes}"
            )
        return size


@dataclass(frozen=True, slots=True)
class Sample:
    """One dialogue; `ids` and `labels` have the same length."""

    ids: tuple[int, ...]
    labels: tuple[int, ...]
    """The token id where the model wrote; IGNORED on the prompt and on program outputs."""

    @property
    def trained_tokens(self) -> int:
        """The number of tokens in the loss."""
        return sum(label != IGNORED for label in self.labels)

    def first_turns(self, tokens: int) -> Self | None:
        """Return the sample up to the last turn that ends within so many tokens; None if no turn does."""
        ends = [
            at
            for at, (own, following) in enumerate(pairwise((*self.labels, IGNORED)), 1)
            if own != IGNORED and following == IGNORED and at <= tokens
        ]
        return type(self)(self.ids[: ends[-1]], self.labels[: ends[-1]]) if ends else None

    @classmethod
    def of(cls, trajectory: Trajectory) -> Self:
        """Return a sampled trajectory as a sample; raises ValueError if it has no token ids."""
        transcript = Transcript.of(trajectory)
        written = zip(transcript.completion_ids, transcript.mask, strict=True)
        whole = cls(
            transcript.prompt_ids + transcript.completion_ids,
            (IGNORED,) * len(transcript.prompt_ids) + tuple(i if own else IGNORED for i, own in written),
        )
        # Nothing is learned from an output that ends the dialogue.
        return whole.first_turns(len(whole.ids)) or whole

    @classmethod
    def written(cls, trajectory: Trajectory, encoder: Encoder, end: int) -> Self:
        """Encode a dialogue without token ids, each segment separately; the last turn ends with `end`."""
        # Segment by segment, as the student will sample: a token never spans model and sandbox text.
        ids = list(encoder.prompt(trajectory.prompt))
        labels = [IGNORED] * len(ids)
        for segment in trajectory.segments:
            encoded = encoder.text(segment.text)
            ids += encoded
            labels += encoded if segment.by is By.MODEL else [IGNORED] * len(encoded)
        return cls((*ids, end), (*labels, end))

    @classmethod
    def answer(cls, encoder: Encoder, question: Prompt | str, answer: str, end: int) -> Self:
        """Encode a prompt, or one user message, and its answer, which ends with the token `end`."""
        prompt = Prompt(messages=(Message("user", question),)) if isinstance(question, str) else question
        prompt_ids = tuple(encoder.prompt(prompt))
        written = (*encoder.text(answer), end)
        return cls(prompt_ids + written, (IGNORED,) * len(prompt_ids) + written)


def train_sft(
    start: Path,
    run: RunFolder,
    config: SftConfig,
    samples: Sequence[Sample],
    *,
    lora: LoraConfig | None = None,
    dtype: Dtype = "float32",
    kernels: Kernels = PLAIN,
    seed: int,
    say: Callable[[str], None],
    processes: Processes = ALONE,
) -> Any:
    """Train the model folder `start` on `samples`; return the trained model.

    With `lora` the returned model contains an adapter, see `full_weights`. `dtype` is the type of the
    weights that are not trained; trained ones are float32.

    Checkpoints and metrics are written to `run`. An interrupted stage resumes from the last complete
    checkpoint and ends with the same weights. Ctrl-C writes a checkpoint after the step in progress and
    raises Interrupted. Each of several `processes` must make this call. Raises
    ValueError for a sample that is too long or has no trained tokens.
    """
    from transformers import PrinterCallback
    from trl import SFTTrainer

    _check(samples, config)
    saved = processes.first(lambda: checkpoints.resumable(run.path / CHECKPOINTS))
    _drop_later_metrics(run, checkpoints.step_of(saved) if saved else 0, say)
    interruption, writer = Interruption(say), CheckpointWriter(processes)
    # Trained weights stay float32: small updates would be lost to rounding in bfloat16.
    model = load_trainable(start, lora, dtype=dtype, kernels=kernels, processes=processes)
    adapted = hasattr(model, "peft_config")
    # The warning is about a name that TRL itself still uses.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*gradient_checkpointing\w*` is deprecated")
        # Made here because SFTTrainer is only imported here: trl takes seconds to load.
        trainer: Any = type("FineTuner", (ShardedTrainer, SFTTrainer), {})(
            writer=writer,
            model=model,
            args=_arguments(config, run.path / CHECKPOINTS, seed, processes),
            train_dataset=_dataset(ordered(samples, config, seed, processes.world)),
            processing_class=load_tokenizer(start),
            # A model that begins with an adapter goes on with it: a second adapter would be put on top of it.
            peft_config=lora.adapter() if lora and not adapted else None,
            callbacks=[
                _watch(run, say, processes),
                checkpoint_callback(interruption, writer, keep=KEPT_CHECKPOINTS),
            ],
        )
    trainer.remove_callback(PrinterCallback)  # `say` reports the progress instead
    name_base(trainer.model, start)
    # Only now, because building the trainer replaces the model's forward pass by TRL's.
    score_learned_tokens(network(trainer.model))
    record_machine(run, say, model)
    with interruption:
        trainer.train(resume_from_checkpoint=str(saved) if saved else None)
    if interruption.requested:
        done, steps = trainer.state.global_step, trainer.state.max_steps
        raise Interrupted(f"interrupted after step {done} of {steps}, which has a checkpoint")
    return network(model)


def in_batches(samples: Sequence[Sample], size: int, seed: int) -> list[Sample]:
    """Order the samples so that batches of `size` need little padding and still mix the kinds of samples.

    transformers' own grouping sorts 50 batches together, which gives batches of one kind, in waves.
    """
    # Sorting only a few batches at a time keeps kinds of samples, which differ in length, mixed.
    rng = Random(seed)
    shuffled = rng.sample(samples, len(samples))
    batches = []
    for start in range(0, len(shuffled), SORTED * size):
        window = sorted(shuffled[start : start + SORTED * size], key=lambda sample: len(sample.ids))
        batches += [window[i : i + size] for i in range(0, len(window), size)]
    # Shuffles the batches; the incomplete one comes last, where it does not shift the others' boundaries.
    batches.sort(key=lambda batch: len(batch) < size or rng.random())
    return [sample for batch in batches for sample in batch]


def ordered(samples: Sequence[Sample], config: SftConfig, seed: int, processes: int) -> list[Sample]:
    """Return the samples in the order of training, in which accelerate gives micro-batches to `processes`."""
    # By the micro-batch of the recipe and not of so many processes, so that every optimizer step has the same
    # samples for any number of processes.
    order = in_batches(samples, config.micro_batch, seed)
    if processes == 1:
        return order
    together = config.share(processes) * processes
    whole = len(order) - len(order) % config.batch
    steps = [order[start : start + config.batch] for start in range(0, whole, config.batch)]
    return [
        *(sample for step in steps for sample in share_lengths(step, processes, together)),
        *order[whole:],
    ]


def share_lengths(step: Sequence[Sample], processes: int, together: int) -> Iterator[Sample]:
    """Order an optimizer step so that its processes pass samples of similar lengths at the same time.

    `together` samples are passed at a time, by all `processes`, which wait for the slowest. A step has the
    same samples for any number of processes, and its loss is a mean over all samples, so that only their
    order within the step may change.
    """
    by_length = sorted(step, key=lambda sample: len(sample.ids))
    for start in range(0, len(by_length), together):
        neighbours = by_length[start : start + together]
        for rank in range(processes):
            yield from neighbours[rank::processes]


def _check(samples: Sequence[Sample], config: SftConfig) -> None:
    for number, sample in enumerate(samples):
        if len(sample.ids) > config.max_tokens:
            raise ValueError(
                f"sample {number} has {len(sample.ids)} tokens, more than max_tokens = {config.max_tokens}"
            )
        if not sample.trained_tokens:
            raise ValueError(f"sample {number} has no token written by the model to learn from")


def _dataset(samples: Sequence[Sample]) -> Any:
    from datasets import Dataset

    return Dataset.from_dict(
        {"input_ids": [list(s.ids) for s in samples], "labels": [list(s.labels) for s in samples]}
    )


def _arguments(config: SftConfig, output: Path, seed: int, processes: Processes) -> Any:
    from trl import SFTConfig

    micro_batch = config.share(processes.world)
    return SFTConfig(
        output_dir=str(output),
        num_train_epochs=config.epochs,
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=config.batch // (micro_batch * processes.world),
        learning_rate=config.learning_rate,
        lr_scheduler_type=config.schedule,
        warmup_steps=config.warmup_steps,
        max_length=config.max_tokens,
        # The samples are tokenized and ordered already, see `in_batches`.
        dataset_kwargs={"skip_prepare_dataset": True},
        train_sampling_strategy="sequential",
        seed=seed,
        save_steps=config.checkpoint_every,
        logging_steps=10,
        logging_first_step=True,
        disable_tqdm=True,
        report_to="none",
        **each_batch_reduced(processes),
        **current_device().arguments(),
    )


def _drop_later_metrics(run: RunFolder, step: int, say: Callable[[str], None]) -> None:
    """Drop the metrics that an interrupted run wrote after its last complete checkpoint, and say so."""
    rows = list(run.read(METRICS))
    kept = [row for row in rows if row["step"] <= step]
    if len(kept) < len(rows):
        run.write(METRICS, b"".join(map(encode_line, kept)).decode())
    if step or rows:
        lost = rows[-1]["step"] - step if len(kept) < len(rows) else 0
        repeated = f"; repeating at least {lost} that had no checkpoint yet" if lost else ""
        say(f"resumes at step {step + 1}{repeated}")
        checkpoints.record_resumption(run, step, repeated)


def _watch(run: RunFolder, say: Callable[[str], None], processes: Processes) -> Any:
    from transformers import TrainerCallback

    class Watch(TrainerCallback):
        """Writes metrics and reports progress."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.started, self.first = time.perf_counter(), state.global_step
            self.timer = PhaseTimer()
            self.said = self.started

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            place = f"step {state.global_step + 1} of {state.max_steps}"
            self.parts = ProgressReporter(say, place, "micro-batches", args.gradient_accumulation_steps)

        def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.parts.count(None)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            return_free_memory()
            # Steps that no row covers would be missing in the sums: the last, and those before a checkpoint.
            checkpoint = state.global_step % args.save_steps == 0
            control.should_log |= checkpoint or state.global_step == state.max_steps
            if time.perf_counter() - self.said >= SECONDS and not control.should_log:
                self._report(state)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            if not logs or "loss" not in logs:
                return
            each = self._report(state, f"loss {logs['loss']:.3f}, ")
            # A timer for each row, which covers the steps since the row before.
            timer, self.timer = self.timer, PhaseTimer()
            timer.end("steps")
            wall = timer.parts["steps"][0]
            cpu = round(sum(parts["steps"][1] for parts in processes.every(timer.parts)), 3)
            seconds = {"seconds/mean_step": round(each, 3), "seconds/steps": wall, "cpu_seconds/steps": cpu}
            run.append(METRICS, {"step": state.global_step, **logs, **seconds, **memory_in_use()})

        def _report(self, state: Any, loss: str = "") -> float:
            """Say how far training is, and return the seconds of a step."""
            self.said = time.perf_counter()
            # Steps before an interruption say nothing about this run's speed.
            each = (self.said - self.started) / max(1, state.global_step - self.first)
            left = each * (state.max_steps - state.global_step)
            place = f"step {state.global_step} of {state.max_steps}"
            say(f"{place}: {loss}{each:.2f} s a step, {duration(left)} left")
            return each

    return Watch()
