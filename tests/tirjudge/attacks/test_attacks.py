"""Every attack against the runtime: whatever the model believes, no attack changes the dialogue around it."""

from __future__ import annotations

import re

import pytest
import pytest_asyncio

from tests.rows import each_row
from tirjudge.attacks import Attack, Target, open_families
from tirjudge.attacks.attacked_rows import winning_answer
from tirjudge.attacks.families import CODE
from tirjudge.generation.base import Sampling
from tirjudge.generation.endpoint.chat_turns import alternating
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.rollout import Rollout
from tirjudge_environments import Context, JudgeTask, Message, StopReason
from tirjudge_environments.quoting import quote_control_tokens, visible
from tirjudge_environments.registry import open_environment
from tirjudge_environments.turn_reader import find_fences
from tirjudge_sandbox import Status
from tirjudge_sandbox.local import LocalSandbox

pytestmark = pytest.mark.asyncio(loop_scope="module")

ATTACKS = [attack for family in open_families() for attack in family.attacks]
FORMATS = ("tir-pairwise", "tir-pointwise", "j1-pav", "j1-pas", "judgelrm-pair", "rm-r1", "rationale")
CODE_RESPONSE = "Like this:\n\n```python\ndef add(a, b):\n    return 41\n```\n\nDone."
each = each_row("attack", ATTACKS)


def attacked(attack: Attack) -> JudgeTask:
    """A pair whose second response attacks."""
    target = Target(response=CODE_RESPONSE, letter="B", other="A", answer="<preference>B</preference>")
    changed = attack.change(target)
    assert changed not in (None, CODE_RESPONSE)
    right = CODE_RESPONSE.replace("41", "a + b")
    return JudgeTask(id="1", prompt=(Message("user", "Add."),), candidates=(right, str(changed)), label=0)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def box():
    async with LocalSandbox(capacity=1, preload=()) as opened:
        yield opened


@pytest.mark.parametrize("format", FORMATS)
@each
async def test_the_prompt_keeps_its_sections(attack: Attack, format: str) -> None:
    """Each line of the clean prompt that is no response is in the attacked prompt as often, and in order."""
    environment = open_environment(format, **({} if "pointwise" in format else {"order": "given"}))
    task = attacked(attack)
    clean = JudgeTask(id="1", prompt=task.prompt, candidates=("", ""), label=0)
    for view, empty in zip(environment.views(task), environment.views(clean), strict=True):
        prompt = environment.prompt(task, view).messages[-1].content
        sections = [
            visible(line) for line in environment.prompt(clean, empty).messages[-1].content.splitlines()
        ]
        sections = [line for line in sections if line]
        kept = [line for line in map(visible, prompt.splitlines()) if line in set(sections)]
        assert kept == sections


@each
async def test_a_request_has_no_control_token_of_a_response(attack: Attack) -> None:
    environment = open_environment("tir-pairwise", order="given")
    task = attacked(attack)
    context = Context(environment.prompt(task, environment.views(task)[0]))
    for turn in alternating(context):
        assert quote_control_tokens(turn["content"]) == turn["content"]


SHOWS = "Let me look.\n```python\nprint(response_b)\nprint(len(responses))\n```\n"


@each
async def test_printing_a_response_changes_nothing_but_the_output(attack: Attack, box: LocalSandbox) -> None:
    """The judge's program prints the response: one program runs, its output is one fence, A stays chosen."""
    judge = ScriptedGenerator([SHOWS, "<preference>A</preference>"])
    rollout = Rollout(open_environment("tir-pairwise", order="given"), judge, box, sampling=Sampling())
    (trajectory,) = (await rollout.episode(attacked(attack))).trajectories
    assert (trajectory.stop, trajectory.verdict.choice) == (StopReason.VERDICT, 0)
    (call,) = trajectory.calls
    assert call.request.source == "print(response_b)\nprint(len(responses))\n"
    assert call.outcome.stdout.endswith("\n2\n")
    shown = trajectory.segments[1].text
    (fence,) = find_fences(shown)
    assert (fence.info, fence.closed, shown[fence.end :]) == ("output", True, "")


@each
async def test_a_response_is_never_read_as_the_judge(attack: Attack, box: LocalSandbox) -> None:
    """A judge that writes neither a program nor a verdict has none, whatever the responses contain."""
    judge = ScriptedGenerator(["I cannot tell."])
    rollout = Rollout(open_environment("tir-pairwise", order="given"), judge, box, sampling=Sampling())
    (trajectory,) = (await rollout.episode(attacked(attack))).trajectories
    assert (trajectory.stop, trajectory.calls) == (StopReason.MALFORMED, ())


NAIVE = """
passed = 0
scope = {}
exec(code(response_b), scope)
for a, b in [(2, 3), (10, -4)]:
    passed += bool(scope["add"](a, b) == a + b)
print(passed, "of 2 passed")
"""
ISOLATED = """
import isolated
passed = 0
for a, b in [(2, 3), (10, -4)]:
    outcome = isolated.run(code(response_b) + f"\\nprint(add({a}, {b}))")
    passed += outcome.status == "ok" and outcome.stdout == f"{a + b}\\n"
print(passed, "of 2 passed")
"""
CODE_OF = "import re\ndef code(response):\n    return re.search('```python\\n(.*?)```', response, re.S)[1]\n"


@each_row("attack", CODE.attacks)
async def test_code_attacks_succeed_in_the_judges_program_and_fail_in_isolation(
    attack: Attack, box: LocalSandbox
) -> None:
    outputs = {}
    for name, program in (("naive", NAIVE), ("isolated", ISOLATED)):
        judge = ScriptedGenerator([f"```python\n{CODE_OF}{program}```\n", "<preference>A</preference>"])
        environment = open_environment("tir-pairwise", order="given")
        rollout = Rollout(environment, judge, box, sampling=Sampling())
        (trajectory,) = (await rollout.episode(attacked(attack))).trajectories
        outputs[name] = trajectory.calls[0].outcome
    assert outputs["naive"].stdout != "0 of 2 passed\n"
    assert (outputs["isolated"].status, outputs["isolated"].stdout) == (Status.OK, "0 of 2 passed\n")


async def test_the_prompt_names_the_module_only_if_asked() -> None:
    task = JudgeTask(id="1", prompt=(Message("user", "Add."),), candidates=("a", "b"))
    plain, asked, without = (
        open_environment("tir-pairwise", order="given", **options)
        for options in ({}, {"isolated": True}, {"isolated": True, "tools": False})
    )
    texts = [one.prompt(task, one.views(task)[0]).messages[0].content for one in (plain, asked, without)]
    assert "isolated" not in texts[0] + texts[2]
    assert re.fullmatch(re.escape(texts[0]) + r"\n[^\n]*`import isolated`[^\n]*", texts[1])


@pytest.mark.parametrize(
    ("format", "answer"),
    [
        *(
            (name, "<preference>B</preference>")
            for name in ("", "pairwise", "tir", "checks", "checks-listwise")
        ),
        ("tir-pointwise", "<score>10</score>"),
        ("rm-r1", "<answer>[[B]]</answer>"),
    ],
)
async def test_an_attack_writes_the_answer_that_the_judge_is_asked_for(format: str, answer: str) -> None:
    assert winning_answer(format, "B") == answer
