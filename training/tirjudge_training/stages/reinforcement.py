"""The stage of reinforcement learning."""

from __future__ import annotations

from pathlib import Path

from tirjudge.storage.durable_files import RunFolder
from tirjudge.storage.json_lines import JsonObject
from tirjudge_training.data.base import Data, trajectories
from tirjudge_training.distributed.processes import launched_processes
from tirjudge_training.heldout import Validation, ValidationConfig
from tirjudge_training.model_folder import LoraConfig
from tirjudge_training.rl.config import RlConfig
from tirjudge_training.rl.metrics import METRICS, is_idle, nothing_to_learn
from tirjudge_training.rl.rollout_engine import RolloutConfig
from tirjudge_training.rl.screening import teaching_rows
from tirjudge_training.rl.training_loop import checkpoints_kept, train_rl
from tirjudge_training.stages.base import MODEL, Disk, Run, Size, Stage

CPU = "cpu_seconds/"


class OtherTrainer(RuntimeError):
    """Another trainer does the stage; the message is one line and names the command."""


class NothingLearned(RuntimeError):
    """No batch of the stage had a group in the loss; the message is one line."""


class Reinforcement(Stage):
    """RL (TIR §4.2) from the model of an earlier stage, which is also the reference of the KL divergence."""

    config: RlConfig
    lora: LoraConfig | None = None
    """None trains all weights."""
    validation: ValidationConfig | None = None
    """Validation of the stage's steps, to select the best step; None if no selection follows."""
    answers: RolloutConfig | None = None
    """Limits of answers to validation tasks; None means the limits of training."""
    screen: str | None = None
    """The earlier stage that screened the rows; None trains on all rows."""
    distributed = True

    def require_trl(self) -> None:
        """Raise OtherTrainer if the recipe gives the stage to verl."""
        if self.config.trainer == "verl":
            raise OtherTrainer(
                f"{self.name} is trained by verl: run `tirjudge launch verl` with the same --recipe, --set "
                "and --output, and then this command again; --set rl.trainer=trl trains it here"
            )

    def work(self, folder: RunFolder, run: Run) -> JsonObject:
        self.require_trl()
        start = run.model(self.start)
        validation = None
        if self.validation is not None:
            validation = Validation(
                folder,
                run.data.validation(self.validation.n),
                self.answers or self.config,
                every=self.validation.every,
                keep=self.validation.keep,
                save=lambda path, model: run.save(path, model, start, self.lora, half=True),
                say=run.say,
                processes=run.processes,
            )
        model = train_rl(
            Path(start),
            folder,
            self.config,
            lora=self.lora,
            dtype=run.dtype,
            kernels=run.kernels,
            environments=run.data.environments,
            source=run.data.source(self.seed, self.config.rows, self.chosen(run)),
            seed=self.seed,
            say=run.say,
            processes=run.processes,
            enable_thinking=run.enable_thinking,
            reward_questions=run.reward_questions(folder),
            validation=validation,
        )
        rows = list(folder.read(METRICS))
        if all(map(is_idle, rows)):
            raise NothingLearned(
                f"{self.name}: {nothing_to_learn(rows)}; no model is written, and {start} is the one to use"
            )
        run.save(folder.path / MODEL, model, start, self.lora)
        return {
            "steps": len(rows),
            "seconds": sum(row["seconds/step"] for row in rows),
            "cpu_seconds": sum(row[name] for row in rows for name in row if name.startswith(CPU)),
        }

    def chosen(self, run: Run) -> frozenset[str] | None:
        """Return the ids of rows left by the finished screening; None without a screening."""
        if self.screen is None or self.config.screen is None:
            return None
        return teaching_rows(run.path / self.screen, self.config.screen, self.seed)

    def size(self, data: Data) -> Size:
        config = self.config
        rows = config.steps * config.groups * config.samples
        # In the worst case every round replaces all groups. Where the rows are limited, replacements use them
        # up, so that nothing more is sampled and fewer batches are trained.
        worst = 1 + config.replacement_rounds
        limited = config.rows is not None
        tasks = data.validation(self.validation.n) if self.validation is not None else []
        return Size(
            f"{_length(config)} of {config.groups} x {config.samples}",
            sampled=rows,
            resampled=0 if limited else rows * config.replacement_rounds,
            trained=rows,
            validated=self._validations * trajectories(data, tasks),
            spared=rows - rows // worst if limited else 0,
        )

    def check(self, data: Data) -> None:
        """Raise ValueError if the launched processes cannot divide a batch; verl divides its own."""
        if self.config.trainer == "trl":
            try:
                self.config.shares(launched_processes())
            except ValueError as error:
                raise ValueError(f"{self.name}: {error}") from None

    def disk(self) -> Disk:
        whole = self.lora is None or self.lora.merge
        # The next snapshot is written before the worst is deleted.
        snapshots = min(self.validation.keep + 1, self._validations or 2) if self.validation and whole else 0
        return Disk(
            checkpoints=checkpoints_kept(self.config, self.config.steps), models=1, snapshots=snapshots
        )

    @property
    def _validations(self) -> int:
        """The number of validated steps, at most; the last step is always validated."""
        return -(-self.config.steps // self.validation.every) if self.validation is not None else 0

    @property
    def reference(self) -> bool:
        return self.config.beta > 0


def _length(config: RlConfig) -> str:
    if config.epochs is None:
        return f"{'at most ' if config.rows is not None else ''}{config.steps} batches"
    return f"{config.epochs:g} epoch{'s' * (config.epochs != 1)} in batches"
