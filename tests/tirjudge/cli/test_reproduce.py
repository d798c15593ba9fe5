"""`tirjudge reproduce`: programs run again in the real sandbox, and what a foreign file cannot do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.tirjudge.judge_command import command
from tests.tirjudge.judged_files import FAST, asking, edit, judge_to, programs
from tirjudge.judging.reproduction import WeakIsolation, recorded_programs, reproductions
from tirjudge_environments import Context
from tirjudge_sandbox import Execution, Isolation, Limits, Program, Sandbox, open_sandbox

SOURCES = {
    "bindings": "print(ascii([prompt, response_a, response_b, responses]))",
    "seed": "import random\nprint(random.random())",
    "error": "print(len(response_a))\n1/0",
    "fence": "print('```')\nprint('x' * 5000)",
    "signal": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
}


def reproduce(*arguments: object, code: int | None = None) -> Result:
    return command("reproduce", *arguments, *FAST, code=code)


def record(*arguments: object) -> dict[str, Any]:
    run = reproduce(*arguments, "--json")
    assert run.exit_code in (0, 1), run.output
    found: dict[str, Any] = json.loads(run.stdout)
    assert run.exit_code == (found["same"] != found["programs"] or found["verdicts_changed"] > 0)
    return found


def by_prompt(context: Context) -> str:
    """Run the program that the prompt names, four times, and choose A."""
    text = context.prompt.messages[-1].content
    source = next((source for name, source in SOURCES.items() if f"row {name}" in text), "")
    if len(context.segments) >= 8 or (context.segments and "row seed" not in text):
        return "<preference>A</preference>"
    return f"```python\n{source}\n```\n"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows for SOURCES, five of them for the first; that with a seed asks four times, the last in vain."""
    names = [*SOURCES, *(f"bindings {n}" for n in range(1, 5))]
    rows = [
        {"id": name, "prompt": f"row {name}", "responses": [f"{name} one", "two\ud800"]} for name in names
    ]
    return judge_to(tmp_path_factory.mktemp("judged") / "out.jsonl", rows, by_prompt, seed=3)


