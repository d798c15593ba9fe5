"""Rollouts from prompt to verdict, with real formats, a real sandbox, and a real model where ids matter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from functools import cache
from typing import Any

import pytest
import torch

from tests.tirjudge.tiny_models import bpe_tokenizer, tiny_qwen3
from tirjudge.generation import ContextTooLong, Generator, GeneratorFailed, Sampling
from tirjudge.generation.local.transformers import TransformersGenerator
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.rollout import Rollout
from tirjudge_environments import Completion, Context, JudgeTask, Message, StopReason
from tirjudge_environments.formats.tir_comparison import TirPairwise
from tirjudge_environments.formats.tir_pointwise import TirPointwise
from tirjudge_environments.session import Transcript
from tirjudge_environments.tokenization import ChatEncoder
from tirjudge_environments.types import Budget
from tirjudge_sandbox import Execution, Limits, Program, Sandbox, Status, open_sandbox

JUDGE = TirPairwise(order="given")
PROGRAM = "I count.\n```python\nprint(len(response_a.split()))\n```\n"
OUTPUT = "```output\n3\n```\n"
ANSWER = "So A.\n<preference>A</preference>"


def task(name: str = "t") -> JudgeTask:
    return JudgeTask(
        id=name, prompt=(Message("user", "Three words."),), candidates=("one two three", "one two"), label=0
    )


def dialogue(context: Context) -> str:
    """Write a program first, then the answer."""
    return ANSWER if context.segments else PROGRAM


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with open_sandbox("local", capacity=2, preload=()) as opened:
        yield opened


class HeldSandbox:
    """A stand-in for the sandbox that lets a test decide when programs end."""

    capacity = 8

    def __init__(self) -> None:
        self.started: asyncio.Queue[tuple[Program, Limits]] = asyncio.Queue()
        self.open = asyncio.Event()
        self.cancelled = 0

    async def run(self, program: Program, limits: Limits = Limits()) -> Execution:
        self.started.put_nowait((program, limits))
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return Execution(status=Status.OK, exit_code=0, stdout="3\n", cpu_seconds=20.0)


def held(generator: Generator, **options: Any) -> tuple[Rollout, Any]:
    sandbox: Any = HeldSandbox()
    return Rollout(JUDGE, generator, sandbox, **options), sandbox


async def test_a_group_has_every_sample_of_every_view(sandbox: Sandbox) -> None:
    rollout = Rollout(TirPointwise(), ScriptedGenerator(lambda _: "<score>7</score>"), sandbox)
    group = await rollout.group(task(), 3)
    assert [episode.sample for episode in group] == [0, 1, 2]
    assert [[t.view.order for t in episode.trajectories] for episode in group] == [[(0,), (1,)]] * 3
    assert {t.sample for t in group[2].trajectories} == {2}


async def test_other_rows_generate_from_start_to_end_while_a_program_runs() -> None:
    generator = TransformersGenerator(*memorised(), name="tiny")
    rollout, sandbox = held(generator)
    waiting = asyncio.create_task(rollout.episode(task("first")))
    await sandbox.started.get()
    other = Rollout(TirPairwise(order="given", tools=False), generator, sandbox, budget=Budget(tokens=40))
    await other.episode(task("second"))
    assert not waiting.done()
    sandbox.open.set()
    (trajectory,) = (await waiting).trajectories
    assert [segment.text for segment in trajectory.segments] == [PROGRAM, OUTPUT, ANSWER]
    await generator.close()


async def test_cancelling_cancels_the_programs_and_frees_the_rows() -> None:
    model, tokenizer = memorised()
    generator = TransformersGenerator(model, tokenizer, name="tiny")
    rollout, sandbox = held(generator)
    group = asyncio.create_task(rollout.group(task(), 3))
    for _ in range(3):
        await sandbox.started.get()
    generating = asyncio.create_task(rollout.group(task("more"), 3))
    await asyncio.sleep(0)
    generating.cancel()
    group.cancel()
    await asyncio.gather(group, generating, return_exceptions=True)
    assert group.cancelled()
    assert generating.cancelled()
    assert sandbox.cancelled >= 3
    generator.weights_changed()
    await generator.close()


async def test_a_failed_generator_ends_only_its_own_trajectory(sandbox: Sandbox) -> None:
    def script(context: Context) -> str:
        if "broken" in context.prompt.messages[0].content:
            raise GeneratorFailed("HTTP 503 from the endpoint")
        return ANSWER

    broken = JudgeTask(id="b", prompt=(Message("user", "broken"),), candidates=("x", "y"))
    rollout = Rollout(JUDGE, ScriptedGenerator(script), sandbox)
    episodes = await asyncio.gather(rollout.episode(task()), rollout.episode(broken))
    assert [e.trajectories[0].stop for e in episodes] == [StopReason.VERDICT, StopReason.GENERATOR_DOWN]
    assert episodes[1].trajectories[0].detail == "HTTP 503 from the endpoint"


class Recorder:
    """A generator that records its requests."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.model, self.encoder = inner, inner.model, inner.encoder
        self.asked: list[tuple[Context, Sampling]] = []
        self.said: list[Completion] = []

    async def generate(self, context: Context, sampling: Sampling) -> Completion:
        self.asked.append((context, sampling))
        self.said.append(await self.inner.generate(context, sampling))
        return self.said[-1]

    async def close(self) -> None:
        await self.inner.close()


