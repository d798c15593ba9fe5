"""Tokens per second of tirjudge's continuous batching, compared with transformers' two generators.

    OMP_NUM_THREADS=1 python -m benchmarks.generation_throughput
    OMP_NUM_THREADS=1 python -m benchmarks.generation_throughput --only 'generation/paged/*'

All run the same model in the same process: the miniature's shape (0.92 M parameters), random weights,
seed 0.

`generation/generate` samples, and compares with `generate` in the setting that suits `generate` best: one
left-padded batch whose rows all end together, without stop strings and logprobs.

`generation/paged/ROWS` decodes greedily and compares with `generate_batch`, transformers' continuous
batching over a paged cache, with rows of different prompts. Its pages are sized for the workload (with its
defaults the cache fills half of the memory, and one row of 100 tokens takes about 20 seconds on a CPU), its
manager is kept between the runs, and it returns logprobs, as tirjudge's does. The rows with the same tokens
are counted.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig, Qwen3Config, Qwen3ForCausalLM

from benchmarks import peers
from benchmarks.peers import Comparison, Limit, Run, Unavailable
from tests.tirjudge.tiny_models import bpe_tokenizer
from tirjudge.generation import Sampling
from tirjudge.generation.local.transformers import TransformersGenerator
from tirjudge_environments import Context, Prompt

STOP = ("\n```\n", "\n```output")
PAGE = 32
"""Positions per page of transformers' cache; for 16 rows, 32 was faster than 256."""

SAMPLED = "generation/generate"

Tokens = list[list[int]]
Generate = Callable[[], Tokens]


def miniature(**changes: Any) -> Any:
    """Return a model of the miniature's shape with random weights, always the same ones."""
    torch.manual_seed(0)
    shape = {
        "vocab_size": 1024,
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "tie_word_embeddings": True,
        "max_position_embeddings": 2048,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": 0,
    }
    config = Qwen3Config(**shape | changes)
    return Qwen3ForCausalLM(config).eval()


def continuous(
    model: Any, prompts: Tokens, new: int, temperature: float, stop: tuple[str, ...] = STOP
) -> Tokens:
    """Return the new tokens of every row, from tirjudge's generator; each row has a seed of its own."""
    generator = TransformersGenerator(
        model, bpe_tokenizer(*STOP, vocab_size=300), name="miniature", max_rows=len(prompts)
    )

    async def run() -> Tokens:
        requests = [
            generator.generate(
                Context(Prompt(messages=(), stop=stop), (), tuple(ids)),
                Sampling(temperature=temperature, max_tokens=new, seed=seed),
            )
            for seed, ids in enumerate(prompts)
        ]
        completions = await asyncio.gather(*requests)
        await generator.close()
        return [list(completion.token_ids or ()) for completion in completions]

    return asyncio.run(run())


def padded(model: Any, prompts: Tokens, new: int) -> Tokens:
    """Return the new tokens of every row, from transformers' `generate` on one left-padded batch."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(row)) + row for row in prompts])
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in prompts])
    with torch.inference_mode():
        out = model.generate(ids, attention_mask=mask, do_sample=True, max_new_tokens=new, top_k=0)
    rows: Tokens = out[:, longest:].tolist()
    return rows


def paged(model: Any, prompts: Tokens, new: int) -> Tokens:
    """Return the new tokens of every row, from transformers' continuous batching."""
    pages = sum(-(-(len(row) + new) // PAGE) for row in prompts)
    config = ContinuousBatchingConfig(
        page_size=PAGE, num_blocks=pages + 2, max_batch_tokens=256, return_logprobs=True
    )
    greedy = GenerationConfig(do_sample=False, max_new_tokens=new, eos_token_id=-1, pad_token_id=0)
    outputs = model.generate_batch(
        prompts, generation_config=greedy, continuous_batching_config=config, persistent_manager=True
    )
    return [output.generated_tokens for output in outputs.values()]


def measured(generate: Generate, returned: list[Tokens]) -> Run:
    """Measure new tokens per second, and append the tokens to those that were returned before."""
    started = time.perf_counter()
    rows = generate()
    seconds = time.perf_counter() - started
    returned.append(rows)
    return Run(sum(map(len, rows)) / seconds)


def compared(name: str, peer: str, rows: Tokens, new: int, own: Generate, other: Generate) -> Comparison:
    """Return a comparison in which both generate, and the rows with equal tokens are counted."""
    ours: list[Tokens] = []
    theirs: list[Tokens] = []

    async def measure_own() -> Run:
        return await asyncio.to_thread(measured, own, ours)

    async def measure_peer() -> Run:
        run = await asyncio.to_thread(measured, other, theirs)
        same = sum(one == another for one, another in zip(ours[-1], theirs[-1], strict=True))
        return Run(run.rate, {"rows with our tokens": float(same)})

    return Comparison(
        name=name,
        peer=peer,
        unit="tokens/s",
        measure_own=measure_own,
        measure_peer=measure_peer,
        limit=_limit(rows, new),
    )


def _limit(rows: Tokens, new: int) -> Limit:
    """Return the rate of the matrix products alone, as many rows at once as there are."""
    model = miniature()
    parameters = model.num_parameters()
    wide, tall = torch.ones(max(len(rows), 1), 1024), torch.ones(1024, 1024)
    seconds = []
    for _ in range(20):
        started = time.process_time()
        wide @ tall
        seconds.append(time.process_time() - started)
    each_row = min(seconds) * parameters / tall.numel() / len(rows)
    why = f"matrix products of {len(rows)} rows with {parameters:,} weights, nothing else"
    return Limit(rate=1 / each_row, why=why)


async def comparisons(
    names: Sequence[str], options: argparse.Namespace
) -> AsyncIterator[Comparison | Unavailable]:
    """Yield the comparisons; each has a model and prompts of its own."""
    torch.set_num_threads(1)
    # It would log a line per run about the manager that is kept.
    logging.getLogger("ContinuousBatchingLogger").setLevel(logging.ERROR)
    rng = random.Random(0)

    def prompts(count: int) -> Tokens:
        lengths = [rng.randint(options.prompt * 2 // 3, options.prompt) for _ in range(count)]
        return [[rng.randrange(3, 1024) for _ in range(length)] for length in lengths]

    new, transformers = options.new, f"transformers {version('transformers')}"
    for name in names:
        model = miniature()
        if name == SAMPLED:
            rows = [ids for ids in prompts(options.rows // options.group) for _ in range(options.group)]
            yield compared(
                name,
                f"{transformers}, generate",
                rows,
                new,
                partial(continuous, model, rows, new, 1.0),
                partial(padded, model, rows, new),
            )
            continue
        rows = prompts(int(name.rpartition("/")[2]))
        yield compared(
            name,
            f"{transformers}, continuous batching",
            rows,
            new,
            partial(continuous, model, rows, new, 0.0, ()),
            partial(paged, model, rows, new),
        )
        model.destroy_cached_continuous_batching_manager()


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=128, help="rows of the sampled comparison")
    parser.add_argument("--group", type=int, default=8, help="its rows that share a prompt")
    parser.add_argument("--prompt", type=int, default=90, help="tokens of the longest prompt")
    parser.add_argument("--new", type=int, default=100, help="new tokens per row")


SUITE = peers.Suite(
    names=[SAMPLED, *(f"generation/paged/{n}" for n in (1, 16, 64))], open=comparisons, options=_options
)

if __name__ == "__main__":
    raise SystemExit(peers.main(SUITE, __doc__))
