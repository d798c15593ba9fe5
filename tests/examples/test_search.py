"""The example of a judge that must search: its rows, its server, and a short training."""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.command import tirjudge
from tirjudge.storage.json_lines import read_lines
from tirjudge_environments.testing import fixed_sandbox
from tirjudge_environments.tools import open_tools
from tirjudge_environments.tools.base import ToolSettings

ROOT = Path(__file__).parents[2]
FILES = "demonstrations", "train", "heldout"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("search")
    subprocess.run([sys.executable, "-m", "examples.search", "--output", folder], cwd=ROOT, check=True)
    return folder


def address(folder: Path) -> str:
    command = [sys.executable, str(ROOT / "examples/search/server.py"), str(folder / "corpus.txt")]
    return f"mcp:{shlex.join(command)}"


def test_only_the_corpus_knows_the_better_response(made: Path) -> None:
    rows: dict[str, list[dict[str, Any]]] = {name: list(read_lines(made / f"{name}.jsonl")) for name in FILES}
    corpus = set((made / "corpus.txt").read_text().splitlines())
    places = [{row["prompt"].rsplit(" ", 1)[1] for row in rows[name]} for name in FILES]
    assert len(set().union(*places)) == sum(map(len, places)), "the files share a place"
    for row in (one for name in FILES for one in rows[name]):
        assert row["responses"][row["label"]] in corpus
        assert row["responses"][1 - row["label"]] not in corpus
    labels = [row["label"] for row in rows["heldout"]]
    assert 0.4 < sum(labels) / len(labels) < 0.6, "a constant verdict is right by chance"


@pytest.mark.slow
def test_the_server_finds_the_fact(made: Path) -> None:
    rows = [json.loads(line) for line in (made / "demonstrations.jsonl").read_text().splitlines()[:20]]

    async def found() -> list[str]:
        async with open_tools(ToolSettings(servers=(address(made),)), fixed_sandbox()) as (search,):
            calls = [await search.call(row["demonstration"]["arguments"]) for row in rows]
            unknown = await search.call({"query": "zebra"})
            assert (unknown.status.value, "nothing is known" in unknown.stderr) == ("error", True)
            return [call.stdout.strip() for call in calls]

    assert asyncio.run(found()) == [row["responses"][row["label"]] for row in rows]


@pytest.mark.slow
def test_the_recipe_shows_searches_before_it_learns_from_labels(made: Path, tmp_path: Path) -> None:
    files = [f"data.{name}={made / f'{name}.jsonl'}" for name in FILES]
    tools = f"rl.tools.servers={json.dumps([address(made)])}"
    options = [word for key in (*files, tools) for word in ("--set", key)]
    recipe = str(ROOT / "examples/search/recipe.toml")
    run = tirjudge("train", "--recipe", recipe, "--shrink", *options, "--output", str(tmp_path / "run"))
    assert run.returncode == 0, run.stderr
    assert "4 of 4 calls are learned" in run.stderr
    (sample, *_) = read_lines(tmp_path / "run" / "demonstrations" / "samples.jsonl")
    assert sample["call"]
    assert len(list(read_lines(tmp_path / "run" / "rl" / "metrics.jsonl"))) == 2
