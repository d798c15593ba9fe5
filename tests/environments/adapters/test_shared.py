"""What all adapters share: settings, views and scores of single rollouts, and replayed tool calls."""

from __future__ import annotations

from contextlib import nullcontext
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from tests.environments.adapters.dialogues import (
    ADDED_UP,
    ASK,
    CHECK,
    CHECKS,
    COUNT,
    FILES_ROW,
    ROW,
    SCRIPTS,
    TIE,
    A,
    B,
    Script,
    Turn,
    ours,
    outcome,
    settings,
)
from tests.environments.tools.test_dialogue import FixedTool
from tirjudge_environments import Case, Reward, StopReason, TirPairwise, ToolSpec, Unscored
from tirjudge_environments.adapters.dialogues import (
    ChatDialogue,
    LinkedViews,
    SandboxThread,
    ToolDialogue,
    calling,
    read_row,
    read_stored_task,
    reward_of,
    row_view,
    write_task,
)
from tirjudge_environments.adapters.trl import JudgeEnv, judge_reward
from tirjudge_environments.registry import open_environment
from tirjudge_environments.tasks import Columns, read_task
from tirjudge_sandbox import Execution, Limits, Program, Status, open_sandbox

TASK = read_task(ROW, default_id="row")


async def broken(program: Program, limits: Limits = Limits()) -> Execution:
    return Execution(status=Status.SANDBOX_FAILED, detail="no such machine")


def test_a_row_names_its_view_if_each_is_scored_alone() -> None:
    both = open_environment("tir-pairwise", order="both")
    first, second = both.views(TASK)
    assert row_view(both, TASK, ROW | {"view": second.name}, "verl") == second
    with pytest.raises(ValueError, match=rf"'pair-1' has the views {first.name}, {second.name}.*`view`"):
        row_view(both, TASK, ROW, "verl")


@pytest.mark.parametrize(
    ("name", "options", "refused"),
    [
        ("tir-pairwise", {"order": "both"}, False),
        ("tir-pointwise", {}, True),
        ("j1-pav", {}, False),
        ("j1-pav", {"consistency": True}, True),
        ("j1-pos", {}, True),
        ("judgelrm-pair", {}, False),
        ("rm-r1", {}, False),
    ],
)
def test_exactly_the_judges_whose_rewards_compare_rollouts_are_refused(
    name: str, options: dict[str, Any], refused: bool
) -> None:
    judge = open_environment(name, **options)
    view = judge.views(TASK)[0]
    with pytest.raises(LinkedViews) if refused else nullcontext():
        assert row_view(judge, TASK, ROW | {"view": view.name}, "verl") == view


def test_rows_without_an_id_are_shown_in_orders_of_their_own() -> None:
    """The chosen response is the first one of every such row, and must not always be shown first."""
    native = settings(options={"protocol": "tool"})
    rows = [{"prompt": f"Question {number}", "chosen": "yes", "rejected": "no"} for number in range(20)]
    dialogues = [ToolDialogue(native, row, framework="TRL") for row in rows]
    first = ["Response A:\nyes" in dialogue.prompt for dialogue in dialogues]
    assert 0 < sum(first) < len(rows)
    assert len({dialogue.task.id for dialogue in dialogues}) == len(rows)
    assert ToolDialogue(native, rows[0], framework="TRL").prompt == dialogues[0].prompt
    assert ToolDialogue(native, rows[0] | {"id": "x"}, framework="TRL").task.id == "x"


async def test_programs_of_an_adapter_find_the_files_of_a_row() -> None:
    (script,) = (one for one in SCRIPTS if one.given is FILES_ROW)
    found = outcome(script, settings(), await ours(script, settings()))
    assert found.observations == (f"```output\n{ADDED_UP}```\n",)
    assert found.total == 1


