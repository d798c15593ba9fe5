"""Our trainer and a bare GRPOTrainer take the same step on the same rollouts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import peers
from benchmarks.training_step.__main__ import SUITE
from benchmarks.training_step.trainers import MEMORY, NORM, WORKLOADS, model_of


@pytest.mark.slow
def test_both_take_the_same_step(tmp_path: Path) -> None:
    """The measurement ends if the gradient norms of a pair differ by more than 1 %."""
    words = ["--only", "training/1M", "--pairs", "1", "--json", str(tmp_path / "found.json")]
    assert peers.main(SUITE, None, words) == 0
    (found,) = json.loads((tmp_path / "found.json").read_text())["results"]
    assert found["own"][NORM] == pytest.approx(found["other"][NORM], rel=0.01)
    assert found["own"][NORM] > 0
    assert min(found[side][MEMORY] for side in ("own", "other")) > 300, "torch alone takes that"
    assert found["own"]["rate"] < found["limit"]["rate"]


def test_the_models_are_as_large_as_their_names_say() -> None:
    import torch

    with torch.device("meta"):
        counts = {name: model_of(one).num_parameters() for name, one in WORKLOADS.items()}
    # SmolLM2-135M has 134,515,008 (its model card).
    assert (counts["1M"], counts["135M"]) == (918_912, 134_515_008)
    assert 15e6 < counts["16M"] < 17e6
