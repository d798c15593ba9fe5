"""accelerate's own launcher reads the shipped launch configurations as intended."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import prepare_multi_gpu_env

from tests.tirjudge.judge_command import command

FSDP2 = Path(str(resources.files("tirjudge_training"))) / "launch" / "fsdp2.yaml"


def launched() -> Any:
    free = ["--main_process_port", "0"]  # another run on this machine may use the default port
    words = ["--config_file", str(FSDP2), *free, "--no_python", "tirjudge", "train"]
    return _validate_launch_command(launch_command_parser().parse_args(words))[0]


def test_the_launcher_knows_every_key() -> None:
    """The launcher refuses unknown keys at the top level but ignores those in tables."""
    load_config_from_file(str(FSDP2))
    keys = yaml.safe_load(FSDP2.read_text(encoding="utf-8"))["fsdp_config"]
    assert keys.keys() <= vars(launch_command_parser().parse_args(["script"])).keys()


def test_fsdp2_shards_the_state_and_its_checkpoints() -> None:
    arguments = launched()
    environment = prepare_multi_gpu_env(arguments)
    assert (arguments.num_processes, environment["ACCELERATE_MIXED_PRECISION"]) == (8, "bf16")
    assert environment["ACCELERATE_USE_FSDP"] == "true"
    assert environment["FSDP_VERSION"] == "2"
    assert environment["FSDP_STATE_DICT_TYPE"] == "SHARDED_STATE_DICT"
    assert environment["FSDP_CPU_RAM_EFFICIENT_LOADING"] == "true"


def test_another_configuration_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (prepare_multi_gpu_env(launched()) | {"FSDP_VERSION": "1"}).items():
        if name.startswith(("ACCELERATE_USE", "FSDP_")):
            monkeypatch.setenv(name, value)
    words = ["train", "--recipe", "judgelrm-3b", "--shrink", "--output", str(tmp_path / "run")]
    ran = command(*words, code=2)
    assert "fsdp_version" in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_the_command_prints_the_path_of_a_configuration() -> None:
    ran = command("train", "--launch-config", "fsdp2")
    assert (ran.exit_code, ran.stdout.strip()) == (0, str(FSDP2))
