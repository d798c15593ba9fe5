"""Continuous batching gives the numbers of a plain forward pass, whichever rows join, leave or resume."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import MistralConfig, MistralForCausalLM

from tests.tirjudge.tiny_models import bpe_tokenizer, tiny_llama, tiny_qwen3
from tirjudge.generation import ContextTooLong, GeneratorFailed, Sampling
from tirjudge.generation.local import continuous_batching
from tirjudge.generation.local.batch_generator import BatchGenerator
from tirjudge.generation.local.transformers import TransformersGenerator
from tirjudge_environments import By, Completion, Context, Finish, Prompt, Segment

TOKENIZER = bpe_tokenizer("print the answer and then the preference", "```python\nprint(1)\n```\n" * 3)
SAMPLED = Sampling(temperature=1.0, max_tokens=24, seed=5)


def context(ids: Sequence[int], *stop: str) -> Context:
    return Context(Prompt(messages=(), stop=stop), (), tuple(ids))


def prompts(*lengths: int, seed: int = 0) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(2, 300) for _ in range(length)] for length in lengths]


def sampling(seed: int, max_tokens: int = 24, **changes: Any) -> Sampling:
    return Sampling(**{"temperature": 1.0, "max_tokens": max_tokens, "seed": seed} | changes)


def exact_logprobs(model: Any, ids: Sequence[int], completion: Completion) -> torch.Tensor:
    """Return the logprobs of the completion's tokens, by one plain forward pass without a cache."""
    assert completion.token_ids is not None
    row = torch.tensor([[*ids, *completion.token_ids]])
    with torch.no_grad():
        logprobs = model(row).logits[0, len(ids) - 1 : -1].double().log_softmax(-1)
    return logprobs.gather(1, row[0, len(ids) :, None])[:, 0]


def assert_exact(model: Any, ids: Sequence[int], completion: Completion) -> None:
    assert completion.logprobs == pytest.approx(exact_logprobs(model, ids, completion).tolist(), abs=1e-5)


def sampled(*completions: Completion) -> int:
    return sum(len(completion.token_ids or ()) for completion in completions)


def bytes_of_a_token(model: Any) -> int:
    """Return the size of a token's keys and values in float32."""
    c = model.config
    return int(2 * 4 * c.num_hidden_layers * c.num_key_value_heads * c.head_dim)


async def running(generator: BatchGenerator) -> None:
    """Wait until the first token has gone through the model."""
    while not generator.tokens_fed:  # noqa: ASYNC110
        await asyncio.sleep(0)


def follow(generator: TransformersGenerator, cycle: list[int]) -> None:
    """Set the weights so that each token of `cycle` is followed by the next one."""
    model: Any = generator._network
    with torch.no_grad():
        for parameter in model.model.layers.parameters():
            parameter.zero_()
        model.lm_head.weight.zero_()
        model.model.embed_tokens.weight.zero_()
        for i, token in enumerate(cycle):
            model.model.embed_tokens.weight[token, i] = 1.0
            model.lm_head.weight[cycle[(i + 1) % len(cycle)], i] = 9.0


Make = Callable[..., TransformersGenerator]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    """Return a function that makes generators; they are closed at the end."""
    made = []

    def generator(model: Any = None, **options: Any) -> TransformersGenerator:
        made.append(TransformersGenerator(model or tiny_qwen3(), TOKENIZER, name="tiny", **options))
        return made[-1]

    yield generator
    for one in made:
        await one.close()


@pytest.mark.parametrize("build", [tiny_qwen3, tiny_llama])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
async def test_logprobs_in_a_mixed_batch_are_those_of_a_plain_forward_pass(
    build: Callable[..., Any], attention: str, make: Make
) -> None:
    model = build(attn_implementation=attention)
    generator = make(model, max_rows=5)
    contexts = [*prompts(1, 3, 40, 9, 120, 33, 10), *prompts(60) * 3]
    completions = await asyncio.gather(
        *(generator.generate(context(ids), sampling(i, 10 + 3 * i)) for i, ids in enumerate(contexts))
    )
    for ids, completion in zip(contexts, completions, strict=True):
        assert_exact(model, ids, completion)
    resumed = [
        [*ids, *c.token_ids, *prompts(i)[0]]
        for i, (ids, c) in enumerate(zip(contexts, completions, strict=True))
    ]
    again = await asyncio.gather(*(generator.generate(context(ids), sampling(1)) for ids in resumed))
    for ids, completion in zip(resumed, again, strict=True):
        assert_exact(model, ids, completion)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
