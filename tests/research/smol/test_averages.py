"""Averages of adapters: the product of the factors is the average of the two products."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from research.smol import averages

NAMES = ("m.q_proj.lora_A.weight", "m.q_proj.lora_B.weight")


def adapter(folder: Path, factors: tuple[torch.Tensor, torch.Tensor], rank: int = 2) -> Path:
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"r": rank}))
    (folder / "tirjudge.json").write_text(json.dumps({"prompts": folder.name}))
    save_file(
        {name: one.contiguous() for name, one in zip(NAMES, factors, strict=True)}, folder / averages.WEIGHTS
    )
    return folder


def average(monkeypatch: pytest.MonkeyPatch, *words: object) -> None:
    monkeypatch.setattr("sys.argv", ["averages", *map(str, words)])
    averages.main()


def test_an_average_of_changes_that_fit_the_rank_is_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    right, left, other = torch.randn(2, 5), torch.randn(4, 2), torch.randn(4, 2)
    first, second = adapter(tmp_path / "a", (right, left)), adapter(tmp_path / "b", (right, other))
    average(monkeypatch, first, second, "--share", "0.25", "--output", tmp_path / "c")
    found = load_file(tmp_path / "c" / averages.WEIGHTS)
    expected = 0.75 * left @ right + 0.25 * other @ right
    assert torch.allclose(found[NAMES[1]] @ found[NAMES[0]], expected, atol=1e-5)
    assert found[NAMES[0]].shape == right.shape
    assert "100.00 %" in capsys.readouterr().out
    assert json.loads((tmp_path / "c" / "tirjudge.json").read_text()) == {"prompts": "b"}


def test_of_a_larger_rank_the_best_part_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The average is diag(8, 6, 2, 1) / 2, of which rank 2 keeps 100 of 105.
    first = adapter(tmp_path / "a", (torch.eye(4)[[0, 2]], torch.eye(4)[:, [0, 2]] * torch.tensor([8.0, 2])))
    second = adapter(tmp_path / "b", (torch.eye(4)[[1, 3]], torch.eye(4)[:, [1, 3]] * torch.tensor([6.0, 1])))
    average(monkeypatch, first, second, "--output", tmp_path / "c")
    found = load_file(tmp_path / "c" / averages.WEIGHTS)
    kept = found[NAMES[1]] @ found[NAMES[0]]
    assert torch.allclose(kept, torch.diag(torch.tensor([4.0, 3, 0, 0])), atol=1e-5)
    assert "95.24 %" in capsys.readouterr().out


def test_adapters_of_different_ranks_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = adapter(tmp_path / "a", (torch.eye(4)[:2], torch.eye(4)[:, :2]))
    second = adapter(tmp_path / "b", (torch.eye(4)[:1], torch.eye(4)[:, :1]))
    with pytest.raises(ValueError, match="rank"):
        average(monkeypatch, first, second, "--output", tmp_path / "c")
