"""Tokens per second of the trainer's passes with padded micro-batches, and packed under a token budget.

    OMP_NUM_THREADS=1 python -m benchmarks.packing

Model: Qwen3's architecture with random weights, seed 0. Rows: prompts and responses of lognormal lengths, an
eighth of those that the recipes' plan assumes (1,500 and 600 tokens in the mean, responses of at most 8,192).
Both forms make TRL's forward pass with its fused output layer and score the response only. Tokens are counted
without padding, so that the rates can be compared; each is the median of `--repeats` runs, after one that is
not counted. The largest difference between the logprobs of the two forms is printed too.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from trl.trainer.utils import add_fused_lm_head

from benchmarks.generation_throughput import miniature
from tirjudge_training.cpu_forward import IGNORED
from tirjudge_training.distributed.processes import ALONE
from tirjudge_training.rl.packing import packs, score_packed

PROMPT, RESPONSE, LONGEST = 1500 // 8, 600 // 8, 8192 // 8
SPREAD = 0.8
"""The standard deviation of the logarithm of a response's length; prompts have half of it."""

Row = tuple[list[int], int]
"""Token ids, and the length of the prompt among them."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--micro-batch", type=int, default=4)
    parser.add_argument("--budget", type=int, default=1024, help="tokens of a packed pass")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    model, rows = network(), made_rows(options.rows)
    tokens = sum(len(ids) for ids, _ in rows)
    batches = [rows[i : i + options.micro_batch] for i in range(0, len(rows), options.micro_batch)]
    bins = [[rows[n] for n in pack] for pack in packs([len(ids) for ids, _ in rows], options.budget)]
    print(
        f"{model.num_parameters():,} parameters, {len(rows)} rows, {tokens:,} tokens, budget {options.budget}"
    )
    forms = {"padded": (batches, padded), "packed": (bins, packed)}
    for name, train in (("loss and gradients", True), ("without gradients", False)):
        rates = {}
        for form, (parts, score) in forms.items():
            # Without gradients TRL pads all rows of a process to the longest.
            wide = max(len(ids) for ids, _ in rows) if form == "padded" and not train else 0
            seconds = timed(partial(passes, model, parts, score, wide, train), options.repeats)
            fed = sum(len(part) * max(wide, *(len(ids) for ids, _ in part)) for part in parts)
            rates[form] = tokens / seconds
            fed = tokens if form == "packed" else fed
            print(f"{name}, {form}: {rates[form]:,.0f} tokens/s, {fed:,} tokens fed")
        print(f"{name}: packed is {rates['packed'] / rates['padded']:.2f} times as fast")
    print(f"largest difference of a logprob: {difference(model, rows):.1e}")


def network() -> Any:
    model = miniature(max_position_embeddings=4096, tie_word_embeddings=False)
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    return model


def made_rows(count: int) -> list[Row]:
    """Return rows of random tokens, always the same ones."""
    draw = random.Random(0)

    def length(mean: float, spread: float) -> int:
        # exp(mu + sigma^2 / 2) is the mean of a lognormal distribution.
        return round(mean / 2.718281828 ** (spread**2 / 2) * draw.lognormvariate(0, spread))

    rows = []
    for _ in range(count):
        prompt = max(1, length(PROMPT, SPREAD / 2))
        response = min(LONGEST, max(1, length(RESPONSE, SPREAD)))
        rows.append(([draw.randrange(1024) for _ in range(prompt + response)], prompt))
    return rows


def tensors(rows: Sequence[Row], wide: int = 0) -> tuple[Any, Any, Any]:
    """Return ids, attention mask and scored tokens, all `[rows, longest row or wide]`."""
    longest = max(wide, *(len(ids) for ids, _ in rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row, _ in rows])
    attention = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row, _ in rows])
    places = torch.arange(longest)[None] >= torch.tensor([[prompt] for _, prompt in rows])
    return ids, attention, places & attention.bool()


def padded(model: Any, rows: Sequence[Row], wide: int) -> Any:
    ids, attention, scored = tensors(rows, wide)
    labels = ids.masked_fill(~scored, IGNORED)
    return model(input_ids=ids, attention_mask=attention, labels=labels, fused_lm_head=True).log_probs


def packed(model: Any, rows: Sequence[Row], wide: int) -> Any:
    return score_packed(model, *tensors(rows, wide), budget=None, processes=ALONE)[0]


def passes(
    model: Any, parts: Sequence[Sequence[Row]], score: Callable[..., Any], wide: int, train: bool
) -> None:
    for part in parts:
        with torch.set_grad_enabled(train):
            logprobs = score(model, part, wide)
        if train:
            (-logprobs.sum()).backward()
    model.zero_grad()


def timed(work: Callable[[], None], repeats: int) -> float:
    return statistics.median(list(_seconds(work, repeats))[1:])


def _seconds(work: Callable[[], None], repeats: int) -> Iterator[float]:
    for _ in range(repeats + 1):
        began = time.process_time()  # CPU seconds: another process must not count
        work()
        yield time.process_time() - began


def difference(model: Any, rows: Sequence[Row]) -> float:
    with torch.no_grad():
        pad, pack = padded(model, rows, 0), packed(model, rows, 0)[:, 1:]
    return float((pad - pack).abs().max())


if __name__ == "__main__":
    main()
