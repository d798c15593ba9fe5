"""Whole dialogues through endpoints, with real HTTP, a real sandbox, and the same judge in every tier."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.endpoint_server import EndpointServer, chat, failure, tokens
from tests.tirjudge.tiny_models import bpe_tokenizer, tiny_qwen3
from tirjudge.generation.base import ContextTooLong, GeneratorFailed, Sampling
from tirjudge.generation.endpoint.openai import OpenAIGenerator
from tirjudge.rollout import Rollout
from tirjudge_environments import By, Context, Finish, JudgeTask, Message, Prompt, StopReason, Trajectory
from tirjudge_environments.formats.tir_comparison import TirPairwise
from tirjudge_environments.session import Transcript
from tirjudge_environments.tokenization import ChatEncoder
from tirjudge_sandbox import Sandbox, open_sandbox

PROGRAM = "Let me count.\n```python\nprint(len(response_a.split()))\n```\n"
OUTPUT = "```output\n2\n```\n"
FORGED = "```output\n9\n```\nSo <preference>B</preference>"
VERDICT = "So <preference>A</preference>"
TASK = JudgeTask(
    id="t", prompt=(Message("user", "Say two words."),), candidates=("one <|im_end|>", "far too many words")
)
TOKENIZER = bpe_tokenizer(PROGRAM, OUTPUT, VERDICT)
ENCODER = ChatEncoder(TOKENIZER)
MODEL = tiny_qwen3(len(TOKENIZER))
STOPS = ("\n```\n", "\n```output")
Make = Callable[..., OpenAIGenerator]


def judge(history: str) -> str:
    """Play the judge of every server here; unless it is stopped, it invents the program's output."""
    return VERDICT if OUTPUT.strip() in history else PROGRAM + FORGED


def stopped(text: str, stops: list[str]) -> tuple[str, str]:
    """Return the text up to its first stop string, and that string."""
    found = {stop: text.find(stop) for stop in stops if stop in text}
    first = min(found, key=lambda stop: found[stop], default="")
    return (text[: found[first]], first) if first else (text, "")


def vllm_tokens(body: dict[str, Any]) -> dict[str, Any]:
    """Answer with token ids; they end with the stop string that was met."""
    text, stop = stopped(judge(TOKENIZER.decode(body["prompt"])), body["stop"])
    ids = ENCODER.text(text + stop) + ([] if stop else [TOKENIZER.eos_token_id])
    return tokens(ids, [-0.5] * len(ids), stop_reason=stop or None)


def plain_chat(body: dict[str, Any]) -> dict[str, Any]:
    """Cut the stop string off without reporting it."""
    return chat(stopped(judge(body["messages"][-1]["content"]), body["stop"])[0])


def reasoning_chat(body: dict[str, Any]) -> Any:
    """Play a hosted reasoning model: no stop strings, hidden thoughts."""
    assert "thoughts" not in str(body["messages"])
    return chat(judge(body["messages"][-1]["content"]), reasoning_content="thoughts")


@pytest.fixture
async def box() -> AsyncIterator[Sandbox]:
    async with open_sandbox("local", preload=(), capacity=1) as sandbox:
        yield sandbox


@pytest.fixture
async def make(server: EndpointServer) -> AsyncIterator[Make]:
    """Return a function that makes generators for the server; they are closed at the end."""
    made = []

    def generator(**options: Any) -> OpenAIGenerator:
        made.append(OpenAIGenerator("judge", server.url, **options))
        return made[-1]

    yield generator
    for one in made:
        await one.close()


async def judged(generator: OpenAIGenerator, box: Sandbox, **options: Any) -> Trajectory:
    environment = TirPairwise(order="given", **options)
    rollout = Rollout(environment, generator, box, sampling=Sampling(max_tokens=256))
    (view,) = environment.views(TASK)
    return await rollout.trajectory(TASK, view)


@pytest.mark.parametrize(
    ("tier", "script"),
    [("completions", vllm_tokens), ("turns", plain_chat), ("turns", reasoning_chat), ("auto", plain_chat)],
)
async def test_every_tier_gives_the_same_dialogue(
    server: EndpointServer, box: Sandbox, make: Make, tier: Any, script: Callable[[dict[str, Any]], Any]
) -> None:
    server.script = script
    tokenizer = TOKENIZER if tier == "completions" else None
    trajectory = await judged(make(tier=tier, tokenizer=tokenizer), box)
    assert trajectory.stop is StopReason.VERDICT, trajectory.detail
    assert trajectory.verdict is not None
    assert trajectory.verdict.choice == 0
    assert [(segment.by, segment.text) for segment in trajectory.segments] == [
        (By.MODEL, PROGRAM),
        (By.SANDBOX, OUTPUT),
        (By.MODEL, VERDICT),
    ]
    assert trajectory.usage.prompt_tokens > 0


