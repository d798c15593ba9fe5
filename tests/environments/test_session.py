"""Judge sessions step by step: budgets, token ids, failures, and the appended segments."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tirjudge_environments import (
    Budget,
    By,
    ChatEncoder,
    Completion,
    Context,
    Finish,
    JudgeSession,
    Message,
    Prompt,
    StopReason,
    TirPairwise,
    ToolCall,
    Transcript,
    Usage,
    Verdict,
    derive_seed,
)
from tirjudge_environments.programs.recording import ReplaySandbox
from tirjudge_environments.testing import fixed_sandbox
from tirjudge_sandbox import Execution, Status

CALL = "Let me count.\n```python\nprint(42)\n```\n"
SHOWN = "```output\n42\n```\n"
RIGHT = "<preference>A</preference>"
DOWN = Execution(status=Status.SANDBOX_FAILED, detail="the worker is gone")
OK = Execution(status=Status.OK, exit_code=0, stdout="42\n", cpu_seconds=1.0)


@pytest.fixture(scope="module")
def encoder() -> ChatEncoder:
    """An encoder with one token per byte, so that the length of a text is its number of tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>")
    fast.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}<|end|>{% endfor %}judge: "
    return ChatEncoder(fast)


@pytest.fixture
def start(make_task):
    def start(
        *executions: Execution, environment=None, task=None, **options
    ) -> tuple[JudgeSession, ReplaySandbox]:
        environment, task = environment or TirPairwise(order="given"), task or make_task()
        box = fixed_sandbox(*executions)
        return JudgeSession(environment, task, environment.views(task)[0], box, **options), box

    return start


def stopped(text: str, **fields) -> Completion:
    return Completion(text=text, finish=Finish.STOP, **fields)


def ended(text: str, **fields) -> Completion:
    return Completion(text=text, finish=Finish.END, **fields)


async def test_a_dialogue_from_prompt_to_verdict(start) -> None:
    session, box = start(OK, sample=3)
    assert session.context == Context(session.prompt)
    [output] = await session.step(stopped(CALL, usage=Usage(100, 20)))
    assert (output.by, output.text) == (By.SANDBOX, SHOWN)
    assert [segment.text for segment in session.context.segments] == [CALL, SHOWN]
    assert not session.done
    assert await session.step(ended(RIGHT, usage=Usage(130, 10))) == ()
    trajectory = session.trajectory
    assert (trajectory.stop, trajectory.verdict) == (StopReason.VERDICT, Verdict(choice=0))
    assert [segment.text for segment in trajectory.segments] == [CALL, SHOWN, RIGHT]
    assert [call.outcome for call in trajectory.calls] == [OK]
    assert (trajectory.sample, trajectory.usage) == (3, Usage(230, 30))
    assert box.programs[0].source == "print(42)\n"
    assert box.programs[0].bindings["response_a"] == "hello"


@pytest.mark.parametrize(
    ("written", "appended"),
    [
        ("```python\nprint(42)\n```", "\n" + SHOWN),
        ("```python\nprint(42)\n```\n", SHOWN),
        ("```python\nprint(42)\n```\n```output", "\n42\n```\n"),
        ("```python\nprint(42)\n```\n```output\n", "42\n```\n"),
        ("```python\nprint(42)\n```output\n", "42\n```\n"),
    ],
)
async def test_an_output_has_its_own_lines(start, written: str, appended: str) -> None:
    session, _ = start(OK)
    [output] = await session.step(stopped(written))
    assert output.text == appended


async def test_a_continued_turn_is_one_turn(start) -> None:
    session, box = start(OK)
    assert await session.step(stopped("```json\n{}\n```\n", token_ids=(1, 2), logprobs=(-1.0, -2.0))) == ()
    assert await session.step(stopped("```python\npri", token_ids=(3,), logprobs=(-3.0,))) == ()
    await session.step(stopped("nt(1)\n```\n", token_ids=(4,), logprobs=(-4.0,)))
    written = session.context.segments[0]
    assert written.text == "```json\n{}\n```\n```python\nprint(1)\n```\n"
    assert (written.ids, written.logprobs) == ((1, 2, 3, 4), (-1.0, -2.0, -3.0, -4.0))
    assert box.programs[0].source == "print(1)\n"


async def test_the_turn_budget_ends_the_dialogue(start) -> None:
    session, box = start(OK, budget=Budget(turns=2))
    await session.step(stopped(CALL))
    assert await session.step(stopped(CALL)) == ()
    assert session.trajectory.stop is StopReason.TURN_BUDGET
    assert len(box.programs) == 1
    assert len(session.trajectory.calls) == 2


