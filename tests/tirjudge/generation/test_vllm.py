"""The real vLLM on a CPU: tokens and logprobs equal those of transformers, and new weights take effect."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from tests.tirjudge.tiny_models import bpe_tokenizer, tiny_qwen3
from tirjudge.generation import ContextTooLong, GeneratorFailed, Sampling
from tirjudge.generation.local.transformers import TransformersGenerator
from tirjudge.generation.vllm import VllmGenerator
from tirjudge_environments import Completion, Context, Finish, Prompt

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed"),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(600),
]
TOKENIZER = bpe_tokenizer("print the answer and then the preference", "```python\nprint(1)\n```\n" * 3)
CPU = {"dtype": "float32", "enforce_eager": True, "max_context": 256}
HEAD = 32
"""The smallest width of a head that vLLM's kernels for a CPU take."""
GREEDY = Sampling(temperature=0.0, max_tokens=24)


def tied_model(folder: Path, seed: int) -> Any:
    """Save a model whose output layer is tied to its embedding in `folder`."""
    model = tiny_qwen3(len(TOKENIZER), seed=seed, tie_word_embeddings=True, head_dim=HEAD)
    model.save_pretrained(folder)
    TOKENIZER.save_pretrained(folder)
    return model


def context(ids: Sequence[int], *stop: str) -> Context:
    return Context(Prompt(messages=(), stop=stop), (), tuple(ids))


def in_memory() -> set[Path]:
    """Return the files of shared memory on this machine."""
    return set(Path("/dev/shm").glob("psm_*"))


def prompts(*lengths: int) -> list[list[int]]:
    draw = random.Random(0)
    return [[draw.randrange(2, len(TOKENIZER)) for _ in range(length)] for length in lengths]


def exact_logprobs(model: Any, ids: Sequence[int], completion: Completion, temperature: float) -> list[float]:
    """Return the logprobs of the completion's tokens, by one plain forward pass."""
    assert completion.token_ids is not None
    row = torch.tensor([[*ids, *completion.token_ids]])
    with torch.no_grad():
        logits = model(row).logits[0, len(ids) - 1 : -1].double() / temperature
    return logits.log_softmax(-1).gather(1, row[0, len(ids) :, None])[:, 0].tolist()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("old")


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return tied_model(folder, seed=0)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def generator(folder: Path, model: Any) -> AsyncIterator[VllmGenerator]:
    made = VllmGenerator.load(str(folder), **CPU)
    yield made
    await made.close()


async def test_greedy_tokens_and_their_logprobs_are_those_of_our_own_generator(
    generator: VllmGenerator, model: Any
) -> None:
    contexts = [context(ids) for ids in prompts(1, 7, 40, 120, 16)]
    ours = TransformersGenerator(model, TOKENIZER, name="tiny")
    try:
        expected = await asyncio.gather(*(ours.generate(one, GREEDY) for one in contexts))
    finally:
        await ours.close()
    completions = await asyncio.gather(*(generator.generate(one, GREEDY) for one in contexts))
    for completion, by_us in zip(completions, expected, strict=True):
        assert completion.token_ids == by_us.token_ids
        assert (completion.text, completion.finish, completion.usage) == (
            by_us.text,
            by_us.finish,
            by_us.usage,
        )
        assert completion.logprobs == pytest.approx(by_us.logprobs, abs=1e-4)


async def test_sampled_logprobs_are_those_of_the_distribution_that_was_sampled_from(
    generator: VllmGenerator, model: Any
) -> None:
    for ids, temperature in zip(prompts(5, 30), (0.7, 1.0), strict=True):
        drawn = Sampling(temperature=temperature, max_tokens=32, seed=3)
        completion = await generator.generate(context(ids), drawn)
        assert completion.logprobs == pytest.approx(
            exact_logprobs(model, ids, completion, temperature), abs=1e-4
        )


async def test_a_seed_determines_the_sample(generator: VllmGenerator) -> None:
    (ids,) = prompts(12)

    async def drawn(seed: int) -> tuple[int, ...] | None:
        sampling = Sampling(temperature=1.0, max_tokens=16, seed=seed)
        return (await generator.generate(context(ids), sampling)).token_ids

    large = (1 << 70) + 5
    alone = [await drawn(1), await drawn(2), await drawn(large)]
    assert await asyncio.gather(drawn(1), drawn(2), drawn(large)) == alone
    assert len(set(alone)) == 3


async def test_a_stop_string_ends_a_turn_and_the_text_after_it_is_kept(generator: VllmGenerator) -> None:
    (ids,) = prompts(12)
    whole = await generator.generate(context(ids), GREEDY)
    assert whole.token_ids is not None
    stop = generator.encoder.decode(whole.token_ids[4:6])[:2]
    stopped = await generator.generate(context(ids, stop), GREEDY)
    assert stopped.token_ids == whole.token_ids[: len(stopped.token_ids or ())]
    assert stopped.finish is Finish.STOP
    assert stop in stopped.text
    assert stopped.text == generator.encoder.decode(stopped.token_ids or ())
    assert len(stopped.logprobs or ()) == len(stopped.token_ids or ())


async def test_a_turn_ends_with_the_context_and_a_full_context_is_refused(generator: VllmGenerator) -> None:
    (ids,) = prompts(250)
    completion = await generator.generate(context(ids), Sampling(max_tokens=100))
    assert (completion.finish, len(completion.token_ids or ())) == (Finish.LENGTH, 6)
    with pytest.raises(ContextTooLong, match=r"has 256 tokens, but .* takes 256"):
        await generator.generate(context([*ids, *ids[:6]]), GREEDY)
    with pytest.raises(GeneratorFailed, match="takes token ids"):
        await generator.generate(Context(Prompt(messages=()), (), None), GREEDY)