async def test_a_failed_sandbox_gives_no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    text = ChatDialogue(settings(), ROW, framework="OpenEnv")
    monkeypatch.setattr(text._thread.sandbox, "run", broken)
    reply = text.step(ASK.fenced())
    assert isinstance(reply.score, Unscored)
    with pytest.raises(RuntimeError, match=r"'pair-1' cannot be scored: .*no such machine"):
        reward_of(reply.score, text.task)

    native = settings(options={"order": "given", "protocol": "tool"})
    env = JudgeEnv(native)
    env._dialogue = ToolDialogue(native, ROW, framework="TRL")
    env.run_python(code="print(1)")
    calls = [{"function": {"name": "run_python", "arguments": {"code": "print(1)"}}}]
    said = [{"role": "assistant", "content": "", "tool_calls": calls}, {"role": "assistant", "content": A}]
    assert judge_reward([said], [env]) == [None]


def test_an_argument_that_run_python_does_not_have_is_no_failure_of_the_sandbox() -> None:
    """TRL calls the method with all arguments of the model, and shows it an error as the tool's result."""
    env = JudgeEnv(settings(options={"order": "given", "protocol": "tool"}))
    env.reset(**ROW)
    arguments = {"code": COUNT, "language": "python"}
    try:
        output = env.run_python(**arguments)
    except TypeError as error:
        output = str(error)
    call = {"function": {"name": "run_python", "arguments": arguments}}
    messages = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": output},
        {"role": "assistant", "content": A},
    ]
    assert (output, judge_reward([messages], [env])) == ("3", [1.0])


def message(turn: Turn) -> dict[str, Any]:
    calls = [{"function": {"name": call.name, "arguments": call.arguments}} for call in turn.calls()]
    return {"role": "assistant", "content": turn.text, "tool_calls": calls}


async def test_the_last_turn_of_the_budget_runs_no_program() -> None:
    limited = settings(options={"order": "given", "protocol": "tool"}, turns=2, tool_calls=5)
    script = Script("two turns", (ASK, ASK))
    dialogue = ToolDialogue(limited, script.row, framework="TRL")
    thread = SandboxThread.shared(limited)
    output = await thread.awaited(dialogue.call("run_python", {"code": COUNT}, thread.sandbox))
    messages = [message(ASK), {"role": "tool", "content": output}, message(ASK)]
    score = await dialogue.score(messages, dialogue.executions)
    expected = outcome(script, limited, await ours(script, limited))
    assert isinstance(score, Reward)
    assert (score.total, score.metrics) == (expected.total, expected.parts)


def spoken(dialogue: ToolDialogue, tool: str, arguments: dict[str, Any], output: str) -> list[dict[str, Any]]:
    """Return the messages of a dialogue that calls a tool once and then prefers A."""
    call = {"function": {"name": tool, "arguments": arguments}}
    return [
        {"role": "user", "content": dialogue.prompt},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": output},
        {"role": "assistant", "content": "<preference>A</preference>"},
    ]


@pytest.mark.parametrize(
    ("code", "total"), [("print(len(response_a), len(response_b))", 1.0), ("print(len(prompt))", 0.0)]
)
async def test_evidence_is_found_by_frameworks_that_show_the_messages_at_the_end(
    code: str, total: float
) -> None:
    """TRL and verifiers score a dialogue from its messages and from the recorded runs of its programs."""
    options = {"order": "given", "protocol": "tool", "evidence": "required"}
    row = {"prompt": "Be brief.", "responses": ["yes", "maybe so"], "label": "A"}
    dialogue = ToolDialogue(settings(options=options), row, framework="a framework")
    async with open_sandbox("local", preload=()) as sandbox:
        output = await dialogue.call("run_python", {"code": code}, sandbox)
    messages = spoken(dialogue, "run_python", {"code": code}, output)
    assert len(dialogue.executions) == 2
    score = await dialogue.score(messages, dialogue.executions)
    assert isinstance(score, Reward)
    assert (score.total, score.right, score.teaches) == (total, True, total == 1.0)


