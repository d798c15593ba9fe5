"""Checkpoints that survive a kill, of whole or sharded models, and the full weights of such a model.

A checkpoint counts only if it was marked as complete after its last byte. That of a sharded model has the
folders of accelerate's `SHARDED_STATE_DICT`, which torch.distributed.checkpoint can read in any number of
processes, and `accelerate merge-weights` too: every process writes its own shards, while training goes on.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile, ZipFile

from tirjudge.storage.durable_files import RunFolder, write_atomically
from tirjudge.storage.settings_text import Damaged, json_file
from tirjudge_training.distributed.fsdp import set_precision
from tirjudge_training.distributed.processes import ALONE, PATIENCE, Processes, Sharding

if TYPE_CHECKING:
    from transformers import Trainer
else:
    Trainer = object

APART = "interrupted"
"""The subfolder for the checkpoint of an interrupted training, outside the schedule."""
MARK = "complete"
"""The file that marks a complete checkpoint; it contains how the optimizer state was sharded."""
ADAPTER, WRAPPED = ".lora_", ".base_layer."
"""Parts of PEFT's parameter names: of an adapter's weights, and of the weights under the adapter."""
REFERENCE = ".ref."
"""Part of the names of TRL's copy of the adapter that RL goes on with, for the KL term."""
PEFT = "base_model.model."
"""The start of PEFT's parameter names."""


EVENTS = "events.jsonl"
"""The file of a stage's restarts, stops and changed settings: `step`, `event` (resumed, stopped or changed)
and `about`."""


class IncompatibleCheckpoint(RuntimeError):
    """A checkpoint whose optimizer state these processes cannot load; one line."""


def mark(checkpoint: Path) -> None:
    """Mark a fully written checkpoint as complete; called by the first process."""
    write_atomically(checkpoint / MARK, str(Sharding.launched()))


def drop_old(folder: Path, keep: int) -> None:
    """Delete the checkpoints before the last `keep` complete ones, and that of an interrupted training."""
    kept = marked(folder)[-keep:]
    for checkpoint in folder.glob("checkpoint-*"):
        # Incomplete ones were left by a kill, which may have interrupted this very deletion.
        if kept and step_of(checkpoint) < step_of(kept[-1]) and checkpoint not in kept:
            # The mark goes first: a kill in between must not leave a checkpoint that counts but lacks files.
            (checkpoint / MARK).unlink(missing_ok=True)
            shutil.rmtree(checkpoint)
    shutil.rmtree(folder / APART, ignore_errors=True)


def marked(folder: Path) -> list[Path]:
    """Return the complete `checkpoint-N` folders by rising N; interrupted ones are left out."""
    return sorted((path.parent for path in folder.glob(f"checkpoint-*/{MARK}")), key=step_of)


def latest(folder: Path) -> Path | None:
    """Return the last complete checkpoint, that of an interrupted training included, or None.

    Raises IncompatibleCheckpoint if it was sharded in another way: transformers itself would
    resume without a warning, with Adam's moments and the learning rate reset.
    """
    last = max((*marked(folder), *marked(folder / APART)), key=step_of, default=None)
    if last is not None:
        writers, own = (last / MARK).read_text(encoding="utf-8"), str(Sharding.launched())
        if writers != own:
            raise IncompatibleCheckpoint(
                f"{last} was written by {writers}, and {own} cannot resume from it: launch the run as before"
            )
    return last


def resumable(folder: Path) -> Path | None:
    """Return the last complete checkpoint, see `latest`. Raises Damaged if it has lost something since.

    Without the optimizer's file transformers would begin with fresh moments and rates, and report nothing.
    """
    last = latest(folder)
    if last is not None and (fault := _fault(last)):
        earlier = [path for path in marked(folder) if step_of(path) < step_of(last)]
        then = f"resumes from {earlier[-1].name}" if earlier else "begins the stage again"
        raise Damaged(f"{last} is damaged ({fault}): delete this folder, and the same command {then}")
    return last


def _fault(checkpoint: Path) -> str:
    """Return what a checkpoint lacks, or which of its files is cut short; empty for a whole one."""
    from safetensors import SafetensorError, safe_open

    parts = [f"{name}/.metadata" for name in KEYS] if holds_shards(checkpoint) else ["optimizer.pt"]
    for name in (TRAINER_STATE, SCHEDULER, *parts):
        if not (checkpoint / name).is_file():
            return f"it lacks {name}"
    if not (holds_shards(checkpoint) or any(checkpoint.glob("*.safetensors"))):
        return "it lacks its weights"
    for path in sorted(checkpoint.iterdir()):
        try:
            if path.name == TRAINER_STATE:
                json_file(path)
            elif path.suffix in (".pt", ".pth"):
                ZipFile(path).close()  # reads the directory at its end
            elif path.suffix == ".safetensors":
                with safe_open(path, framework="pt"):  # compares the size with that of the tensors
                    pass
        except (ValueError, BadZipFile, SafetensorError):
            return f"{path.name} is not whole"
    return ""


