"""`tirjudge train` under `accelerate launch` with a shipped configuration, in CPU processes."""

from __future__ import annotations

import subprocess
import sys
from importlib import resources
from typing import Any

import typer
from accelerate import PartialState
from accelerate.utils import DistributedType

from tirjudge_training.cli import train

LAUNCH = resources.files("tirjudge_training") / "launch"
FLOAT32 = ("--mixed_precision", "no")


def launched(
    config: str, options: tuple[str, ...], *script: str, processes: int = 2
) -> subprocess.CompletedProcess[str]:
    """Launch a script in so many processes; `options` are further options of the launcher."""
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(LAUNCH / config)]
    # Port 0 is a free one: two tests that start at the same time would both take the default.
    launch += ["--main_process_port", "0", "--num_processes", str(processes)]
    command = [*launch, *options, *script]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def take_cpus_for(kind: DistributedType) -> None:
    """Make accelerate treat CPU processes as of this kind; version 1.15 always treats them as plain ones."""
    begin = PartialState.__init__

    def initialise(self: PartialState, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        if self.distributed_type == DistributedType.MULTI_CPU:
            self.distributed_type = kind

    PartialState.__init__ = initialise


def typed(*words: str) -> None:
    """Run `tirjudge train` in this process."""
    app = typer.Typer()
    app.command()(train)
    app(words, standalone_mode=False)
