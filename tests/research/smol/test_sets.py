"""The sets of the smol judge: stable splits, and labels that an independent check confirms."""

from __future__ import annotations

import ast
import asyncio
import hashlib
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

from research.smol import code_pairs, ifeval_pairs, sets, sources, splits
from tests.ifeval_registry import registry as registry
from tirjudge_environments.instruction_checks import IFEVAL
from tirjudge_environments.tasks import read_task
from tirjudge_sandbox import open_sandbox
from tirjudge_training.recipe import Recipe
from tirjudge_training.recipe_file import load, load_arms

RECIPES = Path(sets.__file__).parent / "recipes"

needs_data = pytest.mark.skipif(
    not (sources.BENCHMARKS / "ifeval").exists(),
    reason=f"no benchmark data at {sources.BENCHMARKS}; set TIRJUDGE_BENCHMARK_DATA",
)
needs_mbpp = pytest.mark.skipif(
    not (sources.CORPORA / "mbpp").exists(), reason=f"no MBPP at {sources.CORPORA}; set TIRJUDGE_CORPORA"
)


def digest(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def test_the_held_out_families_are_the_seeded_draw():
    assert splits.draw_held_out() == splits.HELD_OUT_FAMILIES
    assert set(splits.HELD_OUT_FAMILIES) < set(IFEVAL)
    assert splits.draw_trained() == splits.FAMILIES["ten"]
    assert not set(splits.FAMILIES["ten"]) & set(splits.HELD_OUT_FAMILIES)
    for recipe in ("smol-arms-ten", "smol-further-ten"):
        assert load(Recipe, f"{RECIPES}/{recipe}.toml").data.families == splits.FAMILIES["ten"]
    form = load_arms(Recipe, f"{RECIPES}/smol-further-ten.toml")["form"]
    assert form.demonstrations.families == splits.draw_form()
    assert load(Recipe, f"{RECIPES}/smol-arms.toml").data.without_families == splits.HELD_OUT_FAMILIES


def test_a_half_depends_on_the_words_of_the_prompt_alone():
    assert splits.split_of("Name a prime.") == splits.split_of("Name  a\r\nprime. ")
    halves = [splits.split_of(f"prompt {number}") for number in range(2000)]
    assert 900 < halves.count("development") < 1100


@needs_data
def test_the_halves_of_the_published_prompts_are_pinned():
    ifeval = [f"{row['key']} {splits.split_of(row['prompt'])}" for row in sources.ifeval_rows()]
    ifbench = [f"{row['id']} {splits.split_of(row['prompt'])}" for row in sources.ifbench_rows()]
    assert (digest(ifeval), digest(ifbench)) == ("654652824ee2596d", "c56422438764c606")


@needs_mbpp
def test_the_halves_of_mbpp_are_pinned():
    problems = sources.mbpp_problems()
    assert (problems[0]["task_id"], problems[-1]["task_id"], len(problems)) == (11, 510, 500)
    halves = [f"{row['task_id']} {splits.split_of(row['text'])}" for row in problems]
    assert digest(halves) == "1b8d0bf62e290155"


def kept(registry: dict[str, Any], row: dict[str, Any], response: str) -> list[bool]:
    """Return which constraints of a row a response keeps, by the authors' own checks."""
    found = []
    for name, arguments in zip(row["instruction_id_list"], row["kwargs"], strict=True):
        check = registry[name](name)
        check.build_description(**arguments)
        found.append(bool(response.strip()) and bool(check.check_following(response)))
    return found


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "count"),
    [
        (ifeval_pairs.broken_pairs, 40),
        (ifeval_pairs.repaired_pairs, 20),
        (ifeval_pairs.both_edited_pairs, 6),
        (ifeval_pairs.lists, 6),
    ],
)
def test_labels_agree_with_the_released_checks(make: Any, count: int, registry: dict[str, Any]):
    rows = list(islice(make("development"), count))
    assert len(rows) == count
    for row in rows:
        if any(not arguments.get("letter", "a").isalpha() for arguments in row["kwargs"]):
            continue  # the released checks replace such a letter by a random one
        results = [kept(registry, row, response) for response in row["responses"]]
        assert [all(result) for result in results].index(True) == row["label"], row["id"]
        assert sum(map(all, results)) == 1, row["id"]
        assert splits.split_of(row["prompt"]) == "development"
        assert read_task(row, default_id="").label == row["label"]


