"""Logprobs and gradients of the miniature: GPU against CPU, sampler against trainer, forms of passes."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from benchmarks.gpu_check.findings import MINIATURE, Findings, device
from tirjudge.generation import Sampling
from tirjudge.generation.local.transformers import TransformersGenerator
from tirjudge_environments import Context, Message, Prompt
from tirjudge_training.cpu_forward import IGNORED
from tirjudge_training.distributed.processes import ALONE
from tirjudge_training.model_folder import load
from tirjudge_training.rl.packed_attention import can_pack, pack_rows
from tirjudge_training.rl.packing import score_packed

if TYPE_CHECKING:
    from torch import Tensor

PROMPTS = [f"Which answer has {words} words?" for words in range(3, 11)]
SAMPLES = 8


@dataclass(frozen=True, slots=True)
class Batch:
    """Sampled rows `[rows, tokens]`, padded on the right."""

    ids: Tensor
    attention: Tensor
    scored: Tensor
    sampled: Tensor
    """The sampler's logprobs of the scored tokens."""


def check(findings: Findings) -> None:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    for autocast in (None, "bfloat16"):
        batch = sample(findings, autocast)
        wanted = batch.scored.bool()
        exact, slope = scores(batch, "cpu", cast=False, form="padded")
        kinds = product((False, True), ("padded", "packed", "plain output layer"))
        for cast, form in kinds:
            logprobs, found = scores(batch, device(), cast=cast, form=form)
            to_sampler, to_cpu = ((logprobs - other)[wanted].abs() for other in (batch.sampled, exact))
            findings.note(
                f"sampler in {autocast or 'float32'}, trainer in {'bfloat16' if cast else 'float32'}, {form}",
                most_from_sampler=to_sampler.max().item(),
                mean_from_sampler=to_sampler.mean().item(),
                most_from_cpu=to_cpu.max().item(),
                gradient_error=((found - slope).norm() / slope.norm()).item(),
            )


def sample(findings: Findings, autocast: str | None) -> Batch:
    """Sample 8 answers to each of 8 prompts at temperature 1."""
    import torch

    model, tokenizer = load(MINIATURE, device())
    generator = TransformersGenerator(model, tokenizer, name="miniature", autocast=autocast)
    contexts = []
    for text in PROMPTS:
        prompt = Prompt(messages=(Message("user", text),))
        contexts += [Context(prompt, (), ids=tuple(generator.encoder.prompt(prompt)))] * SAMPLES

    async def sampled() -> list[Any]:
        found = await asyncio.gather(
            *(
                generator.generate(context, Sampling(temperature=1.0, max_tokens=200, seed=number))
                for number, context in enumerate(contexts)
            )
        )
        await generator.close()
        return found

    start = time.perf_counter()
    answers = asyncio.run(sampled())
    tokens = sum(len(answer.token_ids) for answer in answers)
    seconds = time.perf_counter() - start
    findings.note(f"sampled in {autocast or 'float32'}", tokens=tokens, per_second=tokens / seconds)
    rows = [(c.ids, a.token_ids, a.logprobs) for c, a in zip(contexts, answers, strict=True) if a.token_ids]
    width = max(len(asked) + len(written) for asked, written, _ in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    attention, scored, logprobs = torch.zeros_like(ids), torch.zeros_like(ids), torch.zeros(ids.shape)
    for number, (asked, written, drawn) in enumerate(rows):
        end = len(asked) + len(written)
        ids[number, :end] = torch.tensor([*asked, *written])
        attention[number, :end] = 1
        scored[number, len(asked) : end] = 1
        logprobs[number, len(asked) : end] = torch.tensor(drawn)
    return Batch(ids, attention, scored, logprobs)


def scores(batch: Batch, place: str, *, cast: bool, form: str) -> tuple[Tensor, Tensor]:
    """Return the logprobs `[rows, tokens]` of a pass of the trainer, and the gradient of a sum of them."""
    import torch
    from trl.trainer.utils import add_fused_lm_head

    model, _ = load(MINIATURE, place)
    model.train()
    if form != "plain output layer":
        add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    ids, attention, scored = (one.to(place) for one in (batch.ids, batch.attention, batch.scored))
    with torch.autocast(place, dtype=torch.bfloat16, enabled=cast):
        if form == "packed":
            if can_pack(model):
                pack_rows(model)
            logprobs, _ = score_packed(model, ids, attention, scored, budget=4096, processes=ALONE)
        elif form == "padded":
            labels = ids.masked_fill(scored == 0, IGNORED)
            found = model(
                input_ids=ids, attention_mask=attention, labels=labels, fused_lm_head=True
            ).log_probs
            logprobs = torch.cat([torch.zeros_like(found[:, :1]), found], 1)
        else:
            logits = model(input_ids=ids, attention_mask=attention).logits[:, :-1].float()
            found = logits.log_softmax(2).gather(2, ids[:, 1:, None])[:, :, 0]
            logprobs = torch.cat([torch.zeros_like(found[:, :1]), found], 1)
    wanted = scored.bool()
    weights = torch.linspace(-1, 1, int(wanted.sum())).to(place)
    (logprobs[wanted].float() * weights).sum().backward()
    gradient = torch.cat([weight.grad.float().cpu().flatten() for weight in model.parameters()])
    return logprobs.detach().float().cpu(), gradient
