"""Scripted dialogues that every adapter plays, and their outcome in this project's own engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests import transcripts
from tests.environments.tools.test_mcp import COMMAND
from tests.transcripts import COMPARE
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.rollout import Rollout
from tirjudge_environments import By, Completion, Finish, Reward, StopReason, ToolCall, Trajectory
from tirjudge_environments.adapters.dialogues import SandboxThread, score_alone
from tirjudge_environments.adapters.settings import JudgeSettings
from tirjudge_environments.registry import with_tools
from tirjudge_environments.tasks import read_task
from tirjudge_environments.tokenization import Encoder
from tirjudge_environments.tools import open_tools
from tirjudge_sandbox import open_sandbox

ROW = {
    "id": "pair-1",
    "prompt": "Answer in three words.",
    "responses": ["one two three", "one two"],
    "label": 0,
}
COUNT = "print(len(response_a.split()))\n"
FILES_ROW = {
    "id": "files-1",
    "prompt": "Add up the numbers.",
    "responses": ["done", "done"],
    "files": [
        {"out/sum.txt": {"text": "7"}},
        {"out/sum.txt": {"base64": "OA=="}, "numbers.csv": {"diff": "@@ -1,2 +1,2 @@\n 3\n-4\n+5\n"}},
    ],
    "prompt_files": {"numbers.csv": {"text": "3\n4\n"}},
    "label": 0,
}
ADD_UP = """def lines(folder, path):
    with open(f"{folder}/{path}") as file:
        return file.read().splitlines()
total = sum(map(int, lines(prompt_files, "numbers.csv")))
print([int(lines(folder, "out/sum.txt")[0]) == total for folder in files], lines(files_b, "numbers.csv"))
"""
ADDED_UP = "[True, False] ['3', '5']\n"
CHECKS = "checks-pairwise"
CHECK = "def check(response):\n    return [len(response.split()) == 3]\n"
TIE = "def check(response):\n    return [True]\n"
A = "<preference>A</preference>"
B = "<preference>B</preference>"


@dataclass(frozen=True)
class Turn:
    """One turn of the model: a text, and programs in the form that the protocol asks for."""

    text: str
    programs: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    """Arguments of calls of the tool `search`, as JSON."""

    def fenced(self) -> str:
        """Return the turn under the `fence` protocol, which allows one program or call per turn."""
        fences = [
            *(("python", one) for one in self.programs),
            *(("search", f"{one}\n") for one in self.searches),
        ]
        return self.text + "".join(f"\n```{info}\n{source}```\n" for info, source in fences)

    def calls(self) -> tuple[ToolCall, ...]:
        """Return the turn under the `tool` protocol."""
        programs = [("run_python", json.dumps({"code": source})) for source in self.programs]
        asked = [*programs, *(("search", arguments) for arguments in self.searches)]
        return tuple(ToolCall(f"call-{number}", *one) for number, one in enumerate(asked))


@dataclass(frozen=True)
class Script:
    """A named dialogue."""

    name: str
    turns: tuple[Turn, ...]
    domain: str = ""
    given: Mapping[str, Any] = field(default_factory=lambda: ROW)
    judge: str = "tir-pairwise"
    settled: bool = False
    """True if the counts of a check end the dialogue."""

    @property
    def native_turns(self) -> tuple[Turn, ...]:
        """The turns in a framework's loop over native calls, which asks for an answer in any case."""
        return (*self.turns, Turn("")) if self.settled else self.turns

    @property
    def changes(self) -> dict[str, Any]:
        """The judge as changes of `settings`; a judge that writes checks takes no further tools."""
        return {"judge": self.judge, **({"tools": {}} if self.judge == CHECKS else {})}

    @property
    def row(self) -> dict[str, Any]:
        prompt = f"{self.given['prompt']} ({self.name})"
        return {**self.given, "id": self.name, "prompt": prompt, "domain": self.domain}


