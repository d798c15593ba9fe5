"""A whole cycle on a user's own rows ends in the same result if it is killed and resumed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import kill_cycles
from examples.miniature.synthesis import tasks
from tests.training.forked import Forked, tirjudge

RECIPE = """
method = "iterative"
[environments.pairs]
name = "tir-pairwise"
[environments.pairs.options]
prompts = "mini"
[iterate]
rounds = 1
[rl]
max_tokens = 144
"""


def start(folder: Path, log: Path) -> Forked:
    return tirjudge(*kill_cycles.words(folder), stderr=log)


def rows(path: Path) -> Path:
    """Write pairs as a user would have them."""
    found = [
        {
            "id": task.id,
            "prompt": task.prompt[0].content,
            "responses": list(task.candidates),
            "label": task.label,
            "domain": task.domain,
        }
        for task in tasks("train", "tir-pairwise", 40, 1)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in found))
    return path


@pytest.mark.parametrize(
    ("kills", "stages"),
    [
        pytest.param(
            ("rejection-1: ",), {"rl-0", "select-0"}, id="between two rounds", marks=pytest.mark.slow
        ),
        pytest.param(
            ("rl-0: step 2 of 2", "rejection-1: ", "rl-1: step 1 of 2"),
            {"rl-0", "select-0", "rejection-1", "sft-1"},
            id="in three stages",
            marks=pytest.mark.soak,
        ),
    ],
)
def test_a_killed_cycle_ends_as_an_uninterrupted_one(
    kills: tuple[str, ...], stages: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`kills` are beginnings of progress lines after which it is killed; `stages` are finished by then."""
    (tmp_path / "recipe.toml").write_text(RECIPE)
    settings = {key: value for key, value in kill_cycles.SETTINGS.items() if not key.startswith("heldout")}
    settings |= {"data.train": rows(tmp_path / "rows.jsonl"), "rl.steps": 2, "rl.checkpoint_every": 1}
    # The samples of so few batches may all be equally good, and would then teach nothing.
    settings |= {"rl.filter": "none", "rl.entropy_bonus": 0.1}
    monkeypatch.setattr(kill_cycles, "SETTINGS", settings)
    monkeypatch.setattr(kill_cycles, "RECIPE", [str(tmp_path / "recipe.toml")])
    monkeypatch.setattr(kill_cycles, "start", start)
    whole, log = tmp_path / "whole", tmp_path / "log"
    assert kill_cycles.start(whole, tmp_path / "whole.log").wait() == 0, (tmp_path / "whole.log").read_text()
    order = kill_cycles.places(tmp_path / "whole.log")
    for place in kills:
        number = next(i for i, line in enumerate(order) if line.startswith(place))
        assert kill_cycles.killed(tmp_path / "resumed", log, order, number, delay=0.0) is not None
    done = kill_cycles.finished(tmp_path / "resumed")
    assert stages <= set(done)
    assert kill_cycles.start(tmp_path / "resumed", log).wait() == 0, log.read_text()
    assert kill_cycles.differences(whole, tmp_path / "resumed") == []
    assert kill_cycles.finished(tmp_path / "resumed").items() >= done.items(), (
        "no finished stage may be repeated"
    )
