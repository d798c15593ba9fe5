"""A file of a run folder that was changed or cut short is named in one line, with what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from tests.training.run.test_inputs import Begun, begin_rl
from tirjudge.storage.durable_files import RunFolder
from tirjudge.storage.json_lines import encode_line
from tirjudge.storage.settings_text import Damaged
from tirjudge_training.cli import one_line_errors
from tirjudge_training.rl.config import RlConfig
from tirjudge_training.rl.health import Health
from tirjudge_training.rl.metrics import MetricsLog
from tirjudge_training.rl.training_loop import _place
from tirjudge_training.run.run import _done
from tirjudge_training.stages.base import Run
from tirjudge_training.stages.best_step import Selection


@pytest.fixture
def begun(tmp_path: Path) -> Begun:
    made = Begun(tmp_path)
    made.claim()
    made.finish("rl")
    begin_rl(made, finished=True)
    return made


@pytest.mark.parametrize("text", [b"[", b"\xff\xfe", b'"rl"'])
@pytest.mark.parametrize("name", ["config.toml", "rl/config.toml", "inputs.json"])
def test_a_damaged_record_of_a_run_is_named(name: str, text: bytes, begun: Begun) -> None:
    (begun.run / name).write_bytes(text)
    with pytest.raises(Damaged) as refused:
        begun.claim("rl.steps=40")
    assert str(refused.value).startswith(f"{begun.run / name} is damaged (")
    assert "put the former file back" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert (begun.run / name).read_bytes() == text, "nothing is lost"


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_a_damaged_result_of_a_stage_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "select").mkdir()
    (tmp_path / "select" / "done.json").write_text(text)
    run = Run(tmp_path, "base", None, lambda line: None)  # type: ignore[arg-type]
    with pytest.raises(Damaged, match=r"done.json is damaged \(.*\): delete it, and the same command"):
        _done(Selection(name="select", stage="rl", candidates=1), run, "")


def resume(run: RunFolder) -> None:
    MetricsLog(run, 9, lambda line: None, Health(RlConfig(steps=9).health)).resume(3)


def place(run: RunFolder) -> None:
    _place(run, 3)


@pytest.mark.parametrize(("name", "reads"), [("metrics.jsonl", resume), ("stream.jsonl", place)])
def test_records_that_lack_the_steps_before_a_checkpoint_are_named(
    name: str, reads: Callable[[RunFolder], None], tmp_path: Path
) -> None:
    with RunFolder(tmp_path) as run, pytest.raises(Damaged) as refused:
        reads(run)
    assert str(refused.value).startswith(f"{tmp_path / name} lacks the ")
    assert str(refused.value).endswith(f"delete {tmp_path} to repeat the stage")


def test_a_damaged_line_is_named_with_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(b"{\n" + encode_line({"step": 0}))
    with pytest.raises(typer.Exit) as ended, one_line_errors("train"), RunFolder(tmp_path) as run:
        resume(run)
    assert ended.value.exit_code == 2
    error = capsys.readouterr().err
    assert f"{tmp_path / 'metrics.jsonl'}:1: not JSON" in error
    assert error.endswith(": put the former file back, or delete the folder of its stage\n")
