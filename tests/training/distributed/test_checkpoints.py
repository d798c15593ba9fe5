"""Checkpoints that a run resumes from, and weights that are saved and sampled with the adapter merged."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from peft import get_peft_model, get_peft_model_state_dict
from safetensors.torch import load_file
from transformers import Qwen2Config, Qwen2ForCausalLM

from tests.training.forked import Forked
from tirjudge.storage.durable_files import RunFolder
from tirjudge.storage.settings_text import Damaged
from tirjudge_training import sft
from tirjudge_training.distributed import checkpoints
from tirjudge_training.distributed.checkpoints import IncompatibleCheckpoint, adapter_weights, full_weights
from tirjudge_training.model_folder import LoraConfig
from tirjudge_training.sft import Sample, SftConfig, train_sft


@pytest.mark.parametrize(("writer", "resumes"), [("FSDP", "FSDP"), ("FSDP", ""), ("", "FSDP")])
def test_a_run_resumes_only_from_an_optimizer_state_that_it_can_load(
    writer: str, resumes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers would start with a fresh optimizer state and report nothing."""
    checkpoint = tmp_path / "checkpoint-5"
    checkpoint.mkdir()
    monkeypatch.setenv("ACCELERATE_USE_FSDP", str(writer == "FSDP").lower())
    checkpoints.mark(checkpoint)
    monkeypatch.setenv("ACCELERATE_USE_FSDP", str(resumes == "FSDP").lower())
    if writer == resumes:
        assert checkpoints.latest(tmp_path) == checkpoint
    else:
        with pytest.raises(IncompatibleCheckpoint, match=re.escape(str(checkpoint))):
            checkpoints.latest(tmp_path)
    assert checkpoints.marked(tmp_path) == [checkpoint], "any processes may measure its weights"


