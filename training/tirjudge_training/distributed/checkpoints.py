"""Checkpoints that survive a kill, and the full weights of a sharded or adapted model.

A checkpoint counts only if it was marked as complete after its last byte.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from tirjudge.storage.run_folder import RunFolder, write_atomically
from tirjudge_training.distributed.processes import Processes, Sharding

APART = "interrupted"
"""The subfolder for the checkpoint of an interrupted training, which is not one of the schedule."""
MARK = "complete"
"""The file that marks a complete checkpoint; it contains how the optimizer state was sharded."""
ADAPTER, WRAPPED = ".lora_", ".base_layer."
"""Parts of PEFT's parameter names: of an adapter's own weights, and of the weights that it modifies."""
REFERENCE = ".ref."
"""Part of the names of TRL's copy of the adapter that RL goes on with, for the KL term."""
PEFT = "base_model.model."
"""The start of PEFT's parameter names."""


EVENTS = "events.jsonl"
"""The file of a stage's restarts and stops: `step`, `event` (resumed or stopped) and `about`."""


class IncompatibleCheckpoint(RuntimeError):
    """A checkpoint whose optimizer state these processes cannot load; one line."""


def mark(checkpoint: Path) -> None:
    """Mark a checkpoint, whose files are all written, as complete; the first process does it."""
    write_atomically(checkpoint / MARK, str(Sharding.launched()))


def drop_old(folder: Path, keep: int) -> None:
    """Delete the checkpoints before the last `keep` complete ones, and that of an interrupted training."""
    kept = marked(folder)[-keep:]
    for checkpoint in folder.glob("checkpoint-*"):
        # Incomplete ones were left by a kill, which may have interrupted this very deletion.
        if kept and step_of(checkpoint) < step_of(kept[-1]) and checkpoint not in kept:
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


def record_resumption(run: RunFolder, step: int, repeated: str) -> None:
    """Write to a stage's events that it resumes after `step`; `repeated` says which steps are done again."""
    run.append(EVENTS, {"step": step, "event": "resumed", "about": f"resumed at step {step + 1}{repeated}"})


def step_of(checkpoint: Path) -> int:
    """Return the number of optimizer steps at which a checkpoint was written."""
    return int(checkpoint.name.rpartition("-")[2])


def full_weights(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield name and tensor of every weight; tied weights appear under their first name only.

    The model is not changed. If its parameters are sharded over processes (FSDP), every process must iterate
    over all of them, since gathering is a collective operation.
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
    model: Any,
    processes: Processes,
    weights: Callable[[Any], Iterable[tuple[str, Any]]] = full_weights,
) -> dict[str, Any]:
    """Return the weights in the first process, an empty dict in the others; all must make this call."""
    # Every process iterates, as gathering requires, but only the first keeps what it gets.
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