@pytest.fixture
def judged(original: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "out.jsonl"
    copy.write_bytes(original.read_bytes())
    return copy


def test_what_the_judge_ran_is_what_runs_again(judged: Path) -> None:
    table = reproduce(judged, code=0)
    assert [line.split() for line in table.stdout.splitlines()] == [
        ["programs", "11"], ["same", "11"], ["different", "0"], ["nondeterministic", "0"], ["failed", "0"],
        ["verdicts", "read", "again", "9"], ["verdict", "changed", "0"],
    ]  # fmt: skip


def stdout(row: dict[str, Any]) -> None:
    programs(row)[0]["stdout"] = programs(row)[0]["stdout"].replace("one", "0ne")


def source(row: dict[str, Any]) -> None:
    programs(row)[0]["text"] = "print('\x1b[2J')"


def status(row: dict[str, Any]) -> None:
    programs(row)[0] |= {"status": "error", "exit_code": 1}


def swapped(row: dict[str, Any]) -> None:
    row["responses"].reverse()


def shown(row: dict[str, Any]) -> None:
    (output,) = (one for one in row["views"][0]["segments"] if one["kind"] == "output")
    output["text"] = output["text"].replace("one", "0ne")


def seed(row: dict[str, Any]) -> None:
    programs(row)[0]["seed"] += 1


TAMPERING: dict[str, tuple[Callable[[Any], None], str]] = {
    "bindings": (stdout, "stdout was "),
    "bindings 1": (source, "stdout was "),
    "bindings 2": (status, "status was error and is now ok"),
    "bindings 3": (swapped, "stdout was "),
    "bindings 4": (shown, "the judge was shown "),
    "seed": (seed, "stdout was "),
}


def test_tampering_is_found(judged: Path) -> None:
    edit(
        judged, lambda rows: [TAMPERING[row["id"]][0](row) for row in rows if row["id"] in TAMPERING] and None
    )
    found = record(judged)
    assert (found["same"], found["different"], found["nondeterministic"]) == (5, 6, 0)
    reasons = {one["id"]: one["reason"] for one in found["not_same"]}
    assert reasons.keys() == TAMPERING.keys()
    for id, (_, reason) in TAMPERING.items():
        assert reasons[id].startswith(reason), id
    assert {one["program"] for one in found["not_same"]} == {1}


_LONGEST = "print('ABC'[max(range(len(responses)), key=lambda n: len(responses[n]))])"
_CHECK = "def check(response):\n    return ['o' in response, len(response) > 3]"
OTHER_RESPONSES: dict[str, tuple[str, str, list[str], dict[str, Any]]] = {
    "pair": (_LONGEST, "A", ["one", "two and more"], {"order": "both"}),
    "list": (_LONGEST, "A", ["one", "two and more", "three"], {"order": "given"}),
    "single": ("print('pass' if response else 'fail')", "10", ["one"], {}),
    # The program gives an empty answer the same, so that it ran for another one too.
    "other": ("print('fail' if 'A week' in response else 'pass')", "10", ["one"], {}),
    # An empty answer among several is no other response.
    "left": ("print('three' in response)", "10", ["one", "", "three"], {"format": "tir-pointwise"}),
    "criteria": (_LONGEST, "A", ["one", "two and more"], {"order": "random"}),
    "check": (_CHECK, "", ["one", "one and more"], {"format": "checks-pairwise"}),
}


@pytest.mark.parametrize("name", OTHER_RESPONSES)
def test_the_run_with_other_responses_is_made_again_too(name: str, tmp_path: Path) -> None:
    """It says whether a program decided a verdict, and anybody could write its output into a file."""
    program, verdict, responses, options = OTHER_RESPONSES[name]
    row = {"id": "x", "prompt": "p", "responses": responses, "reference": "r"}
    if name == "criteria":
        row |= {"criteria": ["long", "longer"], "tools": [{"type": "function", "function": {"name": "f"}}]}
        program = f"assert reference == 'r' and tools[0]['function']['name'] == 'f'\n{program}"
    path = judge_to(tmp_path / "x.jsonl", [row], asking(program, lambda shown: verdict), **options)
    honest = record(path)
    assert honest["same"] == honest["programs"] > 0

    def forge(rows: list[dict[str, Any]]) -> None:
        assert programs(rows[0])[0]["exchanged"]["status"] == "ok"
        programs(rows[0])[0]["exchanged"]["stdout"] = "forged\n"

    edit(path, forge)
    (found,) = (one for one in record(path)["not_same"] if one["outcome"] != "verdict changed")
    assert found["outcome"] == "different"
    assert found["reason"].startswith("with other responses, stdout was 'forged\\n' and is now ")


def test_a_file_without_programs_has_its_verdicts_read_again(tmp_path: Path) -> None:
    rows = [{"id": "x", "prompt": "p", "responses": ["a", "b"]}]
    path = judge_to(tmp_path / "out.jsonl", rows, lambda _: "<preference>A</preference>")
    run = reproduce(path, code=0)
    assert "has no program that was run: only its verdicts are read again" in run.stderr
    edit(path, lambda rows: rows[0]["views"][0]["segments"][0].update(text="no idea") and None)
    assert reproduce(path).exit_code == 1


STOPPED = {"crash": "import os; os.abort()", "loop": "while True: pass"}


@pytest.mark.parametrize("end", STOPPED.values(), ids=STOPPED)
def test_a_stopped_program_is_the_same_when_it_runs_again(tmp_path: Path, end: str) -> None:
    rows = [{"id": "x", "prompt": "p", "responses": ["a", "b"]}]
    limits = {"cpu_seconds": 1}
    script = asking(f"print('half')\n{end}", lambda _: "A")
    path = judge_to(tmp_path / "out.jsonl", rows, script, program_limits=limits)
    assert "unfinished:\\nhalf\\n" in path.read_text()
    found = record(path, "--program-limit", "cpu_seconds=1")
    assert (found["same"], found["different"]) == (1, 0), found


def test_a_program_without_a_fixed_output_is_nondeterministic(tmp_path: Path) -> None:
    script = asking("import os\nprint(os.urandom(8))", lambda _: "A")
    rows = [{"id": "x", "prompt": "p", "responses": ["a", "b"]}]
    found = record(judge_to(tmp_path / "out.jsonl", rows, script))
    assert (found["nondeterministic"], found["same"], found["different"]) == (1, 0, 0)


def test_a_program_that_lacks_a_part_fails_and_the_others_run(judged: Path) -> None:
    def remove(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            if row["id"] == "error":
                programs(row)[0].pop("seed")
            if row["id"] == "bindings":
                programs(row)[0]["bindings"]["response_a"] = 7
            if row["id"] == "fence":
                row.pop("responses")

    edit(judged, remove)
    found = record(judged)
    assert (found["same"], found["failed"]) == (8, 3)
    assert {one["id"] for one in found["not_same"]} == {"error", "bindings", "fence"}


def test_limits_and_imports_come_from_the_command_line_and_never_from_the_file(tmp_path: Path) -> None:
    script = asking("import time, socket\ntime.sleep(0.5)\nprint(1)", lambda _: "A")
    rows = [{"id": "x", "prompt": "p", "responses": ["a", "b"]}]
    path = judge_to(tmp_path / "out.jsonl", rows, script)
    wishes = {"limits": {"wall_seconds": 99}, "backend": "none", "allow_weak_isolation": True}
    edit(path, lambda rows: rows[0].update(wishes) or programs(rows[0])[0].update(wishes))
    (tmp_path / "out.jsonl.settings.json").write_text(json.dumps({"settings": {**wishes, "x": 1}}))
    assert record(path)["same"] == 1
    assert "status was ok and is now wall_limit" in record(path, "--timeout", 0.2)["not_same"][0]["reason"]
    refused = record(path, "--import-policy")["not_same"][0]["reason"]
    assert refused.startswith("status was ok and is now error")


@pytest.mark.slow
def test_programs_run_under_the_limits_of_the_options(tmp_path: Path) -> None:
    script = asking("print(len(bytearray(700 << 20)))", lambda output: "B" if "734003200" in output else "A")
    rows = [{"id": "x", "prompt": "p", "responses": ["a", "b"]}]
    given = {"memory_bytes": 1e9}
    path = judge_to(tmp_path / "out.jsonl", rows, script, order="given", program_limits=given)
    assert json.loads(path.read_text())["verdict"] == "B"
    assert record(path, "--program-limit", "memory_bytes=1e9")["same"] == 1
    (tmp_path / "out.jsonl.settings.json").write_text(json.dumps({"settings": {"program_limits": given}}))
    run = reproduce(path, code=1)
    assert "these programs ran with --program-limit memory_bytes=1000000000.0" in run.stderr


class Weakened:
    """A sandbox with one isolation property less than the real one; None reports nothing."""

    def __init__(self, sandbox: Sandbox, isolation: Isolation | None) -> None:
        self._sandbox, self._isolation = sandbox, isolation
        self.capacity = sandbox.capacity
        self.sources: list[str] = []

    async def run(self, program: Program, limits: Limits = Limits()) -> Execution:
        self.sources.append(program.source)
        return replace(await self._sandbox.run(program, limits), isolation=self._isolation)


WEAK = Isolation(
    placement="bare", host_files_hidden=False, network_cut=True, processes_contained=True, calls_filtered=True
)


@pytest.mark.parametrize(("isolation", "said"), [(WEAK, "lacks host_files_hidden"), (None, "does not say")])
def test_weak_isolation_is_refused_before_a_program_runs(
    judged: Path, isolation: Isolation | None, said: str
) -> None:
    async def outcomes() -> tuple[list[str], list[str]]:
        async with open_sandbox("local", capacity=1, preload=()) as real:
            weakened: Any = Weakened(real, isolation)

            async def run(allowed: bool) -> list[str]:
                programs, limits = islice(recorded_programs(judged), 2), Limits()
                found = reproductions(programs, weakened, limits, allow_weak_isolation=allowed)
                return [one.outcome.value async for one in found]

            with pytest.raises(WeakIsolation, match=said):
                await run(allowed=False)
            assert weakened.sources == [""]
            return await run(allowed=True), weakened.sources

    found, sources = asyncio.run(outcomes())
    assert found == ["same"] * 2
    assert len(sources) == 5  # one of them with other responses too