def test_old_checkpoints_and_what_a_kill_left_of_them_are_deleted(tmp_path: Path) -> None:
    """The one after the last complete one may still be written."""
    for step in (2, 4, 6, 8):
        (tmp_path / f"checkpoint-{step}" / "part").mkdir(parents=True)
        if step in (2, 6):
            checkpoints.mark(tmp_path / f"checkpoint-{step}")
    (tmp_path / checkpoints.APART / "checkpoint-5").mkdir(parents=True)
    checkpoints.drop_old(tmp_path, keep=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-6", "checkpoint-8"]


def test_the_last_checkpoint_stays_until_the_next_is_complete(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that dies before the mark of its second checkpoint resumes from the first."""

    def dies(checkpoint: Path, *rest: object, mark: Callable[..., None] = checkpoints.mark) -> None:
        if checkpoint.name == "checkpoint-2":
            raise RuntimeError("killed")
        mark(checkpoint, *rest)

    monkeypatch.setattr(sft, "KEPT_CHECKPOINTS", 1)
    monkeypatch.setattr(checkpoints, "mark", dies)
    samples = [Sample((1, 2, 3), (-100, 2, 3))] * 4
    config = SftConfig(batch=2, micro_batch=2, checkpoint_every=1)
    with RunFolder(tmp_path) as run, pytest.raises(RuntimeError, match="killed"):
        train_sft(tiny_model, run, config, samples, seed=0, say=lambda line: None)
    saved = checkpoints.latest(tmp_path / "checkpoints")
    assert saved == tmp_path / "checkpoints" / "checkpoint-1"
    assert (saved / "optimizer.pt").exists()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


FAULTS: tuple[tuple[str, Callable[[Path], None], str], ...] = (
    ("model.safetensors", cut, "model.safetensors is not whole"),
    ("model.safetensors", Path.unlink, "it lacks its weights"),
    ("optimizer.pt", cut, "optimizer.pt is not whole"),
    ("trainer_state.json", cut, "trainer_state.json is not whole"),
    ("scheduler.pt", Path.unlink, "it lacks scheduler.pt"),
)


@pytest.mark.slow
def test_a_checkpoint_that_has_lost_something_is_not_resumed(tiny_model: Path, tmp_path: Path) -> None:
    """transformers would end with a traceback, or begin with a fresh optimizer state and report nothing."""
    train(tiny_model, tmp_path)
    saved = tmp_path / "checkpoints" / "checkpoint-2"
    for name, spoil, fault in FAULTS:
        whole = (saved / name).read_bytes()
        spoil(saved / name)
        with pytest.raises(Damaged) as refused:
            train(tiny_model, tmp_path)
        how = "delete this folder, and the same command resumes from checkpoint-1"
        assert str(refused.value) == f"{saved} is damaged ({fault}): {how}"
        (saved / name).write_bytes(whole)
    train(tiny_model, tmp_path)
    shutil.rmtree(tmp_path / "checkpoints" / "checkpoint-1")
    (saved / "optimizer.pt").unlink()
    with pytest.raises(Damaged, match=r"the same command begins the stage again$"):
        train(tiny_model, tmp_path)


CHANGES = {"os.rename": 0, "os.remove": 0, "os.mkdir": 0, "os.rmdir": 0, "open": 0}
"""Python's audit events of changes to a folder, with the place of the path."""


def train(start: Path, folder: Path) -> None:
    rows = ((1, 2, 3), (1, 4, 3), (5, 2, 3), (1, 2, 6))
    samples = [Sample(row, (-100, *row[1:])) for row in rows]
    config = SftConfig(batch=2, micro_batch=2, checkpoint_every=1)
    with RunFolder(folder) as run:
        train_sft(start, run, config, samples, seed=0, say=lambda line: None)


def train_until(change: int, start: Path, folder: Path, log: Path) -> None:
    """Train in a process that kills itself before the change of this number to a file of its folder."""
    changes = log.open("a")

    def look(event: str, arguments: tuple[object, ...]) -> None:
        if event not in CHANGES or not str(arguments[CHANGES[event]]).startswith(str(folder)):
            return
        if event == "open" and not int(str(arguments[2] or 0)) & (os.O_WRONLY | os.O_RDWR):
            return
        print(event, file=changes, flush=True)
        if len(log.read_text().splitlines()) == change:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(look)
    train(start, folder)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_training_may_be_killed_before_any_change_to_its_folder(tiny_model: Path, tmp_path: Path) -> None:
    """Also between the files of a checkpoint, and twice; it ends with the weights of an uninterrupted one."""
    whole, log = tmp_path / "whole", tmp_path / "changes"
    assert Forked(train_until, -1, tiny_model, whole, log).wait() == 0
    expected = load_file(whole / "checkpoints" / "checkpoint-2" / "model.safetensors")
    count = len(log.read_text().splitlines())
    assert count > 20
    folder = tmp_path / "killed"
    for change in range(1, count + 1):
        for again in (change, 1 + change % 7):
            log.write_text("")
            ended = Forked(train_until, again, tiny_model, folder, log).wait()
            assert ended in (0, -signal.SIGKILL), change
        assert Forked(train, tiny_model, folder).wait() == 0, change
        found = load_file(folder / "checkpoints" / "checkpoint-2" / "model.safetensors")
        assert all(torch.equal(found[name], weight) for name, weight in expected.items()), change
        shutil.rmtree(folder)


SIZE = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2, "num_key_value_heads": 1}


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing` is deprecated")
def test_merged_weights_equal_those_of_peft_for_layers_with_a_bias() -> None:
    """Qwen2's projections have a bias."""
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=64, num_hidden_layers=2, **SIZE))
    settings = LoraConfig(rank=4, alpha=8).adapter()
    settings.init_lora_weights = False
    adapted = get_peft_model(model, settings)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    found = {name: weight.clone() for name, weight in full_weights(model)}
    expected = adapted.merge_and_unload().state_dict()
    assert found.keys() == expected.keys()
    assert any(name.endswith("bias") for name in found)
    for name, weight in expected.items():
        assert torch.allclose(found[name], weight, rtol=0, atol=1e-6), name


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing` is deprecated")
def test_an_adapter_is_saved_without_the_copy_that_the_kl_term_compares_with() -> None:
    """TRL adds this copy as `ref` when RL goes on with an adapter and `beta` is above 0."""
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=64, num_hidden_layers=2, **SIZE))
    adapted = get_peft_model(model, LoraConfig(rank=4, alpha=8).adapter())
    alone = dict(adapter_weights(adapted))
    adapted.add_adapter("ref", adapted.peft_config["default"])
    assert dict(adapter_weights(adapted)).keys() == alone.keys() == get_peft_model_state_dict(adapted).keys()
