"""OpenVINO gives nearly the numbers of torch's forward pass, whichever rows join, leave or resume."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import warnings
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model

from tests.rows import every
from tests.tirjudge.generation.test_transformers import (
    SAMPLED,
    TOKENIZER,
    context,
    exact_logprobs,
    prompts,
    running,
    sampled,
    sampling,
)
from tests.tirjudge.hub_cache import snapshot
from tests.tirjudge.tiny_models import tiny_llama, tiny_phi3, tiny_qwen2, tiny_qwen3
from tirjudge.generation import GeneratorFailed, Sampling
from tirjudge.generation.local import openvino
from tirjudge.generation.local.openvino import OpenvinoGenerator
from tirjudge.generation.local.openvino_graph import read_config
from tirjudge.models import machine
from tirjudge_environments import Finish

Make = Callable[..., OpenvinoGenerator]
CLOSE = 0.02
"""Nats between log-probabilities with keys and values in float16, and in float32."""


def small_llama() -> Any:
    """Return a model whose weights float16 holds exactly."""
    return halved(tiny_llama())


def halved(model: Any) -> Any:
    with torch.no_grad():
        for weights in model.parameters():
            weights.copy_(weights.half())
    return model


def adapted(model: Any, base: str | Path, folder: Path, *targets: str) -> Any:
    """Save an adapter of the model that names this base in a folder, and return the adapted model."""
    config = LoraConfig(r=4, lora_alpha=8, target_modules=[*targets], init_lora_weights=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peft asks transformers by an old name
        tuned: Any = get_peft_model(model, config)
        tuned.peft_config["default"].base_model_name_or_path = str(base)
        tuned.save_pretrained(folder)
    return tuned


@pytest.fixture
async def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Make]:
    """Return a function that loads a model from a folder; the generators are closed at the end."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = []

    def generator(model: Any = None, **options: Any) -> OpenvinoGenerator:
        folder = tmp_path / f"model-{len(made)}"
        (model or small_llama()).save_pretrained(folder)
        TOKENIZER.save_pretrained(folder)
        settings = {"dtype": "float32", "threads": 1, "cache_bytes": 8 << 20, **options}
        made.append(OpenvinoGenerator.load(str(folder), **settings))
        return made[-1]

    yield generator
    for one in made:
        await one.close()


async def test_logprobs_in_a_mixed_batch_are_those_of_a_forward_pass(make: Make) -> None:
    generator, model = make(max_rows=3), small_llama()
    contexts = [*prompts(1, 3, 40, 9, 120, 33, 10), *prompts(60) * 3]
    completions = await asyncio.gather(
        *(generator.generate(context(ids), sampling(i, 10 + 3 * i)) for i, ids in enumerate(contexts))
    )
    errors = []
    for ids, completion in zip(contexts, completions, strict=True):
        exact = exact_logprobs(model, ids, completion)
        errors += (torch.tensor(completion.logprobs) - exact).abs().tolist()
    assert max(errors) < CLOSE


@pytest.mark.parametrize("tiny", [tiny_qwen2, tiny_qwen3, tiny_phi3])
@pytest.mark.parametrize("tied", every(2, [True, False]))
async def test_logprobs_of_other_architectures(
    tiny: Callable[..., Any], tied: bool, make: Make, tmp_path: Path
) -> None:
    """Also with an adapter on the matrices that Phi 3 stores as one."""
    base = halved(tiny(tie_word_embeddings=tied))
    generators = [make(base)]
    fused = tiny is tiny_phi3
    targets = ["qkv_proj", "gate_up_proj"] if fused else ["q_proj", "v_proj", "up_proj"]
    model = halved(tiny(tie_word_embeddings=tied))
    tuned = adapted(model, tmp_path / "model-0", tmp_path / "adapter", *targets)
    options: dict[str, Any] = {"dtype": "float32", "threads": 1, "cache_bytes": 8 << 20}
    generators.append(OpenvinoGenerator.load(str(tmp_path / "adapter"), **options))
    for generator, exact in zip(generators, (base, tuned.merge_and_unload()), strict=True):
        for ids in prompts(3, 40, 120):
            completion = await generator.generate(context(ids), sampling(1, 20))
            expected = exact_logprobs(exact, ids, completion)
            assert completion.logprobs == pytest.approx(expected.tolist(), abs=CLOSE)
    await generators[1].close()


