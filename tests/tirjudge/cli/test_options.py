"""Options of the judging commands: one model for all of them, config files, help, completion, suggestions."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from examples.miniature import TRAINED
from tests.command import TIRJUDGE
from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.judge_command import pairs, results, through, write_rows
from tirjudge.cli import app
from tirjudge.cli.options import RunOptions, read_options
from tirjudge.judging.options import ABSTENTION, JudgeOptions, Option

COMMANDS = ["bon", "eval", "formats", "judge", "mcp", "reproduce", "serve", "show"]
SANDBOX_COMMANDS = ["run", "build", "serve", "doctor"]
PANELS = ("Output", "Rows", "Model", "Sandbox", "Judging", "Cost", "Cluster")
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
    left_out = set() if command == "judge" else {*ABSTENTION}
    for name, field in JudgeOptions.model_fields.items():
        if name in left_out:
            assert name not in options
            continue
        (option,) = (one for one in field.metadata if isinstance(one, Option))
        assert options[name].rich_help_panel == option.panel
        assert field.description
        assert options[name].help.startswith(field.description.partition("\n\n")[0])
        flag = f"--{option.name or name.replace('_', '-')}"
        assert flag in options[name].opts
        if field.annotation is bool:
            assert options[name].secondary_opts == [flag.replace("--", "--no-", 1)]


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
    rows = write_rows(tmp_path / "rows.jsonl", pairs(3))
    config = {"model": "m", "base_url": endpoint.url, "tools": False, "order": "given", "limit": 2}
    (tmp_path / "judge.json").write_text(json.dumps(config))
    words = ["judge", str(rows), "--config", str(tmp_path / "judge.json"), "--output", str(tmp_path / "out")]
    run = CliRunner().invoke(app, words)
    assert run.exit_code == 0, run.stderr
    assert [row["verdict"] for row in results(tmp_path / "out")] == ["B", "B"]
    assert CliRunner().invoke(app, [*words, "--limit", "3"]).exit_code == 0
    assert len(results(tmp_path / "out")) == 3


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("judge.toml", "sample = 4", "sample: there is no such option; did you mean samples?"),
        ("judge.toml", "api_key = 'sk-secret'", "api_key: there is no such option"),
        ("judge.toml", "seed = -1", "seed: Input should be greater than or equal to 0"),
        ("judge.toml", "seed", "is not TOML"),
        ("judge.json", "{", "is not JSON"),
    ],
)
def test_a_bad_config_file_is_one_line(tmp_path: Path, name: str, text: str, reason: str) -> None:
    (tmp_path / name).write_text(text)
    run = CliRunner().invoke(app, ["judge", "rows.jsonl", "--config", str(tmp_path / name)])
    assert run.exit_code == 2
    assert run.stderr.startswith(f"tirjudge judge: {tmp_path / name}")
    assert reason in run.stderr
    assert len(run.stderr.splitlines()) == 1
    assert "sk-secret" not in run.stderr


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


def test_the_endpoint_gets_the_fields_of_the_options_and_of_a_config_file(
    tmp_path: Path, endpoint: EndpointServer
) -> None:
    write_rows(tmp_path / "rows.jsonl", pairs(1))
    (tmp_path / "judge.toml").write_text('[request_fields]\nreasoning_effort = "high"\nuser = "u"\n')
    words = (
        "--no-tools",
        "--request-field",
        "reasoning_effort=low",
        "--config",
        str(tmp_path / "judge.toml"),
    )
    run = CliRunner().invoke(
        app, ["judge", str(tmp_path / "rows.jsonl"), "--output", f"{tmp_path}/o", *words, *through(endpoint)]
    )
    assert run.exit_code == 0, run.stderr
    (body,) = endpoint.bodies
    assert (body["reasoning_effort"], body["user"]) == ("low", "u")
    again = [*words[:2], "reasoning_effort=high"]
    run = CliRunner().invoke(
        app, ["judge", str(tmp_path / "rows.jsonl"), "--output", f"{tmp_path}/o", *again, *through(endpoint)]
    )
    assert run.exit_code == 2, "verdicts of other requests are not mixed"
    assert "request_fields." in run.stderr


def test_patience_and_address_may_change_when_a_run_resumes(tmp_path: Path, endpoint: EndpointServer) -> None:
    write_rows(tmp_path / "rows.jsonl", pairs(1))
    words = ["judge", str(tmp_path / "rows.jsonl"), "--output", f"{tmp_path}/o", "--no-tools"]
    assert CliRunner().invoke(app, [*words, *through(endpoint)]).exit_code == 0
    recorded = json.loads((tmp_path / "o.settings.json").read_text())["settings"]
    assert not {"timeout", "retries", "base_url"} & recorded.keys()
    run = CliRunner().invoke(app, [*words, *through(endpoint), "--timeout", "9", "--retries", "2"])
    assert run.exit_code == 0, run.stderr


def test_the_address_is_taken_from_the_environment_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: EndpointServer
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{endpoint.url}/v1?key=hidden")
    write_rows(tmp_path / "rows.jsonl", pairs(1))
    words = ["judge", str(tmp_path / "rows.jsonl"), "--output", f"{tmp_path}/o", "--no-tools"]
    run = CliRunner().invoke(app, [*words, "--model", "m"])
    assert run.exit_code == 0, run.stderr
    assert "judging with m at 127.0.0.1 (OPENAI_BASE_URL)" in run.stderr
    assert len(endpoint.asked) == 1
    everything = run.output + "".join(path.read_text() for path in tmp_path.iterdir())
    assert "hidden" not in everything


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


def test_a_price_that_is_not_given_comes_from_genai_prices_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is below the price of any call, so nothing is sent."""
    write_rows(tmp_path / "rows.jsonl", pairs(1))
    hosted = ("--base-url", "https://api.openai.com/v1", "--model", "gpt-4o-mini", "--max-cost", "0.0000001")
    words = ["judge", str(tmp_path / "rows.jsonl"), "--output", f"{tmp_path}/o", "--no-tools"]
    run = CliRunner().invoke(app, [*words, *hosted])
    assert re.search(
        r"judging with gpt-4o-mini, at 0\.15 and 0\.6 USD a million tokens "
        r"\(genai-prices \S+, .* at OpenAI\)",
        run.stderr,
    ), run.stderr
    assert "stopped: 0.0000 of 1e-07 are spent" in run.stderr
    given = CliRunner().invoke(app, [*words, *hosted, "--price-in", "3", "--price-out", "4"])
    assert "genai-prices" not in given.output
    assert "stopped: 0.0000 of 1e-07 are spent" in given.stderr
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    missing = CliRunner().invoke(app, [*words, *hosted])
    assert missing.exit_code == 2
    assert "pip install 'tirjudge[prices]'" in missing.stderr


def test_no_price_is_assumed_for_a_server_of_ones_own() -> None:
    for address in (
        "http://127.0.0.1:8000/v1",
        "http://localhost:8000",
        "http://gpu-7/v1",
        "https://my.org/v1",
    ):
        assert JudgeOptions(model="gpt-4o-mini", base_url=address).price() is None
    assert JudgeOptions(model="no-such-model", base_url="https://api.openai.com/v1").price() is None
