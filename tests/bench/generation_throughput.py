"""Tokens a second of the continuous batch, and of transformers' own `generate`, on the same model in one run.

    OMP_NUM_THREADS=1 python -m tests.bench.generation_throughput

The model has the miniature's shape (0.92 M parameters) and random weights. `generate` gets what suits it
best: one left-padded batch whose rows all end together, no stop strings, no logprobs.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from tests.tirjudge.tiny_models import bpe_tokenizer
from tirjudge.generation import Sampling
from tirjudge.generation.local.transformers import TransformersGenerator
from tirjudge_environments import Context, Prompt

STOP = ("\n```\n", "\n```output")


def miniature(**changes: Any) -> Any:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=1024,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        tie_word_embeddings=True,
        max_position_embeddings=2048,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
        **changes,
    )
    return Qwen3ForCausalLM(config).eval()


def ours(model: Any, prompts: list[list[int]], new: int) -> float:
    """Tokens a second: every row its own seed, stop strings looked for, logprobs kept."""
    generator = TransformersGenerator(
        model, bpe_tokenizer(*STOP, vocab_size=300), name="miniature", max_rows=len(prompts)
    )

    async def run() -> int:
        requests = [
            generator.generate(
                Context(Prompt(messages=(), stop=STOP), (), tuple(ids)),
                Sampling(temperature=1.0, max_tokens=new, seed=seed),
            )
            for seed, ids in enumerate(prompts)
        ]
        completions = await asyncio.gather(*requests)
        await generator.close()
        return sum(len(completion.token_ids or ()) for completion in completions)

    started = time.perf_counter()
    return asyncio.run(run()) / (time.perf_counter() - started)


def theirs(model: Any, prompts: list[list[int]], new: int) -> float:
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(row)) + row for row in prompts])
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in prompts])
    started = time.perf_counter()
    with torch.inference_mode():
        out = model.generate(ids, attention_mask=mask, do_sample=True, max_new_tokens=new, top_k=0)
    return len(prompts) * (out.shape[1] - longest) / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--group", type=int, default=8, help="rows that share a prompt")
    parser.add_argument("--prompt", type=int, default=90, help="tokens of the longest prompt")
    parser.add_argument("--new", type=int, default=100, help="new tokens a row")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    draw = random.Random(0)
    lengths = [
        draw.randint(options.prompt * 2 // 3, options.prompt) for _ in range(options.rows // options.group)
    ]
    prompts = [[draw.randrange(3, 1024) for _ in range(length)] for length in lengths]
    rows = [ids for ids in prompts for _ in range(options.group)]
    model = miniature()
    pairs = []
    for repeat in range(options.repeats + 1):
        pair = ours(model, rows, options.new), theirs(model, rows, options.new)
        if repeat:
            pairs.append(pair)
            print(f"{pair[0]:8.0f} tok/s here  {pair[1]:8.0f} tok/s generate  ratio {pair[0] / pair[1]:.2f}")
    ratio = statistics.median(here / there for here, there in pairs)
    here, there = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(
        f"median of {len(pairs)}: {here:.0f} tok/s here, {there:.0f} tok/s generate, ratio {ratio:.2f} "
        f"({len(rows)} rows in groups of {options.group}, prompts up to {options.prompt} tokens, "
        f"{options.new} new ones each)"
    )


if __name__ == "__main__":
    main()
