"""Tokens per second of tirjudge's continuous batching, compared with transformers' two generators.

    OMP_NUM_THREADS=1 python -m benchmarks.generation_throughput
    OMP_NUM_THREADS=1 python -m benchmarks.generation_throughput --paged

All run the same model in the same process: the miniature's shape (0.92 M parameters), random weights,
seed 0. Each figure is the median of `--repeats` runs, after one that is not counted.

The first form samples, and compares with `generate` in the setting that suits `generate` best: one
left-padded batch whose rows all end together, without stop strings and logprobs.

`--paged` decodes greedily and compares with `generate_batch`, transformers' continuous batching over a paged
cache, with 1, 16 and 64 rows of different prompts. Its pages are sized for the workload (with its defaults
the cache fills half of the memory, and one row of 100 tokens takes about 20 seconds on a CPU), its manager is
kept between the runs, and it returns logprobs, as tirjudge's does. The tokens of the two are compared too.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig, Qwen3Config, Qwen3ForCausalLM

from tests.tirjudge.tiny_models import bpe_tokenizer
from tirjudge.generation import Sampling
from tirjudge.generation.local.transformers import TransformersGenerator
from tirjudge_environments import Context, Prompt

STOP = ("\n```\n", "\n```output")
PAGE = 32
"""Positions per page of transformers' cache; for 16 rows, 32 was faster than 256."""

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


def speed(generate: Generate) -> tuple[float, Tokens]:
    """Return new tokens per second, and the tokens."""
    started = time.perf_counter()
    rows = generate()
    return sum(map(len, rows)) / (time.perf_counter() - started), rows


def compare(own: Generate, other: Generate, repeats: int, name: str) -> tuple[str, int]:
    """Return a line of medians, and the number of rows with the same tokens in the last run."""
    pairs = []
    for repeat in range(repeats + 1):
        # The two alternate, so that other load on the machine affects both alike.
        (own_rate, own_rows), (other_rate, other_rows) = speed(own), speed(other)
        if repeat:  # the first pair warms up
            pairs.append((own_rate, other_rate))
    ratio = statistics.median(own_rate / other_rate for own_rate, other_rate in pairs)
    own_rate, other_rate = (statistics.median(column) for column in zip(*pairs, strict=True))
    same = sum(one == another for one, another in zip(own_rows, other_rows, strict=True))
    line = (
        f"median of {len(pairs)}: {own_rate:.0f} tok/s tirjudge, {other_rate:.0f} tok/s {name}, "
        f"ratio {ratio:.2f}"
    )
    return line, same


def main() -> None:
    """Print one line per comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--paged", action="store_true", help="compare with generate_batch, with greedy decoding"
    )
    parser.add_argument("--rows", type=int, default=128, help="rows of the sampled form")
    parser.add_argument("--group", type=int, default=8, help="rows that share a prompt")
    parser.add_argument("--prompt", type=int, default=90, help="tokens of the longest prompt")
    parser.add_argument("--new", type=int, default=100, help="new tokens per row")
    parser.add_argument("--repeats", type=int, default=5, help="measured runs of each generator")
    options = parser.parse_args()
    torch.set_num_threads(1)
    # It would log a line per run about the manager that is kept.
    logging.getLogger("ContinuousBatchingLogger").setLevel(logging.ERROR)
    rng = random.Random(0)

    def prompts(count: int) -> Tokens:
        lengths = [rng.randint(options.prompt * 2 // 3, options.prompt) for _ in range(count)]
        return [[rng.randrange(3, 1024) for _ in range(length)] for length in lengths]

    if options.paged:
        for count in (1, 16, 64):
            # A new model each time: it keeps one manager, whose pages are sized by the first call.
            model, rows = miniature(), prompts(count)
            line, same = compare(
                lambda model=model, rows=rows: continuous(model, rows, options.new, 0.0, ()),  # type: ignore[misc]
                lambda model=model, rows=rows: paged(model, rows, options.new),  # type: ignore[misc]
                options.repeats,
                "generate_batch",
            )
            model.destroy_cached_continuous_batching_manager()
            print(f"{line} ({count} rows, {options.new} new tokens each; {same} rows have the same tokens)")
        return
    model = miniature()
    rows = [ids for ids in prompts(options.rows // options.group) for _ in range(options.group)]
    line, _ = compare(
        lambda: continuous(model, rows, options.new, 1.0),
        lambda: padded(model, rows, options.new),
        options.repeats,
        "generate",
    )
    print(
        f"{line} ({len(rows)} rows in groups of {options.group}, prompts up to {options.prompt} tokens, "
        f"{options.new} new ones each)"
    )


if __name__ == "__main__":
    main()
