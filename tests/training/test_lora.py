"""LoRA: the adapted policy samples, processes and kills do not change the result, and adapters are merged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from tests.training.conftest import ENVIRONMENTS, source
from tests.training.forked import in_two_processes
from tirjudge.cli import app
from tirjudge.models import weights_sha256
from tirjudge.models.resolve import read_note
from tirjudge.storage.run_folder import RunFolder, read_lines
from tirjudge_training import model_folder
from tirjudge_training.distributed.processes import Processes
from tirjudge_training.model_folder import LoraConfig
from tirjudge_training.rl.config import RlConfig
from tirjudge_training.rl.run import train_rl
from tirjudge_training.sft import Sample, SftConfig, train_sft

LORA = LoraConfig(rank=4, alpha=8)
RL = RlConfig(
    steps=3,
    groups=4,
    samples=4,
    micro_batch=2,
    beta=0.01,
    learning_rate=1e-2,
    max_tokens=120,
    checkpoint_every=1,
)
SFT = SftConfig(batch=4, micro_batch=2, learning_rate=1e-2, checkpoint_every=1)
ADAPTED = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class Interrupted(Exception):
    pass


def main(start: Path, folder: Path) -> None:
    """Run RL and SFT in all launched processes; with several, each is interrupted once and resumes."""
    processes = Processes.launched()
    for name, stage in {"rl": reinforced, "sft": fine_tuned}.items():
        if processes.world > 1:
            with pytest.raises(Interrupted):
                stage(start, folder / name, processes, interrupt)
        model = stage(start, folder / name, processes, lambda line: None)
        model_folder.save(folder / name / "model", model, start=str(start), processes=processes)


def interrupt(line: str) -> None:
    """Interrupt after the first checkpoint."""
    if line.startswith(("rl 3/3", "sft 10/")):
        raise Interrupted


def reinforced(start: Path, folder: Path, processes: Processes, say: Callable[[str], None]) -> Any:
    with processes.folder(folder) as run:
        return train_rl(
            start,
            run,
            RL,
            lora=LORA,
            environments=ENVIRONMENTS,
            source=source,
            seed=1,
            say=say,
            processes=processes,
        )


def fine_tuned(start: Path, folder: Path, processes: Processes, say: Callable[[str], None]) -> Any:
    samples = [Sample((1, 2 + i % 9, 3), (-100, 2 + i % 9, 3)) for i in range(48)]
    with processes.folder(folder) as run:
        return train_sft(start, run, SFT, samples, lora=LORA, seed=1, say=say, processes=processes)


@pytest.fixture(scope="module")
def runs(roomy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Run the same configurations in this process and in two."""
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    main(roomy_model, one)
    in_two_processes(main, roomy_model, two, folder=two)
    return one, two


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["rl", "sft"])
def test_two_interrupted_processes_end_with_the_weights_of_one(stage: str, runs: tuple[Path, Path]) -> None:
    alone, shared = (load_file(folder / stage / "model" / "model.safetensors") for folder in runs)
    assert all(torch.allclose(alone[name], shared[name], rtol=0, atol=1e-5) for name in alone)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["rl", "sft"])
def test_the_saved_model_is_the_start_and_what_the_adapter_adds(
    stage: str, runs: tuple[Path, Path], roomy_model: Path
) -> None:
    """Every adapted matrix of the saved model changed within the adapter's rank, and nothing else changed."""
    before, after = (
        load_file(folder / "model.safetensors") for folder in (roomy_model, runs[0] / stage / "model")
    )
    assert before.keys() == after.keys()
    for name, weight in before.items():
        moved = after[name] - weight
        if any(layer in name for layer in ADAPTED):
            assert torch.linalg.matrix_rank(moved, rtol=1e-3) in range(1, LORA.rank + 1), name
        else:
            assert not moved.any(), name


@pytest.mark.slow
def test_the_adapted_policy_samples_and_stays_close_to_the_start(runs: tuple[Path, Path]) -> None:
    for folder in runs:
        first, *later = read_lines(folder / "rl" / "metrics.jsonl")
        assert first["kl"] == 0, "a new adapter changes nothing, and its model is the reference"
        assert all(row["kl"] > 1e-4 for row in later)
        assert all(0 < row["sampler_gap"] < 1e-5 for row in (first, *later))


@pytest.mark.slow
def test_checkpoint_and_model_give_the_same_verdicts(runs: tuple[Path, Path], tmp_path: Path) -> None:
    """`tirjudge judge` reads both the checkpoint's adapter and the merged weights."""
    stage = runs[0] / "rl"
    verdicts = [judged(stage / part, tmp_path) for part in ("checkpoints/checkpoint-3", "model")]
    assert verdicts[0] == verdicts[1]
    adapter, whole = (model_folder.load(stage / part)[0] for part in ("checkpoints/checkpoint-3", "model"))
    for name, weight in whole.state_dict().items():
        assert torch.allclose(adapter.state_dict()[name], weight, rtol=0, atol=1e-6), name


