"""A full disk gives one line and no broken file, and the run resumes once there is space."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tirjudge.endpoint_server import serving
from tests.training.teachers import native

Run = Callable[..., list[str]]

START = """
import subprocess, sys
from pathlib import Path
from tirjudge.storage.durable_files import RunFolder
from tirjudge.storage.durable_files import disk_full_errors
FOLDER = Path(sys.argv[1])
"""
DISTIL = """
from tests.training.teachers import STUDENT, word_count_tasks
from tirjudge_training.distillation.best_dialogues import Distillation
from tirjudge_training.distillation.config import TeacherConfig
config = TeacherConfig(model="teacher", base_url=sys.argv[2], concurrency=2)

def work(run):
    tasks = word_count_tasks(24)
    print(Distillation(run, config, tasks, STUDENT, seed=0, say=lambda line: None).ask()["dialogues"])
"""
TUNE = """
import torch, transformers
from tirjudge_environments import ChatEncoder
from tirjudge_training.sft import Sample
from tirjudge_training.sft import SftConfig, train_sft
torch.set_num_threads(1)
transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()
model = Path(sys.argv[2])
encoder = ChatEncoder(transformers.AutoTokenizer.from_pretrained(model))
samples = [Sample.answer(encoder, f"q{i}", f"a{i}", 0) for i in range(8)]
config = SftConfig(batch=2, micro_batch=2, checkpoint_every=1, learning_rate=1e-3)

def work(run):
    trained = train_sft(model, run, config, samples, seed=0, say=lambda line: None)
    print(sum(float(weight.detach().double().sum()) for weight in trained.parameters()))
"""
EACH = """
for number, size in enumerate(sys.argv[3:]):
    options = f"{'remount,' if number else ''}size={size}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", FOLDER], check=True)
    try:
        with disk_full_errors(FOLDER), RunFolder(FOLDER / "run") as run:
            work(run)
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
"""


@pytest.fixture
def on_small_disk(tmp_path: Path) -> Run:
    """Run a script in the folder `disk`, on a real file system that grows from one size to the next.

    The fixture returns the output of each run.
    """
    place = tmp_path / "disk"
    place.mkdir()
    alone = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]

    def run(script: str, argument: str, *sizes: str) -> list[str]:
        if subprocess.run([*alone, "true"], capture_output=True).returncode:
            pytest.skip("this machine lets nobody mount a disk of one's own")
        command = [*alone, sys.executable, "-c", START + script + EACH, str(place), argument, *sizes]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


@pytest.mark.slow
def test_a_teachers_dialogues_survive_and_are_not_requested_again(on_small_disk: Run, tmp_path: Path) -> None:
    with serving() as server:
        server.script = native
        full, dialogues = on_small_disk(DISTIL, server.url, "40k", "4m")
        begun = [body["messages"][0]["content"] for body in server.bodies if len(body["messages"]) == 1]
    assert full == (
        f"DiskFull: no space left to write {tmp_path}/disk/run/dialogues.jsonl: "
        "free some, and run the same command again to resume"
    )
    assert dialogues == "24"
    assert len(set(begun)) == 24
    assert len(begun) - 24 <= 3, (
        "only dialogues that could not be written or were running may be requested again"
    )


@pytest.mark.slow
def test_training_resumes_from_the_last_complete_checkpoint(
    on_small_disk: Run, tiny_model: Path, tmp_path: Path
) -> None:
    """Whether weights or optimizer state fill the disk, the result is that of an undisturbed run."""
    weights = (tiny_model / "model.safetensors").stat().st_size
    small = [str(int(part * weights)) for part in (0.5, 2, 5)]
    *failures, resumed = on_small_disk(TUNE, str(tiny_model), *small, "64m")
    assert failures == 3 * [
        f"DiskFull: no space left to write {tmp_path}/disk: "
        "free some, and run the same command again to resume"
    ]
    (undisturbed,) = on_small_disk(TUNE, str(tiny_model), "64m")
    assert float(resumed) == pytest.approx(float(undisturbed), abs=1e-9)