async def test_streamed_weights_are_those_of_a_folder_with_one_tensor_at_a_time_in_shared_memory(
    generator: VllmGenerator, model: Any, tmp_path: Path
) -> None:
    contexts, new, shared = [context(ids) for ids in prompts(5, 64)], tied_model(tmp_path, seed=1), []
    there = in_memory()

    def weights(model: Any, stop_at: int = -1) -> Iterator[tuple[str, torch.Tensor]]:
        for number, (name, tensor) in enumerate(model.named_parameters()):
            shared.append(sum(file.stat().st_size for file in in_memory() - there))
            if number == stop_at:
                raise ConnectionError("the trainer cannot gather this tensor")
            yield name, tensor.detach()

    async def greedy() -> list[Completion]:
        return [await generator.generate(one, GREEDY) for one in contexts]

    before = await greedy()
    await generator.load_weights(tmp_path)
    by_folder = await greedy()
    assert by_folder != before
    assert await generator.receive_weights(weights(model)) == 4 * model.num_parameters()
    assert await greedy() == before
    await generator.receive_weights(weights(new))
    assert await greedy() == by_folder
    page = 4096
    assert max(shared) < 4 * max(p.numel() for p in model.parameters()) + page
    assert in_memory() <= there

    # After the queries of a layer, so that its other tensors must not be taken for the rest of a whole one.
    with pytest.raises(ConnectionError):
        await generator.receive_weights(weights(model, stop_at=2))
    with pytest.raises(GeneratorFailed, match="only a part of its new weights"):
        await greedy()
    await generator.receive_weights(weights(model))
    assert await greedy() == before


async def test_an_engine_that_slept_samples_again_once_it_has_all_weights(
    generator: VllmGenerator, model: Any
) -> None:
    """vLLM keeps its memory on a CPU, but the engine's states and their order are those on a GPU."""
    (ids,) = prompts(40)
    before = await generator.generate(context(ids), GREEDY)
    await generator.sleep()
    assert await generator._engine.is_sleeping()
    with pytest.raises(GeneratorFailed, match="sleeps: wake it"):
        await generator.generate(context(ids), GREEDY)
    await generator.wake("weights")
    assert await generator._engine.is_sleeping(), "the KV cache sleeps, so that nothing is generated"
    await generator.receive_weights((name, weight.detach()) for name, weight in model.named_parameters())
    await generator.wake("kv_cache")
    assert not await generator._engine.is_sleeping()
    assert await generator.generate(context(ids), GREEDY) == before


async def test_an_engine_that_dies_during_a_sync_is_an_error_and_all_weights_are_gathered(
    folder: Path, model: Any
) -> None:
    """Otherwise the trainer's other processes would wait for this one to take part in gathering."""
    others = {process.pid for process in psutil.Process().children(recursive=True)}
    generator = VllmGenerator.load(str(folder), **CPU)
    own = [p for p in psutil.Process().children(recursive=True) if p.pid not in others]
    engine = [process for process in own if "VLLM" in "".join(process.cmdline())]
    assert engine
    gathered = []

    def weights() -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in model.named_parameters():
            if len(gathered) == 4:
                for process in engine:
                    process.kill()
            gathered.append(name)
            yield name, tensor.detach()

    try:
        with pytest.raises(GeneratorFailed, match="cannot receive new weights"):
            await generator.receive_weights(weights())
        assert gathered == [name for name, _ in model.named_parameters()]
        with pytest.raises(GeneratorFailed, match="only a part of its new weights"):
            await generator.generate(context([5, 6]), GREEDY)
    finally:
        await generator.close()


async def test_an_adapter_samples_as_in_our_own_generator(folder: Path, tmp_path: Path) -> None:
    """The adapter's folder names its base model and contains nothing of it."""
    settings = LoraConfig(r=12, lora_alpha=48, target_modules="all-linear", init_lora_weights=False)
    get_peft_model(AutoModelForCausalLM.from_pretrained(folder), settings).save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    (ids,) = prompts(40)
    loaders = {
        "ours": lambda: TransformersGenerator.load(str(tmp_path)),
        "vLLM's": lambda: VllmGenerator.load(str(tmp_path), **CPU),
        "without it": lambda: TransformersGenerator.load(str(folder)),
    }
    found = {}
    for name, load in loaders.items():
        loaded = load()
        try:
            found[name] = await loaded.generate(context(ids), GREEDY)
        finally:
            await loaded.close()
    assert found["vLLM's"].token_ids == found["ours"].token_ids != found["without it"].token_ids
    assert found["vLLM's"].logprobs == pytest.approx(found["ours"].logprobs, abs=1e-4)


async def test_an_engine_ends_with_its_trainer_and_fails_its_rows_in_one_line(
    generator: VllmGenerator,
) -> None:
    """This must be the last test of the file, since it kills the engine."""
    trainer = await asyncio.create_subprocess_exec("sleep", "600")
    await generator._engine.collective_rpc("end_with", args=(trainer.pid,))
    engine = []
    for process in psutil.Process().children(recursive=True):
        with suppress(
            psutil.NoSuchProcess
        ):  # processes of engines that earlier tests closed may still be ending
            if "VLLM" in "".join(process.cmdline()):
                engine.append(process)
    assert engine
    (ids,) = prompts(8)
    row = asyncio.create_task(generator.generate(context(ids), Sampling(temperature=1.0, max_tokens=240)))
    while not generator._engine.output_processor.has_unfinished_requests():  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    trainer.kill()
    await trainer.wait()
    with pytest.raises(GeneratorFailed) as failure:
        await row
    assert "\n" not in str(failure.value)
    with pytest.raises(GeneratorFailed):
        await generator.generate(context(ids), GREEDY)
    _, alive = psutil.wait_procs(engine, timeout=60)
    assert not alive