@pytest.fixture(scope="module")
def adapters(roomy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Train an adapter in two stages, the second of which goes on with the first one's."""
    folder, start, written = tmp_path_factory.mktemp("adapters"), roomy_model, []
    lora = LORA.model_copy(update={"merge": False})
    samples = [Sample((1, 2 + i % 9, 3), (-100, 2 + i % 9, 3)) for i in range(16)]
    for name in ("first", "second"):
        with RunFolder(folder / name) as run:
            model = train_sft(start, run, SFT, samples, lora=lora, seed=1, say=lambda line: None)
        model_folder.save(
            folder / name / "model", model, start=str(start), lora=lora, note={"prompts": "smol"}
        )
        written.append(start := folder / name / "model")
    return written


def test_an_unmerged_adapter_is_all_that_a_stage_writes(adapters: list[Path], roomy_model: Path) -> None:
    for folder in adapters:
        names = {file.name for file in folder.iterdir()}
        assert names == {"adapter_config.json", "adapter_model.safetensors", "tirjudge.json"}
        weights = load_file(folder / "adapter_model.safetensors")
        assert {weight.dtype for weight in weights.values()} == {torch.bfloat16}
        assert len(weights) == 2 * 2 * len(ADAPTED)
        note = read_note(str(folder))
        assert note.prompts == "smol"
        assert note.base is not None
        assert (note.base.name, note.base.sha256) == (str(roomy_model), weights_sha256(str(roomy_model)))


def test_a_later_stage_goes_on_with_the_adapter(adapters: list[Path], roomy_model: Path) -> None:
    """The second stage has one adapter of the same rank, which began as the first one's."""
    lora = LORA.model_copy(update={"merge": False})
    resumed = model_folder.load_trainable(adapters[0], lora)
    weights = load_file(adapters[0] / "adapter_model.safetensors")
    found = {
        name.replace(".default.", "."): weight
        for name, weight in resumed.named_parameters()
        if weight.requires_grad
    }
    assert found.keys() == weights.keys()
    for name, weight in weights.items():
        assert found[name].dtype == torch.float32
        assert torch.equal(found[name], weight.float()), name
    base, first, second = (
        model_folder.load(folder)[0].state_dict() for folder in (roomy_model, adapters[0], adapters[1])
    )
    for name, weight in base.items():
        moved, further = first[name] - weight, second[name] - weight
        if any(layer in name for layer in ADAPTED):
            assert torch.linalg.matrix_rank(further, rtol=1e-3) in range(1, LORA.rank + 1), name
            assert not torch.equal(moved, further), name
        else:
            assert not further.any(), name


def test_frozen_weights_in_bfloat16_leave_the_adapter_in_float32(roomy_model: Path, tmp_path: Path) -> None:
    lora = LORA.model_copy(update={"merge": False})
    samples = [Sample((1, 2 + i % 9, 3), (-100, 2 + i % 9, 3)) for i in range(16)]
    with RunFolder(tmp_path) as run:
        model = train_sft(
            roomy_model, run, SFT, samples, lora=lora, dtype="bfloat16", seed=1, say=lambda line: None
        )
    kinds = {weight.requires_grad: weight.dtype for weight in model.parameters()}
    assert kinds == {True: torch.float32, False: torch.bfloat16}
    moved = [weight for name, weight in model.named_parameters() if ".lora_B." in name]
    assert all(weight.any() for weight in moved), "no update is lost to rounding"


def test_unknown_target_layers_are_refused_before_the_run(tmp_path: Path) -> None:
    words = ["train", "--recipe", "judgelrm-3b", "--shrink", "--output", str(tmp_path / "run")]
    ran = CliRunner().invoke(app, [*words, "--set", 'model.lora.targets=["w_pack"]'])
    assert ran.exit_code == 2
    assert ran.stderr.startswith("tirjudge train: model.lora: ")
    assert "w_pack" in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_an_adapter_of_another_rank_is_refused_before_the_run(adapters: list[Path], tmp_path: Path) -> None:
    words = ["train", "--recipe", "smol", "--model", str(adapters[0]), "--output", str(tmp_path / "run")]
    ran = CliRunner().invoke(app, [*words, "--set", "data.demonstrations="])
    assert ran.exit_code == 2
    line = "is an adapter of rank 4, with which training goes on: set model.lora.rank=4"
    assert ran.stderr == f"tirjudge train: model.lora.rank: {adapters[0]} {line}\n"


def judged(model: Path, folder: Path) -> Any:
    rows, output = folder / "rows.jsonl", folder / f"{model.name}.jsonl"
    rows.write_text(json.dumps({"id": "1", "prompt": "q", "responses": ["good", "bad"]}) + "\n")
    words = ["judge", "--pairwise", str(rows), "--model", str(model), "--output", str(output)]
    ran = CliRunner().invoke(app, [*words, "--max-tokens", "40"])
    assert ran.exit_code == 0, ran.output
    (row,) = read_lines(output)
    return [(view["segments"], view["verdict"]) for view in row["views"]]