async def seeds_of(sandbox: Sandbox, seed: int, name: str = "t", sample: int = 0) -> list[int]:
    """Return the seeds of two turns in each of two views."""
    recorder = Recorder(ScriptedGenerator(dialogue))
    await Rollout(TirPairwise(order="both"), recorder, sandbox, seed=seed).episode(task(name), sample)
    return sorted(sampling.seed for _, sampling in recorder.asked)


async def test_the_seed_of_a_turn_depends_only_on_its_position(sandbox: Sandbox) -> None:
    seeds = await seeds_of(sandbox, 0)
    assert seeds == await seeds_of(sandbox, 0)
    seeds += await seeds_of(sandbox, 1)
    seeds += await seeds_of(sandbox, 0, "u")
    seeds += await seeds_of(sandbox, 0, "t", 1)
    assert len(set(seeds)) == 16


async def test_a_program_has_the_limits_of_the_rollout_and_a_seed_of_its_own() -> None:
    limits = Limits(memory_bytes=1 << 26)
    seeds = []
    for _ in range(2):
        rollout, sandbox = held(ScriptedGenerator(dialogue), limits=limits)
        sandbox.open.set()
        await rollout.group(task(), 3)
        runs = [sandbox.started.get_nowait() for _ in range(3)]
        assert [given for _, given in runs] == [limits] * 3
        seeds.append([program.seed for program, _ in runs])
    assert len(set(seeds[0])) == 3
    assert seeds[0] == seeds[1]


@pytest.mark.parametrize(
    ("turns", "stop"), [([PROGRAM], StopReason.TOKEN_BUDGET), ([], StopReason.PROMPT_TOO_LONG)]
)
async def test_a_dialogue_that_exceeds_the_context_ends_with_its_token_budget(
    turns: list[str], stop: StopReason
) -> None:
    """A prompt that never fitted has a stop reason of its own, since it is no failure of the judge."""

    def script(_: Context) -> str:
        if not turns:
            raise ContextTooLong("the context has 65 tokens and tiny takes 64")
        return turns.pop()

    rollout, sandbox = held(ScriptedGenerator(script))
    sandbox.open.set()
    (trajectory,) = (await rollout.episode(task())).trajectories
    assert (trajectory.stop, trajectory.detail) == (stop, "the context has 65 tokens and tiny takes 64")


async def test_the_number_of_concurrent_trajectories_is_limited() -> None:
    rollout, sandbox = held(ScriptedGenerator(dialogue), concurrency=2)
    group = asyncio.create_task(rollout.group(task(), 5))
    for _ in range(2):
        await sandbox.started.get()
    for _ in range(20):
        await asyncio.sleep(0)
    assert sandbox.started.empty()
    sandbox.open.set()
    assert len(await group) == 5


