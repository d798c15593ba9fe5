"""An endpoint's token ids and logprobs (tier `completions`) compared with transformers' own.

Start a server, for example vLLM, and give this script the same model folder:

    vllm serve FOLDER --dtype float32 --logprobs-mode processed_logprobs
    python -m benchmarks.endpoint_logprobs FOLDER --base-url http://127.0.0.1:8000/v1
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from tirjudge.generation.base import Sampling
from tirjudge.generation.endpoint.openai import OpenAIGenerator
from tirjudge_environments import Completion, Context, Message, Prompt

PROMPT = Prompt(messages=(Message("user", "Which of two answers is better?"),))


def main(
    folder: Annotated[str, typer.Argument(help="The model that the endpoint serves, with its tokenizer.")],
    base_url: Annotated[str, typer.Option(help="The endpoint's address.")] = "http://127.0.0.1:8000/v1",
    model: Annotated[
        str, typer.Option(help="The model's name at the endpoint; the default is the folder.")
    ] = "",
    tokens: Annotated[int, typer.Option(help="New tokens per completion.")] = 40,
) -> None:
    """Print the largest difference of a logprob by temperature, and whether the greedy tokens agree."""
    import torch
    from transformers import AutoModelForCausalLM

    network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    for temperature in (0.0, 0.7, 1.0):
        ids, completion = asyncio.run(_completion(folder, base_url, model or folder, temperature, tokens))
        differences, greedy = _compared(network, ids, completion, temperature or 1.0)
        print(f"temperature {temperature}: n = {len(completion.token_ids or ())}, ", end="")
        print(f"largest difference {differences:.1e}" + ("" if temperature else f", greedy: {greedy}"))


async def _completion(
    folder: str, base_url: str, model: str, temperature: float, tokens: int
) -> tuple[tuple[int, ...], Completion]:
    generator = OpenAIGenerator(model, base_url, tokenizer=folder)
    assert generator.encoder is not None
    ids = tuple(generator.encoder.prompt(PROMPT))
    sampling = Sampling(temperature=temperature, max_tokens=tokens, seed=7)
    try:
        return ids, await generator.generate(Context(PROMPT, (), ids), sampling)
    finally:
        await generator.close()


def _compared(
    network: Any, ids: tuple[int, ...], completion: Completion, temperature: float
) -> tuple[float, bool]:
    """Return the largest difference of a token's logprob, and whether every token is the likeliest."""
    import torch

    written = torch.tensor(completion.token_ids)
    with torch.no_grad():
        logits = network(torch.tensor([[*ids, *written.tolist()]])).logits[0, len(ids) - 1 : -1]
    logprobs = (logits / temperature).log_softmax(-1).gather(1, written[:, None])[:, 0]
    difference = (logprobs - torch.tensor(completion.logprobs)).abs().max()
    return float(difference), bool((logits.argmax(-1) == written).all())


if __name__ == "__main__":
    typer.run(main)