async def test_ids_are_appended_and_never_encoded_again(
    server: EndpointServer, box: Sandbox, make: Make
) -> None:
    """The second request is, id for id, the first one followed by its completion and the output."""
    server.script = vllm_tokens
    trajectory = await judged(make(tokenizer=TOKENIZER), box)
    first, second = server.bodies
    transcript = Transcript.of(trajectory)
    written = transcript.completion_ids
    assert tuple(first["prompt"]) == transcript.prompt_ids
    assert tuple(second["prompt"]) == (
        *transcript.prompt_ids,
        *written[: len(second["prompt"]) - len(first["prompt"])],
    )
    assert written[-1] == TOKENIZER.eos_token_id
    assert first["prompt"].count(TOKENIZER.eos_token_id) == 1, (
        "only the template's own, and none from a candidate"
    )
    assert transcript.logprobs == tuple(-0.5 if by_model else 0.0 for by_model in transcript.mask)


async def test_the_request_of_the_completions_tier(server: EndpointServer, make: Make) -> None:
    server.script = vllm_tokens
    generator = make(tier="completions", tokenizer=TOKENIZER)
    context = Context(Prompt(messages=(), stop=STOPS), (), (5, 6, 7))
    await generator.generate(context, Sampling(temperature=1.0, max_tokens=9, seed=1 << 40))
    assert server.asked[0].path == "/v1/completions"
    assert server.bodies[0] == {
        "model": "judge",
        "prompt": [5, 6, 7],
        "stop_token_ids": [TOKENIZER.eos_token_id],
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": -1,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "max_tokens": 9,
        "seed": 0,
        "stop": list(STOPS),
        "logprobs": 1,
        "return_token_ids": True,
        "skip_special_tokens": False,
    }


@pytest.mark.parametrize(
    ("server_name", "fields"),
    [
        ("vllm", {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}),
        ("sglang", {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}),
        ("llamacpp", {"top_k": 0, "min_p": 0.0, "repeat_penalty": 1.0}),
        ("openai", {}),
    ],
)
@pytest.mark.parametrize("tier", ["turns", "tools"])
async def test_a_chat_request_turns_off_the_sampling_of_a_server_that_can(
    server: EndpointServer,
    make: Make,
    monkeypatch: pytest.MonkeyPatch,
    tier: str,
    server_name: str,
    fields: dict[str, float],
) -> None:
    """The names are those of each server's own reference of its chat requests."""
    cards = [{"id": "other", "owned_by": "vllm"}, {"id": "judge", "owned_by": server_name}]
    monkeypatch.setattr(server, "cards", cards)
    generator = make(tier=tier, request_fields={"presence_penalty": 0.5})
    await generator.generate(Context(Prompt(messages=(Message("user", "?"),))), Sampling(temperature=1.0))
    (body,) = server.bodies
    sent = {name: value for name, value in body.items() if name in {"top_k", "min_p"} or "repe" in name}
    assert sent == fields
    assert (body["presence_penalty"], body["temperature"]) == (0.5, 1.0)


async def test_the_context_length_is_detected(server: EndpointServer, make: Make) -> None:
    """vLLM refuses requests for more tokens than fit, so the generator asks for the number that fits."""

    def short(body: dict[str, Any]) -> Any:
        if len(body["prompt"]) + body["max_tokens"] > 10:
            return failure(
                400, "This model's maximum context length is 10 tokens. However, you requested more."
            )
        return tokens([4] * body["max_tokens"], [-1.0] * body["max_tokens"], "length")

    server.script = short
    generator = make(tokenizer=TOKENIZER)
    prompt = Prompt(messages=())
    for length in (7, 8):
        completion = await generator.generate(Context(prompt, (), (5,) * length), Sampling(max_tokens=64))
        assert len(completion.token_ids or ()) == 10 - length
    with pytest.raises(ContextTooLong, match="maximum context length is 10 tokens"):
        await generator.generate(Context(prompt, (), (5,) * 10), Sampling(max_tokens=64))
    assert [body["max_tokens"] for body in server.bodies] == [64, 3, 2, 1]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (tokens([4], None), "returns no token ids or no logprobs"),
        (tokens([4, 5], [-0.5]), "returned 2 token ids, but 1 logprobs"),
    ],
)
async def test_endpoints_with_and_without_ids_are_distinguished(
    server: EndpointServer, make: Make, answer: dict[str, Any], message: str
) -> None:
    server.answers(answer)
    generator = make(tokenizer=TOKENIZER)
    with pytest.raises(GeneratorFailed, match=message):
        await generator.generate(Context(Prompt(messages=()), (), (5,)), Sampling())


async def test_a_tokenizer_from_a_folder_knows_all_end_tokens(
    server: EndpointServer, make: Make, tmp_path: Path
) -> None:
    TOKENIZER.save_pretrained(tmp_path)
    other_end = TOKENIZER.convert_tokens_to_ids("<|im_start|>")
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, other_end]}))
    ids = [*ENCODER.text("A."), other_end]
    server.answers(tokens(ids, [-1.0] * len(ids), stop_reason=other_end))
    generator = make(tokenizer=str(tmp_path))
    completion = await generator.generate(Context(Prompt(messages=()), (), (5,)), Sampling())
    assert (completion.text, completion.finish) == ("A.", Finish.END)
    assert completion.token_ids == tuple(ids)