async def test_matrix_products_use_the_requested_dtype(attention: str, make: Make) -> None:
    """The logprobs equal those of a forward pass under autocast, not float32's; bfloat16 has 8 bits."""
    model, ids = tiny_qwen3(attn_implementation=attention), prompts(40)[0]
    generator = make(model, autocast="bfloat16")
    assert generator.precision == "bfloat16"
    completion = await generator.generate(context(ids), sampling(1))
    exact = exact_logprobs(model, ids, completion)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = exact_logprobs(model, ids, completion)
    assert completion.logprobs == pytest.approx(rounded.tolist(), abs=0.1)
    assert completion.logprobs != pytest.approx(exact.tolist(), abs=1e-5)
    assert {stored.dtype for stored in generator._decoder._cache._tensors()} == {torch.bfloat16}
    with pytest.raises(ValueError, match=r"^autocast must be bfloat16 or float16, not 'float7'$"):
        make(model, autocast="float7")


async def test_autocast_rounds_each_weight_once_for_all_steps(make: Make) -> None:
    """In inference mode autocast keeps no rounded weights, so that each step would round all of them."""
    model, [ids] = tiny_qwen3(), prompts(5)
    weights = [module.weight for module in model.modules() if isinstance(module, torch.nn.Linear)]
    generator = make(model, autocast="bfloat16")
    with generator._around_steps(), Casts({id(weight) for weight in weights}) as casts:
        for _ in range(3):
            model(input_ids=torch.tensor([ids]), use_cache=False)
    assert sorted(casts.seen.values()) == [1] * len(weights)


class Casts(TorchDispatchMode):
    """Counts the conversions of some tensors, by the tensor."""

    def __init__(self, tensors: set[int]) -> None:
        super().__init__()
        self.tensors, self.seen = tensors, Counter[int]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._to_copy.default and id(args[0]) in self.tensors:
            self.seen[id(args[0])] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.slow
async def test_the_cache_stays_within_its_memory(make: Make) -> None:
    """Rows beyond it wait, also in the middle of an answer, and get the tokens that they get alone."""
    model, ids = tiny_qwen3(), prompts(100, 90, 70, 17, 16, 30, 12, 200)
    alone = make(model, max_rows=1)
    expected = [await alone.generate(context(one), sampling(n, 150)) for n, one in enumerate(ids)]
    # Keys and values of 2 layers with 2 heads of 16 numbers in float32.
    position = 2 * 2 * 2 * 16 * 4
    bound = 3 * 320 * position
    generator = make(model, cache_bytes=bound)
    cache, taken = generator._decoder._cache, []
    reserve = cache.reserve
    cache.reserve = lambda *room: (reserve(*room), taken.append(sum(t.nbytes for t in cache._tensors())))[0]
    found = await asyncio.gather(
        *(generator.generate(context(one), sampling(n, 150)) for n, one in enumerate(ids))
    )
    assert [one.token_ids for one in found] == [one.token_ids for one in expected]
    assert bound / 2 < max(taken) <= bound
    for tokens, completion in zip(ids, found, strict=True):
        assert_exact(model, tokens, completion)


async def test_a_row_that_does_not_fit_runs_alone(make: Make) -> None:
    model, ids = tiny_qwen3(), prompts(100, 90)
    generator = make(model, cache_bytes=1)
    found = await asyncio.gather(*(generator.generate(context(one), SAMPLED) for one in ids))
    for tokens, completion in zip(ids, found, strict=True):
        assert_exact(model, tokens, completion)
    assert generator._decoder._cache._slots <= 1


async def test_a_row_says_how_long_it_waited_for_its_turn(make: Make) -> None:
    generator = make(max_rows=1)
    started = time.monotonic()
    asked = [generator.generate(context(ids), sampling(0, 60)) for ids in prompts(50, 50)]
    first, second = map(asyncio.ensure_future, asked)
    waited = (await first).queued_seconds
    half = time.monotonic() - started
    # The second row waits while the first one runs, which takes most of the time until it is through.
    assert waited < half / 2 < (await second).queued_seconds < time.monotonic() - started


