"""The command `tirjudge train`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import Result

from tests.training.miniature import MINI, inputs
from tests.training.train_command import train
from tirjudge_training.recipe_file import shipped
from tirjudge_training.run import preflight

SMALL = {
    "rl.steps": 1,
    "rl.groups": 2,
    "rl.samples": 2,
    "rl.micro_batch": 4,
    "rl.max_tokens": 40,
    # The samples of such a run may all be equally good, and would then teach nothing.
    "rl.filter": "none",
    "rl.entropy_bonus": 0.1,
    "heldout.n": 2,
    "heldout.max_tokens": 40,
}


def small(folder: Path, code: int | None = None, **more: object) -> Result:
    values = {**inputs(), **SMALL, **more}
    settings = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    return train("--recipe", MINI, "--output", str(folder), *settings, code=code)


@pytest.mark.slow
def test_a_model_is_trained_and_measured(tmp_path: Path) -> None:
    """Finished stages are not repeated, the folder belongs to one recipe, and the judge can be measured."""
    done = small(tmp_path)
    model = tmp_path / "rl" / "model"
    assert done.exit_code == 0, done.stderr
    assert done.stdout.strip() == str(model)
    assert {"model.safetensors", "config.json", "tokenizer.json", "tirjudge.json"} <= {
        path.name for path in model.iterdir()
    }
    assert tomllib.loads((tmp_path / "config.toml").read_text())["rl"]["epsilon_high"] == 0.3

    begins = [line.split(" ", 1)[1] for line in done.stderr.splitlines() if ": stage " in line]
    stages = ("heldout-base", "rl", "heldout-rl")
    assert begins == [f"{stage}: stage {number} of 3" for number, stage in enumerate(stages, 1)]

    lines = done.stderr.splitlines()
    assert all(re.match(r"\d\d:\d\d:\d\d |  tirjudge ", line) for line in lines)
    assert "nan" not in done.stderr

    written = (model / "model.safetensors").stat().st_mtime_ns
    again = small(tmp_path, code=0)
    _, *repeated, gain = [line.split(" ", 1)[1] for line in again.stderr.splitlines()[:-5]]
    assert repeated == [f"{stage}: done" for stage in stages]
    assert gain.startswith("right in 6 held-out tasks: base ")
    assert again.stderr.splitlines()[-4:] == done.stderr.splitlines()[-4:]
    assert (model / "model.safetensors").stat().st_mtime_ns == written

    other = small(tmp_path, **{"rl.epsilon": 0.1}, code=2)
    assert "rl.epsilon was" in other.stderr

    measured = json.loads((tmp_path / "heldout-rl" / "done.json").read_text())
    assert measured["tir-listwise"]["accuracy"]["n"] == 2


@pytest.mark.slow
def test_libraries_add_no_line_to_the_log() -> None:
    """A warning and a notice, as TRL, PEFT and torch write them, unless Python is asked for warnings."""
    program = (
        "import logging, warnings; from tirjudge_training import cli; cli._quiet_libraries(1); "
        "warnings.warn('w', FutureWarning); logging.getLogger('trl.trainer').warning('notice')"
    )
    for more, shown in (((), False), (("-W", "always"), True)):
        done = subprocess.run([sys.executable, *more, "-c", program], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert ("FutureWarning: w" in done.stderr) == shown
        assert "notice" not in done.stderr


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--set", "rl.micro_batch=7"), "micro_batch"),
        (("--set", "rl.token_budget=4096"), "length_buckets"),
        (("--recipe", "smol", "--model", "./nowhere"), "'./nowhere'"),
        (("--control",), "--control: no effect without --iterative"),
        (("--teacher", "m"), "--teacher: no effect without --distill"),
        (("--teacher-base-url", "http://h"), "--teacher-base-url: no effect without --distill"),
        (("--output", __file__), "test_cli.py is a file: name a folder"),
        (("--recipe", "nope"), "no recipe 'nope': neither a file nor a name that --list prints"),
        (("--recipe", "smol", "--data", "missing.jsonl"), "missing.jsonl"),
        (("--data", "rows.jsonl", "--output", "run"), "rows.jsonl"),
        (
            ("--recipe", "smol", "--set", "rl.learning_rat=1"),
            "smol.toml: unknown key 'rl.learning_rat'; the nearest known one is 'rl.learning_rate'",
        ),
        (("--recipe", "smol", "--set", "rl.steps"), "write it as key=value"),
        (("--recipe", "smol", "--set", "rl.steps=many"), "rl.steps: Input should be a valid integer"),
        (("--recipe", "smol", "--model", "gpt-4o-mini"), "no model 'gpt-4o-mini'"),
        (("--recipe", "smol", "--distill"), "--teacher MODEL and --teacher-base-url URL"),
        (("--iterative", "--distill"), "--iterative and --distill exclude each other"),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2(
    words: tuple[str, ...], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text(
        '{"id": "x", "prompt": "Which is longer?", "responses": ["a", "bb"]}\n'
    )
    result = train(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert line in result.stderr
    assert result.stderr.startswith("tirjudge train")
    assert result.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"model.liger": "true"}, "model.liger"),
        ({"model.attn_implementation": "flash_attention_2"}, "model.attn_implementation"),
        ({"rl.generator": "vllm", "rl.vllm.enable_sleep_mode": "true"}, "rl.vllm.enable_sleep_mode"),
        ({"rl.sandbox": "docker"}, "rl.sandbox"),
    ],
)
def test_what_cannot_start_here_is_reported_before_any_training(
    settings: dict[str, str], key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:9")
    if "rl.generator" in settings:  # as if vLLM were installed
        monkeypatch.setattr(preflight, "find_spec", lambda name: object())
    result = small(tmp_path / "run", **settings, code=2)
    assert key in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_the_shipped_recipes_are_valid_and_listed() -> None:
    result = train("--list", code=0)
    *first, further = result.stdout.splitlines()
    assert [line.split(":")[0] for line in first] == ["adapt", "smol"]
    assert further.startswith(f"{len(shipped()) - 2} further recipes ")
    assert further.endswith(": --list --all")
    for alone in ("--all", "--json"):
        refused = train(alone, code=2)
        assert refused.stderr.endswith(f": tirjudge train --list {alone}\n")
    listed = train("--list", "--all").stdout.splitlines()
    assert sorted(line.split(":")[0] for line in listed) == sorted(shipped())
    assert listed[:2] == first
    assert all(line.endswith(" (never run)") for line in listed[2:])
    records = json.loads(train("--list", "--json").stdout)
    assert [record["name"] for record in records] == list(shipped())
    assert {record["name"]: record["run"] for record in records}["tir-judge-zero-8b"] == "never"