async def test_a_framework_offers_tests_beside_python() -> None:
    """The answer is recorded with the dialogue, and scored from the record without running anything again."""
    given = settings(options={"order": "given", "protocol": "tool"}, tools={"servers": ["tests"]})
    row = {
        "prompt": "Add.",
        "responses": ["def add(a, b): return a + b", "def add(a, b): return 0"],
        "label": "A",
    }
    thread = SandboxThread.shared(given)
    dialogue = ToolDialogue(given, row, framework="a framework", tools=thread.tools)
    (tool,) = thread.tools
    described = str(calling(tool.spec, lambda *_: None).__doc__)
    assert all(f"`{name}`" in described for name in Case.model_fields)
    arguments = {"cases": [{"call": "add(2, 3)", "expected": 5}]}
    output = await thread.awaited(dialogue.call("run_tests", arguments, thread.sandbox))
    assert "response A: 1 of 1 cases passed" in output
    assert "response B: 0 of 1 cases passed" in output
    messages = spoken(dialogue, "run_tests", arguments, output)
    score = await dialogue.score(messages, dialogue.executions)
    assert isinstance(score, Reward)
    assert score.total == 1.0


@pytest.mark.parametrize("name", ["score", "reset", "get_reward", "_call"])
def test_trl_cannot_offer_a_tool_that_its_environment_has_as_a_method(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    native = settings(options={"order": "given", "protocol": "tool"})
    thread = SandboxThread.shared(native)
    renamed = [FixedTool(Execution(status=Status.OK), ToolSpec(name, "", {}))]
    monkeypatch.setattr(thread, "tools", renamed)
    with pytest.raises(ValueError, match=f"cannot offer a tool named {name}"):
        JudgeEnv(native)


@pytest.mark.parametrize("name", ["from", "user-id"])
def test_a_parameter_that_no_method_can_have_is_refused_by_the_name_of_its_tool(name: str) -> None:
    schema = {"type": "object", "properties": {"odd": {}, name: {"type": "string"}}}
    with pytest.raises(ValueError, match=f"none can have the parameter '{name}' of the tool mail: name the"):
        calling(ToolSpec("mail", "", schema), lambda *_: None)


def test_a_tool_becomes_a_method_with_its_signature_and_docstring() -> None:
    properties = {
        "query": {"type": "string", "description": "What to\n find."},
        "most": {"type": "integer", "default": 3},
        "odd": True,
    }
    schema = {"type": "object", "properties": properties, "required": ["query"]}
    method = calling(ToolSpec("find", "Find\nfacts.", schema), lambda self, name, given: (self, name, given))
    assert str(signature(method)) == "(self, /, *, query: str, most: int = 3, odd: str = None) -> str"
    assert method.__doc__ == "Find facts.\n\nArgs:\n    query: What to find.\n    most: most\n    odd: odd"
    assert method("me", query="x", odd=None) == ("me", "find", {"query": "x"})


def test_a_stored_task_has_the_replacement_of_lone_surrogates_that_token_ids_have() -> None:
    """JSON rows may hold half a pair; Parquet files and pydantic's JSON may not."""
    row = {"id": "a", "prompt": "half \ud800, whole \U0001f600", "responses": ["\udc00", "b"], "label": "A"}
    stored = read_stored_task(write_task(read_row(row, Columns())))
    assert stored.prompt[0].content == "half \ufffd, whole \U0001f600"
    assert stored.candidates == ("\ufffd", "b")
    assert stored.label == 0


def test_a_dialogue_with_an_answer_to_each_criterion_is_refused() -> None:
    """Its reward would be that of the last answer."""
    judge = TirPairwise(per_criterion=True)
    row = {"id": "a", "prompt": "p", "responses": ["x", "y"], "label": "A"}
    for criteria, refused in ((["Be short."], False), (["Be short.", "Be kind."], True)):
        task = read_row(row | {"criteria": criteria}, Columns())
        if not refused:
            assert row_view(judge, task, {"view": judge.views(task)[0].name}, "SkyRL")
            continue
        with pytest.raises(ValueError, match=r"has 2 criteria, .* while SkyRL rewards one"):
            row_view(judge, task, {"view": judge.views(task)[0].name}, "SkyRL")


async def test_programs_in_a_framework_find_what_a_prepared_program_defines(tmp_path: Path) -> None:
    (tmp_path / "prepare.py").write_text("seen = []\ndef count(text): return len(text.split())")
    prepared = {"capacity": 1, "preload": [], "prepare": str(tmp_path / "prepare.py")}
    options = {"order": "given", "protocol": "tool", "prepared": "`count(text)`: its words"}
    given = settings(options=options, sandbox_options=prepared, tools={})
    row = {"prompt": "Be brief.", "responses": ["yes", "maybe so"], "label": "A"}
    dialogue = ToolDialogue(given, row, framework="a framework")
    assert "defined already" in dialogue.prompt
    assert "`count(text)`: its words" in dialogue.prompt
    thread = SandboxThread.shared(given)
    code = {"code": "seen.append(1); print(count(response_b), seen)"}
    for _ in range(2):
        assert await thread.awaited(dialogue.call("run_python", code, thread.sandbox)) == "2 [1]"


CHECKED = settings(judge=CHECKS, tools={}, options={"order": "given", "protocol": "tool"})


def of_a_tool(name: str, output: str, code: str = CHECK) -> list[dict[str, Any]]:
    call = {"function": {"name": name, "arguments": {"code": code}}}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "name": name, "content": output},
    ]


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "assistant", "content": "I would rather not write code."}],
        [{"role": "assistant", "content": f"```python\n{CHECK}```\n{A}"}],
        [*of_a_tool("search", "error: Tool search not found."), {"role": "assistant", "content": A}],
    ],
)
def test_no_verdict_counts_where_a_framework_showed_no_response(messages: list[dict[str, Any]]) -> None:
    """Frameworks end a dialogue at a turn without a call, and answer calls of unknown tools themselves."""
    env = JudgeEnv(CHECKED)
    assert "one two" not in env.reset(**ROW)
    assert judge_reward([messages], [env]) == [0.0]