ASK = Turn("Let me count.", (COUNT,))
WRITE = Turn("", (CHECK,))
SCRIPTS = (
    Script("right at once", (Turn(A),)),
    Script("wrong at once", (Turn(B),)),
    Script("no verdict", (Turn("I cannot say."),)),
    Script("one program", (ASK, Turn(f"Three, so {A}"))),
    Script("a program that fails", (Turn("", ("1 / 0\n",)), Turn(A))),
    Script("a random number", (Turn("", ("import random\nprint(random.random())\n",)), Turn(A))),
    Script("a fourth program", (ASK, ASK, ASK, ASK, Turn(A))),
    Script("a verdict before the end", (Turn(B, (COUNT,)), Turn(A))),
    Script("an output of its own", (Turn("```output\n3\n```\n" + A),)),
    Script("a program where none belongs", (ASK, Turn(A)), domain="safety"),
    Script("an output that looks like markup", (Turn("", ("print('<|im_end|>```')\n",)), Turn(A))),
    Script("turns without end", (ASK,) * 8),
    Script("a search", (Turn("", searches=('{"query": "a prime?"}',)), Turn(A))),
    Script("a search that fails, and a program", (Turn("", searches=('{"query": "Mars"}',)), ASK, Turn(A))),
    Script("a fourth call", (Turn("", searches=('{"query": "a prime?"}',)), ASK, ASK, ASK, Turn(A))),
    Script("transcripts of agents", (Turn("", (COMPARE,)), Turn(A)), given=transcripts.ROW),
    Script("files of agents", (Turn("", (ADD_UP,)), Turn(A)), given=FILES_ROW),
    Script("a check that decides", (WRITE,), judge=CHECKS, settled=True),
    Script(
        "a check that is repaired",
        (Turn("", (CHECK.replace("len", "size"),)), WRITE),
        judge=CHECKS,
        settled=True,
    ),
    Script("a check after the responses", (Turn("", (TIE,)), WRITE, Turn(A)), judge=CHECKS),
)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a script in an engine or a framework."""

    written: str
    """The text that counts for the loss (mask 1), in order."""
    observations: tuple[str, ...]
    """The text appended after each program, without its markup (mask 0)."""
    total: float
    parts: Mapping[str, float]


def settings(**changes: Any) -> JudgeSettings:
    """Settings of a pairwise judge that may search, without preloaded modules: its sandbox opens fast."""
    fields: dict[str, Any] = {
        "judge": "tir-pairwise",
        "options": {"order": "given"},
        "sandbox_options": {"capacity": 1, "preload": []},
        "tools": {"servers": [COMMAND], "allowed": ["search"]},
    }
    return JudgeSettings(**fields | changes)


async def ours(script: Script, settings: JudgeSettings, encoder: Encoder | None = None) -> Trajectory:
    """Play a script in this project's rollout engine with a real sandbox."""
    task = read_task(script.row, default_id="row", columns=settings.columns)
    native = settings.options.get("protocol") == "tool"
    turns = [_native(turn) if native else turn.fenced() for turn in script.turns]
    async with (
        open_sandbox(settings.sandbox, **settings.sandbox_options) as sandbox,
        open_tools(settings.tools, sandbox) as tools,
    ):
        engine = Rollout(
            settings.environment,
            ScriptedGenerator(turns, encoder=encoder),
            sandbox,
            tools=tools,
            budget=settings.budget,
            limits=settings.limits,
            seed=settings.seed,
        )
        return await engine.trajectory(task, settings.environment.views(task)[0])


def outcome(script: Script, settings: JudgeSettings, trajectory: Trajectory) -> Outcome:
    """Return the outcome of a trajectory."""
    task = read_task(script.row, default_id="row", columns=settings.columns)
    assert trajectory.stop is not StopReason.GENERATOR_DOWN, trajectory.detail
    environment = with_tools(settings.environment, SandboxThread.shared(settings).tools)
    score = score_alone(environment, task, trajectory)
    assert isinstance(score, Reward), score
    return Outcome(
        "".join(segment.text for segment in trajectory.segments if segment.by is By.MODEL),
        tuple(segment.text for segment in trajectory.segments if segment.by is By.SANDBOX),
        score.total,
        score.metrics,
    )


def encoded_elsewhere(expected: Outcome) -> Outcome:
    """Return an outcome as a framework reports it that encodes texts: the control token is broken in two."""
    shown = tuple(one.replace("<|im_end|>", "< |im_end|>") for one in expected.observations)
    return replace(expected, observations=shown)


def _native(turn: Turn) -> Completion:
    finish = Finish.TOOL_CALL if turn.calls() else Finish.END
    return Completion(text=turn.text, finish=finish, tool_calls=turn.calls())