async def test_the_cpu_budget_ends_the_dialogue(start) -> None:
    session, box = start(OK, budget=Budget(cpu_seconds=2.0))
    for _ in range(3):
        await session.step(stopped(CALL))
    assert session.trajectory.stop is StopReason.CPU_BUDGET
    assert len(box.programs) == 2


async def test_tokens_of_model_and_sandbox_count_together(start, encoder) -> None:
    budget = len(CALL) + len(SHOWN) + len(RIGHT)
    session, _ = start(OK, encoder=encoder, budget=Budget(tokens=budget))
    ids = tuple(encoder.text(CALL))
    await session.step(stopped(CALL, token_ids=ids))
    assert session.remaining_tokens == len(RIGHT)
    await session.step(Completion(text=RIGHT, finish=Finish.LENGTH, token_ids=tuple(encoder.text(RIGHT))))
    assert session.remaining_tokens == 0
    assert session.trajectory.stop is StopReason.VERDICT


async def test_an_output_that_does_not_fit_is_not_appended(start, encoder) -> None:
    session, _ = start(OK, encoder=encoder, budget=Budget(tokens=len(CALL) + len(SHOWN)))
    assert await session.step(stopped(CALL, token_ids=tuple(encoder.text(CALL)))) == ()
    trajectory = session.trajectory
    assert trajectory.stop is StopReason.TOKEN_BUDGET
    assert sum(len(segment.ids or ()) for segment in trajectory.segments) == len(CALL)
    assert [call.outcome for call in trajectory.calls] == [OK]


async def test_an_endpoint_without_usage_still_ends_at_the_token_budget(start) -> None:
    session, _ = start(OK, budget=Budget(tokens=100, turns=25, tool_calls=25))
    for _ in range(25):
        await session.step(stopped(CALL))
        if session.done:
            break
    assert session.trajectory.stop is StopReason.TOKEN_BUDGET


async def test_ids_are_appended_and_never_encoded_again(start, encoder) -> None:
    """The sampled ids differ from an encoding of their text, for example a tag in one token."""
    session, _ = start(OK, encoder=encoder)
    end = next(iter(encoder.end_of_turn))
    prompt_ids = tuple(encoder.prompt(session.prompt))
    assert session.context.ids == prompt_ids
    first = (*encoder.text(CALL.removesuffix("\n")), end)
    await session.step(stopped("not what the ids say", token_ids=first, logprobs=(-0.5,) * len(first)))
    shown = tuple(encoder.text("\n" + SHOWN))
    assert session.context.ids == prompt_ids + first + shown
    second = (*encoder.text(RIGHT), end)
    await session.step(ended(RIGHT, token_ids=second, logprobs=(-0.25,) * len(second)))
    assert [segment.text for segment in session.trajectory.segments] == [
        CALL.removesuffix("\n"),
        "\n" + SHOWN,
        RIGHT,
    ]
    transcript = Transcript.of(session.trajectory)
    assert transcript.prompt_ids == prompt_ids
    assert transcript.completion_ids == first + shown + second
    assert transcript.mask == (1,) * len(first) + (0,) * len(shown) + (1,) * len(second)
    assert transcript.logprobs == (-0.5,) * len(first) + (0.0,) * len(shown) + (-0.25,) * len(second)


async def test_a_transcript_needs_ids_but_no_logprobs(start, encoder) -> None:
    session, _ = start()
    await session.step(ended(RIGHT))
    with pytest.raises(ValueError, match="no token ids"):
        Transcript.of(session.trajectory)
    session, _ = start(encoder=encoder)
    await session.step(ended(RIGHT, token_ids=tuple(encoder.text(RIGHT))))
    assert Transcript.of(session.trajectory).logprobs is None
    assert Transcript.of(session.trajectory).mask == (1,) * len(RIGHT)


async def test_text_after_a_program_is_kept_with_ids(start, encoder) -> None:
    text = CALL + "```output\n41\n```\nSo " + RIGHT
    session, box = start(OK, encoder=encoder)
    await session.step(ended(text, token_ids=tuple(encoder.text(text))))
    assert [segment.text for segment in session.context.segments] == [text, "\n" + SHOWN]
    assert len(box.programs) == 1


async def test_text_after_a_program_is_dropped_without_ids(start) -> None:
    session, _ = start(OK)
    await session.step(ended(CALL + "```output\n41\n```\nSo " + RIGHT))
    assert [segment.text for segment in session.context.segments] == [CALL, SHOWN]


