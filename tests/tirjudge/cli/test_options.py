"""Options of the judging commands: one model for all of them, config files, help, completion, suggestions."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from examples.miniature import TRAINED
from tests.command import TIRJUDGE
from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.judge_command import judge, pairs, results, write_rows
from tirjudge.cli import app
from tirjudge.cli.options import RunOptions, read_options
from tirjudge.judging.options import OF_RUNS, JudgeOptions
from tirjudge.storage.run_settings import Option

COMMANDS = ["bon", "eval", "formats", "judge", "mcp", "reproduce", "serve", "show"]
SANDBOX_COMMANDS = ["run", "build", "serve", "doctor"]
PANELS = ("Output", "Rows", "Model", "Sandbox", "Sampling", "Judging", "Cost", "Ray cluster")
MODELS_COMMANDS = ["list", "fetch", "remove"]


def shown(*words: str, help: str = "--help") -> str:
    run = CliRunner().invoke(app, [*words, help], env={"COLUMNS": "200"})
    assert run.exit_code == 0, run.output
    return run.stdout


@pytest.mark.parametrize("command", ["judge", "eval", "bon", "serve", "mcp"])
def test_every_option_of_the_model_is_an_option_of_every_judging_command(command: str) -> None:
    group = get_command(app)
    found = group.get_command(None, command)  # type: ignore[attr-defined]
    options = {parameter.name: parameter for parameter in found.params}
    # The command line repeats --model for a jury.
    left_out = {"jury", "untrained"} if command == "judge" else {"jury", "untrained", *OF_RUNS}
    # Benchmarks ask as the papers do.
    left_out |= {"name_variables"} if command == "eval" else set()
    for name, field in JudgeOptions.model_fields.items():
        if name in left_out:
            assert name not in options
            continue
        (option,) = (one for one in field.metadata if isinstance(one, Option))
        assert options[name].rich_help_panel == option.panel
        assert field.description
        assert options[name].help.startswith(field.description.partition("\n\n")[0])
        flag, _, off = option.flag.partition("/")
        assert options[name].opts == [flag]
        assert options[name].secondary_opts == ([off] if field.annotation in (bool, bool | None) else [])
        assert not off or off == flag.replace("--", "--no-", 1)


def test_a_config_file_is_overridden_by_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "judge.toml"
    file.write_text(
        'model = "m"\nseed = 7\ntools = false\nsamples = 4\n'
        '[generator_options]\ndevice = "cpu"\nmax_rows = 8\n'
    )
    given = dict.fromkeys(RunOptions.model_fields)
    options = read_options(RunOptions, file, given)
    assert (options.model, options.seed, options.tools, options.concurrency) == ("m", 7, False, 32)
    assert (options.temperature, options.top_p) == (1.0, 0.95)
    options = read_options(
        RunOptions, file, {**given, "seed": 1, "tools": True, "generator_options": ["max_rows=2"]}
    )
    assert (options.model, options.seed, options.tools) == ("m", 1, True)
    assert options.generator_options == {"device": "cpu", "max_rows": 2}
    assert options == RunOptions(
        model="m", seed=1, samples=4, generator_options={"device": "cpu", "max_rows": 2}
    )


def test_rows_are_judged_by_a_config_file(tmp_path: Path, endpoint: EndpointServer) -> None:
    endpoint.script = lambda body: chat("<preference>B</preference>")
    write_rows(tmp_path / "rows.jsonl", pairs(3))
    fields = {"reasoning_effort": "high", "user": "u"}
    config = {"model": "m", "base_url": endpoint.url, "tools": False, "order": "given", "limit": 2}
    (tmp_path / "judge.json").write_text(json.dumps({**config, "request_fields": fields}))
    words = ("rows.jsonl", "--config", "judge.json", "--request-field", "reasoning_effort=low")
    judge(tmp_path, *words, code=0)
    assert [row["verdict"] for row in results(tmp_path / "rows.verdicts.jsonl")] == ["B", "B"]
    assert {(body["reasoning_effort"], body["user"]) for body in endpoint.bodies} == {("low", "u")}
    # Patience and the number of rows may change when a run is resumed, what is asked may not.
    assert judge(tmp_path, *words, "--limit", "3", "--timeout", "9", "--retries", "2").returncode == 0
    assert len(results(tmp_path / "rows.verdicts.jsonl")) == 3
    recorded = json.loads((tmp_path / "rows.verdicts.jsonl.settings.json").read_text())["settings"]
    assert not {"timeout", "retries", "base_url"} & recorded.keys()
    other = judge(tmp_path, *words[:3], code=2)
    assert "request_fields." in other.stderr


@pytest.mark.parametrize(
    "words",
    [
        *([name] for name in COMMANDS),
        *(["models", name] for name in MODELS_COMMANDS),
        *(["sandbox", name] for name in SANDBOX_COMMANDS),
    ],
)
def test_help_shows_two_examples_that_name_the_command(words: list[str]) -> None:
    text = shown(*words)
    examples = text.split("Examples:\n")[1].strip().splitlines()
    assert len(examples) >= 2
    assert all(" ".join(["tirjudge", *words]) in line for line in examples)
    assert CliRunner().invoke(app, [*words, "-h"], env={"COLUMNS": "200"}).stdout == text


def test_help_groups_the_options() -> None:
    lines = shown("judge", help="--help-all").splitlines()
    headings = [line for line in lines if line.endswith(":") and line[:1].isupper()]
    assert headings == ["Arguments:", *(f"{name}:" for name in PANELS), "Options:"]


def test_the_shell_completes_options() -> None:
    words = {"COMP_WORDS": "tirjudge judge --max-tok", "COMP_CWORD": "2"}
    environment = {**os.environ, "_TIRJUDGE_COMPLETE": "complete_bash", **words}
    run = subprocess.run([TIRJUDGE], env=environment, capture_output=True, text=True, check=False)
    assert run.stdout.split() == ["--max-tokens"]


def test_the_address_is_taken_from_the_environment_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: EndpointServer
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{endpoint.url}/v1?key=hidden")
    run = judge(tmp_path, pairs(1), "--no-tools", "--model", "m", code=0)
    assert "judging with m at 127.0.0.1 (OPENAI_BASE_URL)" in run.stderr
    assert len(endpoint.asked) == 1
    written = "".join(path.read_text() for path in tmp_path.iterdir())
    assert "hidden" not in run.stdout + run.stderr + written


def test_a_model_on_this_machine_ignores_the_address_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://elsewhere.invalid/v1")
    assert JudgeOptions(model="owner/name").base_url == "http://elsewhere.invalid/v1"
    assert JudgeOptions(model="owner/name", base_url="http://here/v1").base_url == "http://here/v1"
    for local in (
        {},
        {"model": str(TRAINED)},
        {"model": "smol"},
        {"model": str(tmp_path)},
        {"model": "judge.gguf"},
        {"model": "./no-such-folder"},
        {"model": "owner/name", "base_url": ""},
        {"model": "owner/name", "generator": "vllm"},
    ):
        assert JudgeOptions(**local).base_url == "", local


def test_a_price_that_is_not_given_comes_from_genai_prices_and_is_named(tmp_path: Path) -> None:
    """The limit is below the price of any call, so nothing is sent."""
    hosted = ("--base-url", "https://api.openai.com/v1", "--model", "gpt-4o-mini", "--max-cost", "0.0000001")
    run = judge(tmp_path, pairs(1), "--no-tools", *hosted)
    assert "at 0.15 and 0.6 USD a million tokens (genai-prices " in run.stderr
    assert "stopped: 0.0000 of 1e-07 are spent" in run.stderr
    assert JudgeOptions(model="gpt-4o-mini", base_url="http://localhost:8000").prices() == {}


@pytest.mark.parametrize(
    ("given", "engine"),
    [
        ({}, "openvino"),
        ({"model": "coder"}, "openvino"),
        ({"model": "tirjudge-coder"}, "openvino"),
        ({"model": "tirjudge-smol", "jury": ["coder"], "escalate_below": 1.0}, "openvino"),
        ({"model": "coder", "generator": "transformers"}, "transformers"),
        ({"model": "coder", "jury": ["owner/name"]}, "transformers"),
        ({"model": "smol"}, "transformers"),
    ],
)
def test_the_models_that_openvino_is_tested_with_run_there(given: dict[str, Any], engine: str) -> None:
    assert JudgeOptions(**given).generator == engine