async def test_bfloat16_errs_as_much_as_that_of_torch(make: Make) -> None:
    generator, exact, rounded = make(dtype="bfloat16"), small_llama(), small_llama().bfloat16()
    ours, torchs = [], []
    for ids in prompts(3, 40, 120, 60, 9, 30):
        completion = await generator.generate(context(ids), SAMPLED)
        expected = exact_logprobs(exact, ids, completion)
        ours += (torch.tensor(completion.logprobs) - expected).abs().tolist()
        torchs += (exact_logprobs(rounded, ids, completion).float() - expected).abs().tolist()
    assert fmean(ours) < 1.5 * fmean(torchs)


async def test_an_unknown_dtype_is_refused(make: Make) -> None:
    with pytest.raises(ValueError, match="dtype must be one of auto, bfloat16, float32, not 'float16'"):
        make(dtype="float16")


async def test_a_long_prompt_is_fed_in_several_passes(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openvino, "PASS_TOKENS", 16)
    generator, model = make(), small_llama()
    contexts = prompts(100, 70, 16, 3)
    completions = await asyncio.gather(*(generator.generate(context(ids), SAMPLED) for ids in contexts))
    for ids, completion in zip(contexts, completions, strict=True):
        exact = exact_logprobs(model, ids, completion)
        assert completion.logprobs == pytest.approx(exact.tolist(), abs=CLOSE)
    assert generator.tokens_fed == sum(map(len, contexts)) + sampled(*completions) - 4


@pytest.mark.parametrize("top_p", [1.0, 0.9])
async def test_the_same_seed_gives_the_same_completion_alone_and_in_company(top_p: float, make: Make) -> None:
    generator = make(max_rows=3)
    (ids,) = prompts(30)
    alone = await generator.generate(context(ids), sampling(5, top_p=top_p))
    others = [generator.generate(context(other), sampling(i)) for i, other in enumerate(prompts(50, 3, 80))]
    company = await asyncio.gather(*others, generator.generate(context(ids), sampling(5, top_p=top_p)))
    assert company[-1].token_ids == alone.token_ids
    assert company[-1].logprobs == pytest.approx(alone.logprobs, abs=1e-3)
    other_seed = await generator.generate(context(ids), sampling(6, top_p=top_p))
    assert other_seed.token_ids != alone.token_ids


async def test_samples_have_the_distribution_of_the_temperature_and_top_p(make: Make) -> None:
    """Of 600 first tokens; a frequency has a standard error of at most .021."""
    generator, (ids,) = make(), prompts(9)
    asked = [sampling(seed, 1, temperature=0.5, top_p=0.8) for seed in range(600)]
    completions = await asyncio.gather(*(generator.generate(context(ids), one) for one in asked))
    with torch.no_grad():
        chances = (small_llama()(torch.tensor([ids])).logits[0, -1] / 0.5).softmax(-1)
    ordered, tokens = chances.sort(descending=True)
    kept = int((ordered.cumsum(-1) < 0.8).sum()) + 1
    nucleus = dict(zip(tokens[:kept].tolist(), (ordered[:kept] / ordered[:kept].sum()).tolist(), strict=True))
    drawn = [completion.token_ids[0] for completion in completions if completion.token_ids]
    # Rounding may move a token over the edge of the nucleus.
    assert sum(token not in nucleus for token in drawn) <= 6
    for token, chance in nucleus.items():
        assert drawn.count(token) / len(drawn) == pytest.approx(chance, abs=0.07)
    logprobs = {one.token_ids[0]: one.logprobs[0] for one in completions if one.token_ids and one.logprobs}
    best = max(nucleus, key=lambda token: nucleus[token])
    assert logprobs[best] == pytest.approx(torch.tensor(nucleus[best]).log().item(), abs=CLOSE)


async def test_a_resumed_row_is_fed_only_the_appended_tokens(make: Make) -> None:
    generator, model = make(), small_llama()
    first, second, output = prompts(50, 70, 33)
    completions = await asyncio.gather(*(generator.generate(context(i), SAMPLED) for i in (first, second)))
    before = generator.tokens_fed
    longer = [*first, *(completions[0].token_ids or ()), *output]
    again = await generator.generate(context(longer), sampling(0, 7))
    # The last sampled token was not fed before; the last new one will not be fed.
    assert generator.tokens_fed - before == 1 + 33 + sampled(again) - 1
    assert again.logprobs == pytest.approx(exact_logprobs(model, longer, again).tolist(), abs=CLOSE)


