"""The stages of SFT: the fine-tuning on the samples of others, and the writing of bare right answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import Field

from tirjudge.storage.durable_files import RunFolder
from tirjudge.storage.json_lines import JsonObject, read_lines
from tirjudge_environments import (
    ChatEncoder,
    Completion,
    Encoder,
    Environment,
    Finish,
    JudgeTask,
    Verdict,
    View,
)
from tirjudge_environments.boundary import shown_prompt
from tirjudge_environments.orders import letter
from tirjudge_environments.types import FrozenModel
from tirjudge_training.data.base import Data, demonstrated, trajectories
from tirjudge_training.distributed.processes import SharedRows, launched_processes
from tirjudge_training.model_folder import LoraConfig, load_tokenizer
from tirjudge_training.sft import KEPT_CHECKPOINTS, METRICS, Sample, SftConfig, train_sft
from tirjudge_training.stages.base import MODEL, SAMPLES, Disk, Run, Size, Stage


class FineTuning(Stage):
    """Trains a stage's model on samples of other stages; outputs of the sandbox are masked."""

    samples: tuple[str, ...]
    """Names of the stages with the training samples."""
    prompts: int | None
    """Number of prompts that each stage processed; None is every training row."""
    drawn: int
    """Seed with which those stages drew the prompts."""
    demonstrated: bool = False
    """True for prompts of `data.demonstrations`, False for prompts of RL."""
    families: tuple[str, ...] = ()
    """The only constraint families of demonstrated prompts; empty means all."""
    config: SftConfig
    lora: LoraConfig | None = None
    """None trains all weights."""
    distributed = True

    def work(self, folder: RunFolder, run: Run) -> JsonObject:
        found = [sample for name in self.samples for sample in kept_samples(run.path / name)]
        most = self.config.max_tokens
        # A dialogue that is cut has no verdict to learn, so that a recipe must ask for it.
        fitting = (one.first_turns(most) if self.config.cut else one for one in found)
        samples = [sample for sample in fitting if sample and len(sample.ids) <= most]
        if not found:
            raise RuntimeError(
                f"{self.name}: nothing to learn from: {' and '.join(self.samples)} kept no trajectory; "
                "train the sampling model further, or sample more"
            )
        if not samples:
            key = "warmup.sft.max_tokens" if self.demonstrated else "sft.max_tokens"
            raise RuntimeError(f"{self.name}: all {len(found)} samples are longer than {key}: raise it")
        start = run.model(self.start)
        model = train_sft(
            Path(start),
            folder,
            self.config,
            samples,
            lora=self.lora,
            dtype=run.dtype,
            kernels=run.kernels,
            seed=self.seed,
            say=run.say,
            processes=run.processes,
        )
        # A distributed stage: every process holds a part of the model and takes part in saving.
        run.save(folder.path / MODEL, model, start, self.lora)
        rows = list(folder.read(METRICS))
        return {
            "samples": len(samples),
            "too_long": len(found) - len(samples),
            "steps": rows[-1]["step"],
            "seconds": sum(row["seconds/steps"] for row in rows),
            "cpu_seconds": sum(row["cpu_seconds/steps"] for row in rows),
        }

    def size(self, data: Data) -> Size:
        if self.demonstrated:
            tasks = demonstrated(data, self.prompts, self.drawn, self.families)
        else:
            tasks = data.prompts(self.prompts, self.drawn)
        most = len(self.samples) * trajectories(data, tasks)
        return Size(f"at most {most:,} samples", trained=most * self.config.epochs)

    def check(self, data: Data) -> None:
        """Raise ValueError if the launched processes cannot divide an optimizer step."""
        try:
            self.config.share(launched_processes())
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from None

    def disk(self) -> Disk:
        return Disk(checkpoints=KEPT_CHECKPOINTS, models=1)


def kept_samples(stage: Path) -> Iterator[Sample]:
    """Yield the samples of a stage in the order of its prompts, which may have finished in another order."""
    for row in sorted(read_lines(stage / SAMPLES), key=lambda row: row["index"]):
        for one in row["kept"]:
            yield Sample(tuple(one["ids"]), tuple(one["labels"]))


LETTER = "{letter}"


class AnswersConfig(FrozenModel):
    """The answers that `method = "answers"` teaches."""

    text: str = LETTER
    """The whole answer in the form that the judge parses; `{letter}` is the letter of the right response."""
    prompts: int | None = Field(default=None, gt=0)
    """Number of training tasks to learn from; None is all tasks."""


class Answering(Stage):
    """Writes the answer that names the label, for each view of a labelled task, in all processes."""

    config: AnswersConfig
    distributed = True

    def work(self, folder: RunFolder, run: Run) -> JsonObject:
        tokenizer = load_tokenizer(run.model(self.start))
        encoder = ChatEncoder(tokenizer, enable_thinking=run.enable_thinking)
        tasks = run.data.prompts(self.config.prompts, self.seed)
        rows = SharedRows(folder, SAMPLES, run.processes)
        for index, formatted in run.processes.share(rows.left(tasks)):
            judge = run.data.environments[formatted.format]
            samples = self._samples(judge, formatted.task, encoder, tokenizer.eos_token_id)
            rows.append({"index": index, "id": formatted.task.id, "kept": samples})
        rows.merge()
        unlabelled = sum(formatted.task.label is None for formatted in tasks)
        return {"prompts": len(tasks), "unlabelled": unlabelled}

    def size(self, data: Data) -> Size:
        return Size(f"{len(data.prompts(self.config.prompts, self.seed)):,} right answers")

    def _samples(self, judge: Environment, task: JudgeTask, encoder: Encoder, end: int) -> list[JsonObject]:
        if task.label is None:
            return []
        samples = []
        for view in judge.views(task):
            prompt = shown_prompt(judge, task, view)
            answer = self._answer(judge, task, view, encoder.opening(prompt))
            samples.append(Sample.answer(encoder, prompt, answer, end))
        return [{"ids": sample.ids, "labels": sample.labels} for sample in samples]

    def _answer(self, judge: Environment, task: JudgeTask, view: View, opening: str) -> str:
        """Return the text behind the `opening` of the judge's turn.

        Raises RuntimeError if the judge would not parse the turn as the right verdict.
        """
        name = letter(view.order.index(task.label)) if task.label in view.order else ""
        text = self.config.text.replace(LETTER, name)
        verdict = judge.read(task, view, Completion(text=opening + text, finish=Finish.END))
        if not (isinstance(verdict, Verdict) and verdict.choice == task.label):
            raise RuntimeError(
                f"answers.text: the judge does not read {text!r} as the right answer to {task.id!r}: "
                "write it in the format of the judge"
            )
        return text
