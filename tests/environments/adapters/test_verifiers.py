"""The verifiers adapter: its agent, null harness and tool server are real; only the model is scripted."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from inspect import signature
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import verifiers.v1 as vf
from mcp.server import MCPServer
from starlette.responses import Response
from verifiers.v1.harnesses.null import NullHarnessConfig
from verifiers.v1.utils.loaders import taskset_class

from examples.miniature import TRAINED
from tests.environments.adapters.dialogues import (
    ROW,
    SCRIPTS,
    Outcome,
    Script,
    Turn,
    encoded_elsewhere,
    ours,
    outcome,
    settings,
)
from tests.environments.adapters.examples import example
from tests.environments.adapters.harness_program import installed_program
from tests.tirjudge.endpoint_server import EndpointServer, serving
from tirjudge_environments.adapters.dialogues import ChatDialogue, LinkedViews, SandboxThread
from tirjudge_environments.adapters.settings import JudgeSettings
from tirjudge_environments.adapters.verifiers import (
    JudgeTaskset,
    JudgeTasksetConfig,
    PythonConfig,
    PythonToolset,
)

SETTINGS = settings(options={"order": "given", "protocol": "tool"})


@pytest.fixture(scope="module")
def endpoint() -> Iterator[EndpointServer]:
    with serving() as server:
        server.script = scripted
        yield server


def scripted(body: dict[str, Any]) -> Response:
    """Return the next turn of the script that the prompt names."""
    (script,) = [script for script in SCRIPTS if f"({script.name})" in body["messages"][0]["content"]]
    return streamed(script.native_turns[sum(message["role"] == "assistant" for message in body["messages"])])


def streamed(turn: Turn) -> Response:
    """Return an OpenAI chat completion, streamed in one chunk."""
    calls = [
        {
            "index": number,
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for number, call in enumerate(turn.calls())
    ]
    delta = {"role": "assistant", "content": turn.text} | ({"tool_calls": calls} if calls else {})
    choices = [
        {"index": 0, "delta": delta, "finish_reason": None},
        {"index": 0, "delta": {}, "finish_reason": "tool_calls" if calls else "stop"},
    ]
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "scripted"}
    events = [json.dumps(chunk | {"choices": [choice]}) for choice in choices]
    text = "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"])
    return Response(text, media_type="text/event-stream")


class Miniature:
    """The miniature behind an endpoint, with its fenced programs converted to calls."""

    def __init__(self, policy: Any, judged: ModuleType) -> None:
        self._policy, self._rows = policy, judged.ROWS
        self._settings = JudgeSettings(**judged.SETTINGS)

    def __call__(self, body: dict[str, Any]) -> Response:
        asked, *history = body["messages"]
        (row,) = [row for row in self._rows if row["prompt"] in asked["content"]]
        dialogue = ChatDialogue(self._settings, row, framework="an endpoint")
        text = self._policy.prompt(dialogue.messages)
        for message in history:
            if message["role"] == "tool":
                text += f"```output\n{message['content']}\n```\n"
            for call in message.get("tool_calls") or ():
                text += f"```python\n{json.loads(call['function']['arguments'])['code']}```\n"
        said, _, program = self._policy.write(text, dialogue.stop).partition("```python\n")
        return streamed(Turn(said, (program.removesuffix("```\n"),) if program else ()))


@pytest.fixture(scope="module")
def harness() -> Iterator[None]:
    with installed_program():
        yield


@pytest.fixture
async def agent(endpoint: EndpointServer, harness: None) -> AsyncIterator[vf.Agent]:
    config = vf.AgentConfig(
        harness=NullHarnessConfig(id="null"),
        runtime=vf.SubprocessConfig(),
        model="scripted",
        client=vf.EvalClientConfig(base_url=f"{endpoint.url}/v1", api_key_var="NO_KEY"),
        max_turns=SETTINGS.turns,
    )
    async with vf.Agent(config) as made:
        yield made


def tasks(folder: Path, rows: list[dict[str, Any]], **changes: Any) -> list[vf.Task]:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = settings(**dict(SETTINGS) | changes)
    return list(JudgeTaskset(JudgeTasksetConfig(rows=path, settings=found)))


async def played(script: Script, agent: vf.Agent, folder: Path) -> Outcome:
    (task,) = tasks(folder, [script.row], **script.changes)
    trace = await agent.run(task)
    assert not trace.errors, trace.errors
    (branch,) = trace.branches
    written = [node.message.content or "" for node in branch.nodes if node.sampled]
    shown = [message.content for message in branch.messages if message.role == "tool"]
    return Outcome("".join(written), tuple(shown), trace.reward, trace.metrics)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
async def test_a_dialogue_is_the_same_as_in_our_engine(
    script: Script, agent: vf.Agent, tmp_path: Path
) -> None:
    plain = settings(options=SETTINGS.options, **script.changes)
    expected = encoded_elsewhere(outcome(script, plain, await ours(script, plain)))
    assert await played(script, agent, tmp_path) == expected


def test_a_reward_over_several_views_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(
        LinkedViews, match=r"verifiers' Taskset scores one rollout at a time.*JudgeRolloutFunc"
    ):
        tasks(tmp_path, [ROW], judge="tir-pointwise", options={"protocol": "tool"})


def test_the_example_package_is_found_by_its_name() -> None:
    assert taskset_class("tirjudge-judge") is JudgeTaskset


async def test_the_example_rolls_out_a_model_that_runs_programs(
    harness: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    judge = example("verifiers_judge", monkeypatch)
    with serving() as endpoint:
        endpoint.script = Miniature(example("policy", monkeypatch).Policy(), example("judged", monkeypatch))
        await judge.main(f"{endpoint.url}/v1", str(TRAINED))
    assert capsys.readouterr().out.splitlines() == [
        "river 1.0 {'right': 1.0, 'teaches': 1.0, 'correct': 1.0, 'format': 1.0, 'tool': 1.0}",
        "garden 1.0 {'right': 1.0, 'teaches': 1.0, 'correct': 1.0, 'format': 1.0, 'tool': 1.0}",
    ]


async def test_every_call_is_recorded_so_that_outputs_stay_with_their_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A call with other arguments is answered by the dialogue, and not refused by the MCP server."""

    def without_channel(self: PythonToolset, method: Any) -> Any:
        async def called(**arguments: Any) -> Any:
            return await method(**arguments)

        called.__signature__ = signature(method)  # type: ignore[attr-defined]
        return called

    monkeypatch.setattr(PythonToolset, "_with_state", without_channel)
    monkeypatch.setattr(PythonToolset, "state", SimpleNamespace(executions=""))
    seen: list[tuple[str, dict[str, Any]]] = []

    class Recorded:
        executions = ()

        async def call(self, name: str, arguments: dict[str, Any], sandbox: Any) -> str:
            seen.append((name, arguments))
            return f"output {len(seen)}"

    toolset = PythonToolset(PythonConfig())
    toolset._thread = SandboxThread.shared(SETTINGS)
    toolset._dialogue = Recorded()
    server = MCPServer("tools")
    toolset.register(server)
    calls = ({"code": 5}, {}, {"source": "print(1)"}, {"code": "print(1)", "language": "python"})
    for number, arguments in enumerate(calls, 1):
        answer = await server.call_tool("run_python", arguments)
        assert f"output {number}" in str(answer)
    assert seen == [("run_python", dict(arguments)) for arguments in calls]
    (tool,) = [tool for tool in await server.list_tools() if tool.name == "run_python"]
    assert list(tool.input_schema["properties"]) == ["code"]
