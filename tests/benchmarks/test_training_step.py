"""Our trainer and a bare GRPOTrainer take the same step on the same rollouts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import peers
from benchmarks.training_step import trainers
from benchmarks.training_step.__main__ import SUITE
from benchmarks.training_step.trainers import MEMORY, NORM, WORKLOADS, model_of, rollouts_of


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


def test_the_rollouts_are_groups_with_a_shared_prompt_and_a_masked_output() -> None:
    groups = rollouts_of(WORKLOADS["1M"])
    assert [len(group) for group in groups] == [trainers.SAMPLES] * 4
    for group in groups:
        assert len({tuple(one.prompt) for one in group}) == 1
        assert {one.reward for one in group} == {0.0, 1.0}, "without a difference there is no gradient"
        for one in group:
            assert len(one.mask) == len(one.completion)
            assert one.mask.count(0) == 4
    assert rollouts_of(replace(WORKLOADS["1M"], groups=1))[0] == groups[0]