async def test_a_failed_sandbox_is_retried_once_and_never_shown(start) -> None:
    session, box = start(DOWN, OK)
    [output] = await session.step(stopped(CALL))
    assert output.text == SHOWN
    assert box.programs[0] == box.programs[1]
    assert len(session.context.segments) == 2

    session, box = start(DOWN)
    assert await session.step(stopped(CALL)) == ()
    assert (session.trajectory.stop, session.trajectory.detail) == (
        StopReason.SANDBOX_DOWN,
        "the worker is gone",
    )
    assert [segment.text for segment in session.trajectory.segments] == [CALL]
    assert [call.outcome for call in session.trajectory.calls] == [DOWN]
    assert len(box.programs) == 2


async def test_each_program_has_a_seed_of_its_own(start) -> None:
    _, seeds = await _seeds(start, 5)
    assert seeds == [derive_seed(5, 0), derive_seed(5, 1)]
    assert len({*seeds, *(await _seeds(start, 6))[1]}) == 4


async def _seeds(start, seed: int) -> tuple[JudgeSession, list[int]]:
    session, box = start(OK, seed=seed)
    await session.step(stopped(CALL))
    await session.step(stopped(CALL))
    return session, [program.seed for program in box.programs]


async def test_a_generator_that_is_down_ends_the_dialogue_from_outside(start) -> None:
    session, _ = start(OK)
    await session.step(stopped(CALL))
    session.fail(StopReason.GENERATOR_DOWN, "connection refused")
    assert session.done
    assert session.trajectory.stop is StopReason.GENERATOR_DOWN
    assert session.trajectory.detail == "connection refused"
    assert len(session.trajectory.segments) == 2


@pytest.mark.parametrize(
    ("finish", "stop"),
    [
        (Finish.STOP, StopReason.MALFORMED),
        (Finish.END, StopReason.MALFORMED),
        (Finish.LENGTH, StopReason.TOKEN_BUDGET),
    ],
)
async def test_a_model_that_writes_nothing_ends_the_dialogue(start, finish: Finish, stop: StopReason) -> None:
    session, _ = start()
    await session.step(Completion(text="", finish=finish))
    assert session.trajectory.stop is stop


@pytest.mark.parametrize("finish", [Finish.STOP, Finish.END, Finish.LENGTH])
async def test_a_turn_to_which_the_model_adds_nothing_is_read_as_it_stands(start, finish: Finish) -> None:
    session, _ = start()
    await session.step(stopped(f"{RIGHT}\n```json\n{{}}\n```\n"))
    await session.step(Completion(text="", finish=finish))
    assert session.trajectory.verdict == Verdict(choice=0)
    session, _ = start()
    await session.step(stopped("```json\n{}\n```\n"))
    await session.step(Completion(text="", finish=finish))
    stop = StopReason.TOKEN_BUDGET if finish is Finish.LENGTH else StopReason.MALFORMED
    assert (session.trajectory.stop, session.trajectory.verdict) == (stop, None)


async def test_native_calls_of_one_turn_are_all_answered(start) -> None:
    calls = (
        ToolCall("a", "run_python", '{"code": "print(1)"}'),
        ToolCall("b", "run_python", '{"code": "print(2)"}'),
    )
    session, box = start(OK, environment=TirPairwise(protocol="tool"))
    outputs = await session.step(Completion(text="", finish=Finish.TOOL_CALL, tool_calls=calls))
    assert [(output.call_id, output.text) for output in outputs] == [("a", "42"), ("b", "42")]
    assert [program.source for program in box.programs] == ["print(1)", "print(2)"]
    assert session.context.segments[0].tool_calls == calls
    await session.step(ended(RIGHT))
    assert session.trajectory.stop is StopReason.VERDICT


async def test_a_prefill_belongs_to_the_prompt_and_is_read(make_task) -> None:
    class Prefilled(TirPairwise):
        def prompt(self, task, view) -> Prompt:
            return Prompt(messages=(Message("user", "Which?"),), prefill="My choice: <preference>")

    environment, task = Prefilled(order="given"), make_task()
    session = JudgeSession(environment, task, environment.views(task)[0], fixed_sandbox())
    await session.step(ended("B</preference>"))
    assert session.trajectory.verdict == Verdict(choice=1)
    assert [segment.text for segment in session.trajectory.segments] == ["B</preference>"]