def record_resumption(run: RunFolder, step: int, repeated: str) -> None:
    """Write to a stage's events that training resumes after `step`; `repeated` names repeated steps."""
    run.append(EVENTS, {"step": step, "event": "resumed", "about": f"resumed at step {step + 1}{repeated}"})


def step_of(checkpoint: Path) -> int:
    """Return the number of optimizer steps at which a checkpoint was written."""
    return int(checkpoint.name.rpartition("-")[2])


def full_weights(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield name and tensor of every weight; tied weights appear under their first name only.

    The model is not changed. If its parameters are sharded over processes (FSDP), every process must iterate
    over all weights, since gathering is a collective operation.
    """
    import torch

    seen = set()
    for name, weight in model.state_dict(keep_vars=True).items():
        # Tied weights are one object under two names; a model file stores them once.
        if ADAPTER in name or id(weight) in seen:
            continue
        seen.add(id(weight))
        with torch.no_grad():
            tensor = gathered(weight)
            # The adapter's update is added to a copy, so that training goes on with the adapter.
            if name.endswith(f"{WRAPPED}weight"):  # not the bias of a layer, which Qwen2 has
                added = _added(model.get_submodule(name.rpartition(WRAPPED)[0]))
                # Summed in the adapter's precision: a frozen base may be in bfloat16.
                tensor = (tensor + added).to(tensor.dtype)
        yield name.removeprefix(PEFT).replace(WRAPPED, "."), tensor


def adapter_weights(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield name, as PEFT stores it, and tensor of every weight of the adapter; see `full_weights`."""
    for name, weight in adapter_state(model):
        if REFERENCE in name:
            continue
        place = name.removeprefix(PEFT).replace(".default.", ".")
        yield f"{PEFT}{place}", weight


def adapter_state(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield name, as the model has it, and tensor of every weight of the adapter; see `full_weights`."""
    for name, weight in model.state_dict(keep_vars=True).items():
        if ADAPTER in name:
            yield name, gathered(weight)


def on_the_first(
    model: Any, processes: Processes, weights: Callable[[Any], Iterable[tuple[str, Any]]] = full_weights
) -> dict[str, Any]:
    """Return the weights in the first process, an empty dict in the others; all must make this call."""
    # Every process iterates, as gathering requires, but only the first keeps the weights.
    first = processes.rank == 0
    return {name: tensor.cpu() for name, tensor in weights(model) if first}


def _added(layer: Any) -> Any:
    """Return what an adapter adds to a layer's weight: scaling * B A (LoRA, Hu et al. 2021, section 4.1)."""
    (adapter,) = layer.active_adapters
    below, above = (gathered(part[adapter].weight) for part in (layer.lora_A, layer.lora_B))
    return layer.scaling[adapter] * (above @ below)


def gathered(weight: Any) -> Any:
    """Return the tensor itself, or the full tensor of a DTensor, gathered from all processes."""
    return weight.full_tensor() if hasattr(weight, "full_tensor") else weight.detach()


STATE_DICT_TYPE, SHARDED = "FSDP_STATE_DICT_TYPE", "SHARDED_STATE_DICT"
"""accelerate's variable for the form of a checkpoint, and its value for shards."""
WEIGHTS, MOMENTS = "pytorch_model_fsdp_0", "optimizer_0"
"""accelerate's names for the folders with the shards of the weights and of Adam's moments."""
KEYS = {WEIGHTS: "model", MOMENTS: "optimizer"}
"""The key of the state within each folder."""
SCHEDULER, TRAINER_STATE = "scheduler.pt", "trainer_state.json"


def _sharded() -> bool:
    return Sharding.launched() is Sharding.FSDP


def holds_shards(checkpoint: Path) -> bool:
    """Return True if the weights of a checkpoint are in shards."""
    return (checkpoint / WEIGHTS).is_dir()


class CheckpointWriter:
    """Writes the shards of one checkpoint at a time in the background.

    Every process of a training has one, and makes the same calls.
    """

    def __init__(self, processes: Processes = ALONE) -> None:
        self.processes = processes
        self._groups: list[Any] = []
        self._pending: list[Future[Any]] = []
        self._completion: Future[None] | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")

    def begin(self, folder: Path) -> None:
        """Wait for the previous checkpoint, and delete any remains of a killed run in `folder`."""
        self.wait()
        self.processes.first(lambda: shutil.rmtree(folder, ignore_errors=True))

    def write(self, folder: Path, states: Mapping[str, Any]) -> None:
        """Copy the states, by folder name, to this machine's memory and start to write them."""
        import torch.distributed as dist
        from torch.distributed.checkpoint.filesystem import FileSystemWriter
        from torch.distributed.checkpoint.state_dict_saver import async_save

        if not self._groups:
            # The threads communicate while the trainer does: messages in its group would be mixed up.
            alone = not dist.is_initialized()
            # One group for each state, because both are written at the same time by threads of their own.
            self._groups = [None if alone else dist.new_group(backend="gloo", timeout=PATIENCE) for _ in KEYS]
        for (name, key), group in zip(KEYS.items(), self._groups, strict=True):
            (folder / name).mkdir(parents=True, exist_ok=True)
            storage = FileSystemWriter(folder / name)
            # A future, since the state is copied before `async_save` returns.
            part: Any = async_save({key: states[name]}, storage_writer=storage, process_group=group)
            self._pending.append(part)

    def then(self, complete: Callable[[], None]) -> None:
        """Call `complete` in the first process as soon as the shards of all processes are on the disk."""
        if self.processes.rank:
            return
        if not self._pending:
            complete()
            return
        pending = tuple(self._pending)

        def finish() -> None:
            for part in pending:
                _result(part)
            complete()

        self._completion = self._thread.submit(finish)

    def wait(self) -> None:
        """Wait until the checkpoint in progress is complete; raises the error of a failed checkpoint."""
        pending, completion = self._pending, self._completion
        self._pending, self._completion = [], None
        for part in pending:
            _result(part)
        if completion is not None:
            completion.result()


class ShardedTrainer(Trainer):
    """A mixin before a transformers trainer for sharded models: their precision, and their checkpoints.

    Checkpoints are written in the background; transformers itself would let training wait. Launches that do
    not shard the model are left to transformers.
    """

    def __init__(self, *, writer: CheckpointWriter, **trainer: Any) -> None:
        self.checkpoint_writer = writer
        super().__init__(**trainer)
        set_precision(self.accelerator)  # the model is sharded when training begins

    def train(self, *args: Any, **options: Any) -> Any:
        result = super().train(*args, **options)
        # The last checkpoint may still be under way, and a failure to write it must end the stage.
        self.checkpoint_writer.wait()
        return result

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write what a checkpoint has besides shards: configuration and tokenizer, or a whole adapter."""
        if not (_internal_call and output_dir and _sharded()):
            super().save_model(output_dir, _internal_call)
            return
        folder = Path(output_dir)
        self.checkpoint_writer.begin(folder)
        processes = self.checkpoint_writer.processes
        if hasattr(self.model, "peft_config"):
            adapter = on_the_first(self.model, processes, adapter_state)
            processes.first(lambda: self._save(output_dir, state_dict=adapter))
            return
        processes.first(lambda: self.model.config.save_pretrained(folder))
        processes.first(lambda: self.processing_class.save_pretrained(folder))

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        import torch

        if not _sharded():
            super()._save_optimizer_and_scheduler(output_dir)
            return
        states = {WEIGHTS: _weights(self.model), MOMENTS: _moments(self.model, self.optimizer)}
        self.checkpoint_writer.write(Path(output_dir), states)
        if self.args.should_save:
            torch.save(self.lr_scheduler.state_dict(), Path(output_dir) / SCHEDULER)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        checkpoint = Path(resume_from_checkpoint)
        if not holds_shards(checkpoint):
            super()._load_from_checkpoint(resume_from_checkpoint, model)
            return
        from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

        weights = _read(checkpoint, WEIGHTS, _weights(self.model))
        # Not strict, because the checkpoint of an adapter lacks the frozen weights.
        set_model_state_dict(self.model, weights, options=StateDictOptions(strict=False))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        import torch
        from torch.distributed.checkpoint.state_dict import set_optimizer_state_dict

        if checkpoint is None or not holds_shards(Path(checkpoint)):
            super()._load_optimizer_and_scheduler(checkpoint)
            return
        moments = _read(Path(checkpoint), MOMENTS, _moments(self.model, self.optimizer))
        set_optimizer_state_dict(self.model, self.optimizer, moments)
        self.lr_scheduler.load_state_dict(torch.load(Path(checkpoint) / SCHEDULER, weights_only=True))


def _read(checkpoint: Path, name: str, state: dict[str, Any]) -> dict[str, Any]:
    """Return a state with the values that a checkpoint has for it; its tensors are overwritten."""
    from torch.distributed.checkpoint.state_dict_loader import load

    found = {KEYS[name]: state}
    load(found, checkpoint_id=checkpoint / name)
    return found[KEYS[name]]


def _weights(model: Any) -> dict[str, Any]:
    """Return this process's shards of the trained weights."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    return get_model_state_dict(model, options=StateDictOptions(ignore_frozen_params=True))


def _moments(model: Any, optimizer: Any) -> dict[str, Any]:
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    return get_optimizer_state_dict(model, optimizer)


def _result(part: Future[Any]) -> Any:
    """Return the result of a background write. Raises the first process's error as it is."""
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        return part.result()
    except CheckpointException as error:
        # It is no Exception, and would not be recognised as a full disk.
        (reason, _), *_ = error.failures.values()
        raise reason from None
