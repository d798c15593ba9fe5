"""Every Python block of README and docs runs, with a scripted model in place of an endpoint's."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from examples.miniature import TRAINED
from tests.docs.blocks import ROOT, Block, blocks
from tests.sandbox.serving import serving as sandbox_serving
from tests.tirjudge.endpoint_server import chat, serving
from tests.tirjudge.judge_server import judge_serving
from tirjudge import testing
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge_sandbox import Program, run_with_isolated
from tirjudge_sandbox.local import LocalSandbox

ADDRESS = re.compile(r"https?://[\d.]+:\d+(,http://[\d.:]+)?|http://localhost:\d+")


SLOW = {"sandbox.md#4": pytest.mark.slow, "sandbox-server.md#2": pytest.mark.slow}


def answer(body: dict[str, Any]) -> dict[str, Any]:
    """Score a single response, and prefer 11 to 12."""
    asked = str(body["messages"])
    if "matching" in asked.lower():
        return chat('{"matches": []}')
    if "at most 10 words" in asked and len(body["messages"]) == 1:
        return chat("```python\ndef check(response):\n    return [len(response.split()) <= 10]\n```")
    first = asked.rfind("11") < asked.rfind("12")
    return chat(
        "<score>10</score>" if "<score>" in asked else f"<preference>{'A' if first else 'B'}</preference>"
    )


@dataclass(frozen=True)
class Runs:
    """It runs in a folder with these files, finds these names, and prints this."""

    prints: str = ""
    names: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    server: str = "endpoint"
    """The server in place of its addresses: `endpoint`, `judge` or `sandbox`."""
    program: bool = False
    """It is a program in a sandbox, with the names as its variables."""
    instead: Mapping[str, Callable[[], str]] = field(default_factory=dict)
    """Parts of its text, and what takes their place."""


CONSTRAINT = {"prompt": "p", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
EXTENSIONS = "tests/test_extending_docs.py"
ADDS = "def add(a, b):\n    return a + b\n"
RUNS = {
    "attacks.md#1": Runs("True\n", names={"response_a": ADDS}, program=True),
    "checkers.md#1": Runs(files={"checkers.toml": "examples/checkers.toml"}),
    "checkers.md#2": Runs(),
    "endpoints.md#1": Runs(),
    "evaluation.md#1": Runs(
        files={f"{name}.jsonl": "examples/miniature.verdicts.jsonl" for name in ("before", "after")}
    ),
    "evaluation.md#2": Runs("A False 1.0\n"),
    "evaluation.md#3": Runs(),
    "evaluation.md#4": Runs(names={"response": "Yes.", "row": CONSTRAINT}),
    "group-rewards.md#1": Runs("(1.0, 0.0) 1\n"),
    "group-rewards.md#2": Runs(),
    "judge.md#1": Runs('False printed "", expected "5"\nTrue \n'),
    "judge.md#2": Runs(),
    "embedding.md#1": Runs(
        "Verdict(",
        instead={"Qwen/Qwen3-4B-Instruct-2507": lambda: str(str(TRAINED)), "size=8": lambda: "size=2"},
    ),
    "embedding.md#3": Runs(),
    "sandbox.md#1": Runs("ok 3\n\n"),
    "sandbox.md#2": Runs("3\n\n"),
    "sandbox.md#3": Runs("True\nTrue\n", names={"code": ADDS}, program=True),
    "sandbox.md#4": Runs("ok kernel ({'text/plain': '1'},)\n{'out.txt': b'1'}\n"),
    "sandbox-server.md#2": Runs("1\n", server="sandbox"),
    "serve.md#3": Runs(),
    "serve.md#1": Runs("A\n", server="judge"),
}
"""Page and number of the block on it, to what it needs and prints."""
ELSEWHERE = {
    "README.md#1": "tests/docs/test_readme.py",
    "extending.md": EXTENSIONS,
    "embedding.md#2": "tests/tirjudge/adapters/test_inspect_ai.py",
    "judges.md": "tests/tirjudge/cli/test_eval.py",
    "examples.md": "tests/docs/test_examples.py",
    "serve.md#2": "tests/tirjudge/serve/test_openai.py",
    "sandbox-server.md#1": "tests/sandbox/test_conformance.py",
    "training.md": "tests/training/rl/test_trl_rollout.py",
}
"""Page, or block of a page, to the test that runs it, since it needs an engine, a framework or a package."""


def numbered() -> dict[str, Block]:
    found: dict[str, Block] = {}
    for block in blocks():
        if block.language == "python":
            number = 1 + sum(name.startswith(f"{block.page}#") for name in found)
            found[f"{block.page}#{number}"] = block
    return found


BLOCKS = numbered()


def elsewhere(name: str) -> bool:
    return name in ELSEWHERE or name.partition("#")[0] in ELSEWHERE


def test_every_python_block_is_in_a_table() -> None:
    assert {name for name in BLOCKS if not elsewhere(name)} == set(RUNS)
    assert all((ROOT / test).exists() for test in ELSEWHERE.values())


@pytest.mark.parametrize("name", [name for name in BLOCKS if elsewhere(name)])
def test_a_block_that_runs_elsewhere_compiles(name: str) -> None:
    compile(BLOCKS[name].code, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


async def ran_as_a_program(source: str, bindings: Mapping[str, Any]) -> str:
    async with LocalSandbox(capacity=1, preload=()) as box:
        return (await run_with_isolated(box, Program(source=source, bindings=bindings))).stdout


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setattr(testing, "_judges", {})
    yield tmp_path
    for judge, _ in testing._judges.values():
        judge.close()


@pytest.mark.parametrize("name", [pytest.param(one, marks=SLOW.get(one, ())) for one in RUNS])
def test_a_block_runs(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    block, wanted = BLOCKS[name], RUNS[name]
    for file, place in wanted.files.items():
        (folder / file).symlink_to(ROOT / place)
    code = block.code
    for part, replacement in wanted.instead.items():
        assert part in code
        code = code.replace(part, replacement())
    if wanted.program:
        print(asyncio.run(ran_as_a_program(code, wanted.names)))
        assert wanted.prints in capsys.readouterr().out
        return
    with ExitStack() as stack:
        if wanted.server == "judge":
            model = ScriptedGenerator(["<preference>A</preference>"])
            url = stack.enter_context(judge_serving(model, tools=False, order="given")).url
        elif wanted.server == "sandbox":
            url = stack.enter_context(sandbox_serving()).url
        else:
            server = stack.enter_context(serving())
            server.script, url = answer, server.url
        exec(compile(ADDRESS.sub(url, code), f"{name}", "exec"), {"__name__": "__main__", **wanted.names})
    assert wanted.prints in capsys.readouterr().out