@needs_data
@pytest.mark.slow
def test_exactly_one_constraint_is_broken_and_the_answers_are_gpt_4s():
    answers = {row["prompt"]: row["response"] for row in sources.ifeval_rows()}
    for row in islice(ifeval_pairs.broken_pairs("test"), 30):
        assert row["responses"][row["label"]] == answers[row["prompt"]]
        assert row["responses"][1 - row["label"]] != answers[row["prompt"]]
        assert len(row["broken"]) == 1
    for row in islice(ifeval_pairs.repaired_pairs("test"), 10):
        assert row["responses"][1 - row["label"]] == answers[row["prompt"]]
    for row in islice(ifeval_pairs.both_edited_pairs("test"), 4):
        assert answers[row["prompt"]] not in row["responses"]


def test_mutants_differ_from_the_program_in_one_place():
    source = "def f(x):\n    if x < 3:\n        return x + 1\n    return True"
    found = list(code_pairs.mutants(source, Random(0)))
    assert "def f(x):\n    if x <= 3:\n        return x + 1\n    return True" in found
    assert "def f(x):\n    if x < 3:\n        return x - 1\n    return True" in found
    assert len(set(found)) == len(found)
    assert all(ast.parse(mutant) and mutant != source for mutant in found)


@needs_mbpp
@pytest.mark.slow
async def test_labels_of_mbpp_agree_with_plain_python(tmp_path: Path):
    async with open_sandbox() as sandbox:
        rows = await code_pairs.pairs("development", sandbox, sources.mbpp_problems(11, 40))
    problems = {f"mbpp-{row['task_id']}": row for row in sources.mbpp_problems()}
    assert len(rows) > 8
    for row in rows:
        passes = []
        for response in row["responses"]:
            code = response.split("```python\n")[1].removesuffix("\n```")
            problem = problems[row["id"]]
            text = "\n".join([problem["test_setup_code"], code, *problem["test_list"]])
            (tmp_path / "program.py").write_text(text)
            passes.append(await asyncio.to_thread(runs, tmp_path / "program.py"))
        assert passes == [index == row["label"] for index in range(2)], row["id"]
        assert all(check in row["prompt"] for check in problems[row["id"]]["test_list"])


def runs(program: Path) -> bool:
    return subprocess.run([sys.executable, program], capture_output=True, check=False).returncode == 0


def published() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for split in splits.SPLITS:
        yield from sets.all_sets(split, ["natural", "no-program", "rm-bench", "judgebench", "gsm8k"])


@needs_data
@needs_mbpp
def test_the_published_sets_have_the_published_rows_and_unique_ids():
    rows: dict[str, list[dict[str, Any]]] = {}
    for name, some in published():
        rows.setdefault(name, []).extend(some)
    assert {name: len(some) for name, some in rows.items() if name in ("natural", "judgebench")} == {
        "natural": 444,
        "judgebench": 350,
    }
    assert [len(rows[name]) for name in ("gsm8k", "rm-bench")] == [200, 300]
    for some in rows.values():
        tasks = [read_task(row, default_id="") for row in some]
        assert len({task.id for task in tasks}) == len(tasks)
        assert all(task.label is not None and len(task.candidates) == 2 for task in tasks)
    assert not any(any(sign.isdigit() for sign in row["prompt"]) for row in rows["no-program"])


@needs_data
@needs_mbpp
def test_the_script_writes_the_same_rows_again(tmp_path: Path):
    first = sets.write(tmp_path / "first", ["no-program"])
    assert first["files"] == sets.write(tmp_path / "second", ["no-program"])["files"]
    file = tmp_path / "first" / "no-program.test.jsonl"
    assert first["files"][file.name]["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert all(row["set"] == "no-program" and row["split"] == "test" for row in sources.read_lines(file))