async def test_long_prompts_are_prefilled_in_several_passes(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(continuous_batching, "PASS_COLUMNS", 16)
    monkeypatch.setattr(continuous_batching, "PASS_TOKENS", 40)
    model = tiny_qwen3()
    generator = make(model)
    contexts = prompts(100, 90, 70, 17, 16, 30, 12, 200)
    completions = await asyncio.gather(*(generator.generate(context(ids), SAMPLED) for ids in contexts))
    for ids, completion in zip(contexts, completions, strict=True):
        assert_exact(model, ids, completion)
    assert generator.tokens_fed == sum(map(len, contexts)) + sampled(*completions) - 8


async def test_the_same_seed_gives_the_same_completion_alone_and_in_company(make: Make) -> None:
    """Double precision keeps the shape of the batch from moving the boundary between two tokens."""
    generator = make(tiny_qwen3().double())
    (ids,) = prompts(30)
    alone = await generator.generate(context(ids), SAMPLED)
    others = [
        generator.generate(context(other), sampling(i, 5 * i, top_p=0.9))
        for i, other in enumerate(prompts(50, 3, 80, 20), 1)
    ]
    company = await asyncio.gather(*others, generator.generate(context(ids), SAMPLED))
    assert company[-1].token_ids == alone.token_ids
    assert company[-1].logprobs == pytest.approx(alone.logprobs, abs=1e-6)
    other_seed = await generator.generate(context(ids), sampling(6))
    assert other_seed.token_ids != alone.token_ids


async def test_a_group_prefills_its_prompt_once(make: Make) -> None:
    model = tiny_qwen3()
    generator = make(model, max_rows=4)
    (ids,) = prompts(50)
    group = [generator.generate(context(ids), sampling(seed)) for seed in range(10)]
    completions = await asyncio.gather(*group)
    assert len({completion.token_ids for completion in completions}) == 10
    assert generator.tokens_fed == 49 + sampled(*completions)
    for completion in completions:
        assert_exact(model, ids, completion)


async def test_a_dialogue_that_has_begun_goes_before_others_and_resumes_its_row(make: Make) -> None:
    """With room for three parked rows, twelve dialogues on two rows feed each token once."""
    model = tiny_qwen3()
    row = 80 * bytes_of_a_token(model)
    generator = make(model, max_rows=2, parked_bytes=3 * row)

    async def dialogue(ids: list[int], output: list[int]) -> tuple[Completion, Completion]:
        first = await generator.generate(context(ids), sampling(0, 20))
        said = Segment(by=By.MODEL, text="", ids=first.token_ids)
        more = (*ids, *(first.token_ids or ()), *output)
        return first, await generator.generate(Context(Prompt(messages=()), (said,), more), sampling(0, 5))

    contexts, outputs = prompts(*[50] * 12), prompts(*[10] * 12, seed=1)
    turns = await asyncio.gather(*map(dialogue, contexts, outputs))
    # The last token of a turn is fed with the output, and that of a dialogue never.
    once = sum(50 + sampled(first) + 10 + sampled(second) - 1 for first, second in turns)
    assert generator.tokens_fed == once


async def test_a_resumed_row_is_fed_only_the_appended_tokens(make: Make) -> None:
    generator = make()
    first, second, output = prompts(50, 70, 33)
    completions = await asyncio.gather(*(generator.generate(context(i), SAMPLED) for i in (first, second)))
    before = generator.tokens_fed
    again = await generator.generate(context([*first, *completions[0].token_ids, *output]), sampling(0, 7))
    # The last sampled token was not fed before; the last new one will not be fed.
    assert generator.tokens_fed - before == 1 + 33 + sampled(again) - 1


async def test_a_request_joins_and_leaves_while_another_runs(make: Make) -> None:
    generator = make()
    follow(generator, [5, 6, 7])
    left: list[int] = []

    async def run(max_tokens: int) -> None:
        await generator.generate(context([5]), Sampling(max_tokens=max_tokens))
        left.append(max_tokens)

    first = asyncio.create_task(run(1000))
    await running(generator)
    await asyncio.gather(first, run(2))
    assert left == [2, 1000]


async def test_cancelling_frees_the_row(make: Make) -> None:
    generator = make(max_rows=1)
    follow(generator, [5, 6, 7])
    first, waiting = (
        asyncio.create_task(generator.generate(context([start]), Sampling(max_tokens=2000)))
        for start in (5, 6)
    )
    await running(generator)
    waiting.cancel()
    first.cancel()
    await asyncio.gather(first, waiting, return_exceptions=True)
    assert first.cancelled()
    assert waiting.cancelled()
    assert generator.tokens_fed < 2000
    generator.weights_changed()
    completion = await generator.generate(context([5]), Sampling(max_tokens=3))
    assert completion.token_ids == (6, 7, 5)


async def test_a_stop_string_ends_the_turn_and_the_text_after_it_is_kept(make: Make) -> None:
    generator = make()
    (ids,) = prompts(20)
    whole = await generator.generate(context(ids), sampling(3, 60))
    texts = [generator.encoder.decode([token]) for token in whole.token_ids or ()]
    at = next(i for i in range(5, 60) if texts[i].isascii() and len(texts[i]) > 2 and texts[i - 1].isascii())
    stop = texts[at - 1] + texts[at][:-1]
    assert stop not in generator.encoder.decode(whole.token_ids[:at])
    completion = await generator.generate(context(ids, "never there", stop), sampling(3, 60))
    assert completion.finish is Finish.STOP
    assert completion.token_ids == whole.token_ids[: at + 1]
    assert completion.text.endswith(stop + texts[at][-1])


async def test_a_stop_string_must_be_in_the_models_own_text(make: Make) -> None:
    generator = make()
    follow(generator, [75, 76, 77])
    stop = generator.encoder.decode([77, 75])
    completion = await generator.generate(context([75, 76, 77], stop), Sampling(max_tokens=30))
    assert completion.token_ids == (75, 76, 77, 75)


async def test_a_stop_string_of_multi_byte_characters_is_found(make: Make) -> None:
    """The model generates the bytes of `¶` one after the other."""
    generator = make()
    cycle = generator.encoder.text("¶")
    follow(generator, cycle)
    completion = await generator.generate(context(cycle[-1:], "¶¶"), Sampling(max_tokens=30))
    assert (completion.text, completion.finish) == ("¶¶", Finish.STOP)


@pytest.mark.parametrize("configured", [7, [301, 7]])
async def test_the_end_token_of_the_generation_config_ends_the_turn(configured: Any, make: Make) -> None:
    model = tiny_qwen3()
    model.generation_config.eos_token_id = configured
    generator = make(model)
    follow(generator, [5, 6, 7])
    completion = await generator.generate(context([5]), Sampling(max_tokens=30))
    assert (completion.token_ids, completion.finish) == ((6, 7), Finish.END)
    assert completion.text == generator.encoder.decode([6])


async def test_a_context_without_room_for_an_answer_is_refused_in_one_line(make: Make) -> None:
    generator = make(max_context=64)
    fits, too_long = prompts(63, 64)
    completion = await generator.generate(context(fits), SAMPLED)
    assert (sampled(completion), completion.finish) == (1, Finish.LENGTH)
    with pytest.raises(ContextTooLong, match=r"^the context has 64 tokens, but tiny takes 64 .*$"):
        await generator.generate(context(too_long), SAMPLED)


async def test_the_trainers_model_is_left_unchanged(make: Make) -> None:
    model: Any = tiny_qwen3()
    model.train()
    model.model.layers[0].eval()
    generator = make(model)
    await generator.generate(context(prompts(20)[0]), SAMPLED)
    assert model.training
    assert model.model.layers[1].mlp.training
    assert not model.model.layers[0].training
    assert model.config._attn_implementation == "sdpa"
    loss = model(torch.tensor(prompts(20)), labels=torch.tensor(prompts(20))).loss
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


async def test_new_weights_are_used_once_they_are_announced(make: Make) -> None:
    model = tiny_qwen3()
    generator = make(model)
    (ids,) = prompts(40)
    first = await generator.generate(context(ids), SAMPLED)
    model.load_state_dict(tiny_qwen3(seed=1).state_dict())
    generator.weights_changed()
    longer = [*ids, *first.token_ids]
    assert_exact(model, longer, await generator.generate(context(longer), SAMPLED))


async def test_weights_cannot_change_during_a_running_row(make: Make) -> None:
    generator = make()
    task = asyncio.create_task(generator.generate(context(prompts(20)[0]), SAMPLED))
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="1 rows were running"):
        generator.weights_changed()
    await task


async def test_a_failed_forward_pass_fails_only_its_rows_in_one_line(make: Make) -> None:
    generator = make()
    with pytest.raises(GeneratorFailed, match=r"^tiny: .*$"):
        await generator.generate(context([10_000]), SAMPLED)
    completion = await generator.generate(context([10]), SAMPLED)
    assert sampled(completion) > 0


async def test_a_model_is_loaded_from_a_folder(tmp_path: Path) -> None:
    model = tiny_qwen3()
    model.save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    generator = TransformersGenerator.load(str(tmp_path), device="cpu", max_rows=2)
    (ids,) = prompts(20)
    assert generator.model == str(tmp_path)
    assert_exact(model, ids, await generator.generate(context(ids), SAMPLED))
    await generator.close()


def test_a_row_is_never_longer_than_a_sliding_window() -> None:
    config = MistralConfig(
        vocab_size=384, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, sliding_window=16,
    )  # fmt: skip
    generator = TransformersGenerator(MistralForCausalLM(config), TOKENIZER, name="tiny")
    with pytest.raises(ContextTooLong, match="takes 16"):
        asyncio.run(generator.generate(context(prompts(16)[0]), SAMPLED))
