"""Shards are written while training goes on, and another number of processes resumes from them."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch
from accelerate.utils import DistributedType
from safetensors.torch import load_file
from torch.distributed.checkpoint import FileSystemWriter
from transformers import TrainerCallback

from tests.training.launching import FLOAT32, launched, take_cpus_for
from tirjudge_training import model_folder, sft
from tirjudge_training.distributed import checkpoints
from tirjudge_training.distributed.checkpoints import MOMENTS, WEIGHTS, CheckpointWriter
from tirjudge_training.distributed.interruption import Interrupted
from tirjudge_training.distributed.processes import ALONE, Processes
from tirjudge_training.sft import Sample, SftConfig, train_sft

SAMPLES = [Sample((1, 2 + i % 9, 3 + i % 5), (-100, 2 + i % 9, 3 + i % 5)) for i in range(16)]
CONFIG = SftConfig(batch=4, micro_batch=2, learning_rate=1e-3, checkpoint_every=2)
"""Four optimizer steps with checkpoints after the second and the fourth."""
HALF_WRITTEN = "__1_0.distcp"
"""The second process's file of a part."""


def main(start: Path, folder: Path, how: str) -> None:
    """Train in all launched processes: two, of which one is killed at last; one; or two once more."""
    take_cpus_for(DistributedType.MULTI_GPU)
    processes = Processes.launched()
    if how == "two":
        train(start, folder / "whole", processes, writing=held_back)
        train(start, folder / "killed", processes, writing=dying if processes.rank else None)
    elif how == "one":
        train(start, folder / "killed", processes)
        sft._watch = interrupting
        with pytest.raises(Interrupted):
            train(start, folder / "grown", processes)
    else:
        train(start, folder / "grown", processes)


def train(start: Path, folder: Path, processes: Processes = ALONE, writing: Any = None) -> None:
    former = FileSystemWriter.write_data
    FileSystemWriter.write_data = writing or former
    with processes.folder(folder) as run:
        model = train_sft(start, run, CONFIG, SAMPLES, seed=1, say=lambda line: None, processes=processes)
        model_folder.save(folder / "model", model, start=str(start), processes=processes)
    FileSystemWriter.write_data = former


NEXT = Event()


def held_back(storage: Any, *plan: Any, write: Any = FileSystemWriter.write_data) -> Any:
    """Write the first checkpoint only when the second one begins, two optimizer steps later."""
    if "checkpoint-2" in str(storage.path):
        begin = CheckpointWriter.begin
        CheckpointWriter.begin = lambda writer, folder: (NEXT.set(), begin(writer, folder))[1]
        assert NEXT.wait(60), "training waits for the checkpoint"
    return write(storage, *plan)


def dying(storage: Any, *plan: Any, write: Any = FileSystemWriter.write_data) -> Any:
    """Die in the middle of the second checkpoint."""
    if "checkpoint-4" in str(storage.path):
        (storage.path / HALF_WRITTEN).write_bytes(b"half")
        os.kill(os.getpid(), signal.SIGKILL)
    return write(storage, *plan)


def interrupting(*args: Any) -> TrainerCallback:
    """Press Ctrl-C in the third step."""

    class Press(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 2:
                signal.raise_signal(signal.SIGINT)

    return Press()


@pytest.fixture(scope="module")
def ended(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs that end in other processes than those that began them, and one of this process alone."""
    folder = tmp_path_factory.mktemp("runs")
    train(tiny_model, folder / "alone")

    def launch(how: str, processes: int) -> Any:
        words = (__file__, str(tiny_model), str(folder), how)
        return launched("fsdp2.yaml", FLOAT32, *words, processes=processes)

    killed = launch("two", 2)
    found = folder / "killed" / "checkpoints"
    assert list(found.glob(f"checkpoint-4/*/{HALF_WRITTEN}")), killed.stderr[-3000:]
    assert checkpoints.marked(found) == [found / "checkpoint-2"], "the last complete one"
    one = launch("one", 1)
    assert one.returncode == 0, one.stderr[-3000:]
    apart = folder / "grown" / "checkpoints" / checkpoints.APART
    assert [path.name for path in checkpoints.marked(apart)] == ["checkpoint-3"], one.stderr[-3000:]
    again = launch("two again", 2)
    assert again.returncode == 0, again.stderr[-3000:]
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("run", ["whole", "killed", "grown"])
def test_weights_are_those_of_an_uninterrupted_run(run: str, ended: Path) -> None:
    """Killed during a save of two processes and ended by one; interrupted in one and ended by two."""
    expected = load_file(ended / "alone" / "model" / "model.safetensors")
    found = load_file(ended / run / "model" / "model.safetensors")
    assert found.keys() == expected.keys()
    for name in expected:
        assert torch.allclose(found[name], expected[name], rtol=0, atol=1e-5), name


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_failed_write_is_an_error_of_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It becomes known before the next checkpoint, and the failed one is not marked."""
    writer, marked = CheckpointWriter(), []
    monkeypatch.setattr(FileSystemWriter, "write_data", no_space)
    writer.write(tmp_path, {WEIGHTS: {}, MOMENTS: {}})
    writer.then(lambda: marked.append(True))
    with pytest.raises(OSError, match="No space left"):
        writer.begin(tmp_path / "next")
    assert not marked


def no_space(*args: Any) -> Any:
    raise OSError(28, "No space left on device")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
