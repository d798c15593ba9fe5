"""A loss is one file and one entry point: found by name, refused by name, and trained with."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.training.rl.test_loss import batch, trainer_of
from tirjudge_training.rl.config import RlConfig
from tirjudge_training.rl.losses import LOSSES, open_loss

CONFIG = {"steps": 1, "groups": 2, "samples": 4, "optimizer_steps": 4, "micro_batch": 2}
CISPO = '''
from tirjudge_training.rl.losses import Loss

class Cispo(Loss):
    """The clipped ratio weighs the logprobs and carries no gradient (MiniMax-M1, section 3.1)."""

    def arguments(self):
        return {"loss_type": "cispo"}

class Thrice(Cispo):
    def compute(self, trl, model, inputs):
        return 3 * trl(model, inputs)
'''


@pytest.fixture
def cispo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a package with another loss on the path, as an installed distribution."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "cispo_loss.py").write_text(CISPO)
    info = tmp_path / "cispo-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: cispo\nVersion: 1.0\n")
    members = "cispo = cispo_loss:Cispo\nthrice = cispo_loss:Thrice\n"
    (info / "entry_points.txt").write_text(f"[tirjudge.losses]\n{members}")


def test_the_losses_of_the_papers_are_known_by_name() -> None:
    assert LOSSES.names() == ("dapo", "per_response", "sequence")
    assert [open_loss(name).mean_of for name in LOSSES.names()] == ["tokens", "responses", "responses"]


def test_an_unknown_loss_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValidationError, match=r"no loss 'dabo'; there are dapo, per_response, sequence"):
        RlConfig(**CONFIG, loss="dabo")


@pytest.mark.usefixtures("cispo")
def test_a_loss_of_another_package_is_trained_with(tiny_model: Path, tmp_path: Path) -> None:
    found = []
    for loss in ("dapo", "cispo", "thrice"):
        config = RlConfig(**CONFIG, loss=loss)
        trainer = trainer_of(config, tiny_model, tmp_path / loss)
        inputs = {name: tensor[:2] if tensor.dim() else tensor for name, tensor in batch().items()}
        found.append(trainer._compute_loss(trainer.model, inputs).item())
    dapo, once, thrice = found
    assert once != pytest.approx(dapo)
    assert thrice == pytest.approx(3 * once)