async def test_a_common_start_is_fed_once(make: Make) -> None:
    """Samples of one prompt, and another prompt that starts with the same 50 tokens."""
    generator, model = make(max_rows=4), small_llama()
    (ids,), (end,) = prompts(77), prompts(21)
    contexts = [*[ids] * 5, ids[:50] + end]
    completions = await asyncio.gather(
        *(generator.generate(context(one), sampling(seed, 20)) for seed, one in enumerate(contexts))
    )
    assert generator.tokens_fed == 77 + 4 + 21 + sampled(*completions) - 6
    for one, completion in zip(contexts, completions, strict=True):
        exact = exact_logprobs(model, one, completion)
        assert completion.logprobs == pytest.approx(exact.tolist(), abs=CLOSE)


async def test_rows_wait_for_blocks_and_all_of_them_end(make: Make) -> None:
    """The cache holds one row of the longest answer at a time."""
    generator, model = make(max_context=2048, cache_bytes=0), small_llama()
    contexts = prompts(*range(20, 90, 10))
    completions = await asyncio.gather(
        *(
            generator.generate(context(ids), sampling(i, 1500 if i == 2 else 20))
            for i, ids in enumerate(contexts)
        )
    )
    for ids, completion in zip(contexts, completions, strict=True):
        exact = exact_logprobs(model, ids, completion)
        assert completion.logprobs == pytest.approx(exact.tolist(), abs=CLOSE)


async def test_cancelling_frees_the_row(make: Make) -> None:
    generator = make(max_rows=1)
    first, waiting = (
        asyncio.create_task(generator.generate(context(ids), Sampling(max_tokens=2000)))
        for ids in prompts(5, 6)
    )
    await running(generator)
    waiting.cancel()
    first.cancel()
    await asyncio.gather(first, waiting, return_exceptions=True)
    assert first.cancelled()
    assert waiting.cancelled()
    assert generator.tokens_fed < 2000
    assert len((await generator.generate(context([5]), Sampling(max_tokens=3))).token_ids or ()) == 3


@pytest.mark.parametrize("configured", [7, [301, 7]])
async def test_the_end_token_of_the_generation_config_ends_the_turn(configured: Any, make: Make) -> None:
    model: Any = small_llama()
    model.generation_config.eos_token_id = configured
    with torch.no_grad():
        for parameter in model.model.layers.parameters():
            parameter.zero_()
        model.lm_head.weight.zero_()
        model.lm_head.weight[7, 0] = model.model.embed_tokens.weight[5, 0] = 9.0
    completion = await make(model).generate(context([5]), Sampling(max_tokens=30))
    assert (completion.token_ids, completion.finish, completion.text) == ((7,), Finish.END, "")


async def test_weights_that_are_no_numbers_are_one_line(make: Make) -> None:
    model: Any = small_llama()
    with torch.no_grad():
        model.model.norm.weight.fill_(torch.nan)
    with pytest.raises(
        GeneratorFailed, match=r"^[^\n]*model-0: the model's logits are NaN: check its weights$"
    ):
        await make(model).generate(context([10]), SAMPLED)