async def test_episodes_come_as_they_finish_and_tasks_are_drawn_as_needed() -> None:
    def script(context: Context) -> str:
        return dialogue(context) if "slow" in context.prompt.messages[0].content else ANSWER

    drawn: list[str] = []

    def tasks() -> Any:
        for name in ("slow", "a", "b", "c", "d"):
            drawn.append(name)
            yield JudgeTask(id=name, prompt=(Message("user", name),), candidates=("x", "y"))

    rollout, sandbox = held(ScriptedGenerator(script), concurrency=2)
    finished: list[str] = []
    async with aclosing(rollout.episodes(tasks())) as episodes:
        async for episode in episodes:
            finished.append(episode.task.id)
            if episode.task.id == "a":
                assert drawn == ["slow", "a"]
            if episode.task.id == "d":
                sandbox.open.set()
    assert finished == ["a", "b", "c", "d", "slow"]


@cache
def memorised() -> tuple[Any, Any]:
    """Train a tiny Qwen3 on the dialogue above until it reproduces it, so a real model runs a program."""
    text = JUDGE.prompt(task(), JUDGE.views(task())[0]).messages[0].content
    tokenizer = bpe_tokenizer(text, *[PROGRAM, OUTPUT, ANSWER] * 3, vocab_size=600)
    model: Any = tiny_qwen3(len(tokenizer), initializer_range=0.1)
    learn(model, ChatEncoder(tokenizer))
    return model.eval(), tokenizer


def learn(model: Any, encoder: ChatEncoder) -> None:
    prompt = encoder.prompt(JUDGE.prompt(task(), JUDGE.views(task())[0]))
    parts = [prompt, encoder.text(PROGRAM), encoder.text(OUTPUT), [*encoder.text(ANSWER), 0]]
    ids = torch.tensor([[token for part in parts for token in part]])
    labels = torch.tensor([[t if i in (1, 3) else -100 for i, part in enumerate(parts) for t in part]])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(100):
        loss = model(ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss < 0.005:
            return
    raise AssertionError("the dialogue was not learnt")


async def test_ids_stay_as_sampled_where_encoding_the_text_again_would_change_them(sandbox: Sandbox) -> None:
    tokenizer = bpe_tokenizer("any text, any tokens", vocab_size=384)
    generator = Recorder(TransformersGenerator(tiny_qwen3(), tokenizer, name="tiny"))
    sampling = Sampling(temperature=1.0, max_tokens=60)
    rollout = Rollout(JUDGE, generator, sandbox, sampling=sampling)
    (trajectory,) = (await rollout.episode(task())).trajectories
    sampled = tuple(token for completion in generator.said for token in completion.token_ids or ())
    transcript = Transcript.of(trajectory)
    assert transcript.completion_ids == sampled
    assert generator.encoder is not None
    assert tuple(generator.encoder.text(trajectory.segments[0].text)) != sampled


async def test_a_group_in_one_batch_has_the_logprobs_of_plain_forward_passes(sandbox: Sandbox) -> None:
    """The sampled dialogues contain programs, and each is checked token by token against the model."""
    model, tokenizer = memorised()
    generator = TransformersGenerator(model, tokenizer, name="tiny", max_rows=3)
    rollout = Rollout(JUDGE, generator, sandbox, sampling=Sampling(temperature=1.0, max_tokens=60))
    group = await rollout.group(task(), 6)
    for episode in group:
        assert_logprobs(model, Transcript.of(episode.trajectories[0]))
    assert any(episode.trajectories[0].calls for episode in group)
    await generator.close()


def assert_logprobs(model: Any, transcript: Transcript) -> None:
    ids: Sequence[int] = (*transcript.prompt_ids, *transcript.completion_ids)
    with torch.no_grad():
        logprobs = model(torch.tensor([ids])).logits[0].log_softmax(-1)
    assert transcript.logprobs is not None
    for at, (mask, logprob) in enumerate(
        zip(transcript.mask, transcript.logprobs, strict=True), len(transcript.prompt_ids)
    ):
        assert logprob == (pytest.approx(logprobs[at - 1, ids[at]].item(), abs=1e-5) if mask else 0.0)