def test_a_call_of_an_unknown_tool_shows_no_response_and_the_next_check_runs() -> None:
    env = JudgeEnv(CHECKED)
    env.reset(**ROW)
    output = env.run_python(code=TIE)
    assert "A 1 of 1\nB 1 of 1" in output
    assert "one two three" in output
    messages = [*of_a_tool("search", "error: not found"), *of_a_tool("run_python", output, TIE)]
    assert judge_reward([[*messages, {"role": "assistant", "content": A}]], [env]) == [1.0]


def test_the_turn_that_a_framework_asks_for_after_a_verdict_of_counts_changes_nothing() -> None:
    env = JudgeEnv(CHECKED)
    env.reset(**ROW)
    output = env.run_python(code=CHECK)
    assert "A 1 of 1\nB 0 of 1" in output
    assert "one two three" not in output
    assert "ended" in env.run_python(code=CHECK)
    messages = [*of_a_tool("run_python", output), {"role": "assistant", "content": B}]
    assert judge_reward([messages], [env]) == [1.0]


async def test_of_two_checks_in_one_turn_the_second_is_refused_everywhere() -> None:
    script = Script("two at once", (Turn("", (TIE, CHECK)), Turn(A)), judge=CHECKS)
    trajectory = await ours(script, CHECKED)
    dialogue = ToolDialogue(CHECKED, script.row, framework="TRL")
    thread = SandboxThread.shared(CHECKED)
    outputs = [
        await thread.awaited(dialogue.call("run_python", {"code": code}, thread.sandbox))
        for code in (TIE, CHECK)
    ]
    expected = outcome(script, CHECKED, trajectory)
    assert tuple(outputs) == expected.observations
    assert "no other check runs" in outputs[1]
    answers = [{"role": "tool", "content": output} for output in outputs]
    score = await dialogue.score([message(script.turns[0]), *answers, message(Turn(A))], dialogue.executions)
    assert isinstance(score, Reward)
    assert (score.total, score.metrics) == (expected.total, expected.parts)


def test_responses_without_room_end_a_dialogue_before_its_first_turn() -> None:
    given = settings(judge=CHECKS, tools={}, tokens=400)
    assert ChatDialogue(given, ROW, framework="OpenEnv").step("I test it.").stop is None
    dialogue = ChatDialogue(given, ROW | {"responses": ["one " * 199, "two"]}, framework="OpenEnv")
    reply = dialogue.step("I test it.")
    assert isinstance(reply.score, Reward)
    assert (reply.stop, reply.score.total) == (StopReason.TOKEN_BUDGET, 0.0)