def test_a_model_that_is_too_large_to_be_converted_is_one_line(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel would end the process, or another one, in the middle."""
    monkeypatch.setattr(machine, "free_memory", lambda: 10_000_000)
    with pytest.raises(
        GeneratorFailed, match=r"^converting model-0 needs [0-9]+ MB of memory, and 10 MB are free: [^\n]*$"
    ):
        make()


async def test_another_architecture_is_one_line(make: Make) -> None:
    with pytest.raises(
        GeneratorFailed,
        match=r"^[^\n]* is no plain Llama, Qwen 2, Qwen 3 or Phi 3 model, [^\n]*--generator transformers$",
    ):
        make(tiny_phi3(sliding_window=64))


@pytest.mark.parametrize("name", ["type", "rope_type"])
def test_scaled_positions_are_refused_under_either_name(name: str, tmp_path: Path) -> None:
    config: dict[str, Any] = {"model_type": "llama", "rope_scaling": {name: "linear", "factor": 4.0}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(GeneratorFailed, match="is no plain Llama, Qwen 2"):
        read_config(tmp_path)
    config["rope_scaling"] = {name: "default"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert read_config(tmp_path) == config


async def test_an_adapter_is_merged_once(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The numbers are those of the weights that PEFT merges."""
    base, folder = small_llama(), tmp_path / "adapter"
    make(base)
    tuned = adapted(base, tmp_path / "model-0", folder, "q_proj", "down_proj")
    merged, (ids,) = tuned.merge_and_unload(), prompts(40)
    for times in (1, 2):
        generator = OpenvinoGenerator.load(str(folder), dtype="float32", threads=1, cache_bytes=8 << 20)
        completion = await generator.generate(context(ids), SAMPLED)
        assert completion.logprobs == pytest.approx(
            exact_logprobs(merged, ids, completion).tolist(), abs=CLOSE
        )
        await generator.close()
        assert sum("converting adapter" in line for line in caplog.messages) == 1, times


async def test_an_adapter_may_name_a_base_of_the_hub(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The adapter has no tokenizer of its own."""
    base = small_llama()
    make(base)
    snapshot(tmp_path / "model-0", "owner/name", tmp_path / "hub", monkeypatch)
    adapted(base, "owner/name", tmp_path / "adapter", "q_proj")
    generator = OpenvinoGenerator.load(str(tmp_path / "adapter"), threads=1, cache_bytes=8 << 20)
    assert sampled(await generator.generate(context([5]), Sampling(max_tokens=3))) == 3
    await generator.close()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("model.safetensors", (8 << 30).to_bytes(8, "little") + b"{}"),
        ("model.safetensors", (4).to_bytes(8, "little") + b"[[[["),
        ("model.safetensors", (100_000).to_bytes(8, "little") + b"[" * 100_000),
        ("model.safetensors", b""),
        ("config.json", b"[]"),
        ("config.json", b'{"model_type": "llama"}'),
        ("config.json", None),
        ("generation_config.json", b"[]"),
        ("generation_config.json", b'{"eos_token_id": "all"}'),
        ("generation_config.json", b"[" * 100_000),
        ("tokenizer.json", b"{}"),
        ("tokenizer_config.json", b"torn"),
        ("chat_template.jinja", b"{% for message in messages %}"),
    ],
)
def test_a_damaged_model_is_one_line(file: str, content: bytes | None, make: Make) -> None:
    """Without content, the number of positions is one that no memory has room for."""
    folder = Path(make().model)
    if content is None:
        config = json.loads((folder / file).read_text())
        content = json.dumps(config | {"max_position_embeddings": 10**15}).encode()
    (folder / file).write_bytes(content)
    with pytest.raises(GeneratorFailed, match=r"^cannot load the model [^\n]+$"):
        OpenvinoGenerator.load(str(folder), threads=1, cache_bytes=8 << 20)


def test_a_graph_that_cannot_be_compiled_is_one_line(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make(tiny_llama()).model
    files = list((Path(os.environ["XDG_CACHE_HOME"]) / "tirjudge" / "models").glob("*/model.bin"))
    for file in files:
        file.write_bytes(b"")
    assert files
    with pytest.raises(GeneratorFailed, match=r"^cannot load the [^\n]+$"):
        OpenvinoGenerator.load(folder, threads=1, cache_bytes=8 << 20)


@pytest.mark.parametrize("module", ["lm_head", "embed_tokens"])
def test_an_adapter_of_other_parts_than_the_layers_is_refused(
    module: str, make: Make, tmp_path: Path
) -> None:
    """The graph would leave those parts out, and no number would show it."""
    base = small_llama()
    make(base)
    adapted(base, tmp_path / "model-0", tmp_path / "adapter", "q_proj", module)
    with pytest.raises(GeneratorFailed, match=r"^[^\n]*only the generator transformers takes$"):
        OpenvinoGenerator.load(str(tmp_path / "adapter"), threads=1, cache_bytes=8 << 20)


SIGNALLED = """
import os, signal, sys
from tirjudge.generation.local.openvino import OpenvinoGenerator

open_ones = [OpenvinoGenerator.load(sys.argv[1], threads=1, cache_bytes=8 << 20) for _ in range(2)]
while open_ones:
    open_ones.pop(0)
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.slow
def test_ctrl_c_works_after_generators_have_gone(make: Make, tmp_path: Path) -> None:
    make()
    command = [sys.executable, "-X", "faulthandler", "-c", SIGNALLED, str(tmp_path / "model-0")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "interrupted\n"
