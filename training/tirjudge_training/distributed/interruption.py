"""Ctrl-C during training: a checkpoint is written after the step in progress, and then the run ends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Self

from tirjudge_training.distributed import checkpoints
from tirjudge_training.distributed.checkpoints import CheckpointWriter


class Interrupted(KeyboardInterrupt):
    """The user ended a run; the message is one line that says where the same command goes on."""


class Interruption:
    """A context manager in which the first Ctrl-C asks for a checkpoint, and the second one ends at once.

    Without it, all steps since the last checkpoint would be lost. It changes nothing where the signal is
    ignored, and outside of the main thread.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._former: Any = signal.SIG_IGN
        self.requested = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._former = signal.getsignal(signal.SIGINT)
        if self._former is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._request)
        return self

    def __exit__(self, *error: object) -> None:
        if self._former is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._former)

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # The signal may arrive while the same stream is being written.
        with suppress(RuntimeError):
            self._say(
                "interrupted: writing a checkpoint after the step in progress; Ctrl-C again ends at once, "
                "without it"
            )


def checkpoint_callback(
    interruption: Interruption, writer: CheckpointWriter, *, keep: int, unit: int = 1
) -> Any:
    """Return a callback of a transformers trainer that marks checkpoints and ends an interrupted training.

    The last `keep` checkpoints stay. Older checkpoints are deleted only when a new checkpoint, which `writer`
    may still be writing, is complete.

    An interrupted training's checkpoint is kept apart from the schedule until the next scheduled checkpoint
    is complete, so that a resumed training leaves the same checkpoints as an uninterrupted training. An
    interrupted training writes a checkpoint only after a multiple of `unit` optimizer steps.
    """
    from transformers import TrainerCallback

    processes = writer.processes

    class Checkpoints(TrainerCallback):
        """Marks each checkpoint as complete once it is written."""

        apart = False

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            # All processes must take the same decision, since all processes write a checkpoint.
            if state.global_step % unit or not any(processes.every(interruption.requested)):
                return
            interruption.requested = True
            # A checkpoint that the schedule asks for at this step belongs to the schedule.
            self.apart = not control.should_save
            control.should_save = control.should_log = control.should_training_stop = True

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            folder, name = Path(args.output_dir), f"checkpoint-{state.global_step}"
            processes.every(None)  # a barrier: the mark must come after the files of all processes
            if not self.apart:
                writer.then(lambda: _complete(folder / name, keep))
                return
            # The folder can be moved only when all shards are in it.
            writer.wait()
            apart = folder / checkpoints.APART
            if processes.rank == 0:
                apart.mkdir(exist_ok=True)
                (folder / name).replace(apart / name)
                checkpoints.mark(apart / name)

    return Checkpoints()


def _complete(checkpoint: Path, keep: int) -> None:
    checkpoints.mark(checkpoint)
    checkpoints.drop_old(checkpoint.parent, keep)
