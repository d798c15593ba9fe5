"""The forward pass of training on a CPU: logits only where a token is learned, shared prompts only once.

TRL scores every position on a CPU, and most of a small model's time then goes into its vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import wraps
from types import MethodType
from typing import TYPE_CHECKING, Any

from tirjudge.generation.local.transformers import layer_kinds
from tirjudge_training.distributed.processes import Sharding

if TYPE_CHECKING:
    from torch import Tensor

IGNORED = -100
"""The label of a token that is not scored."""
WORTHWHILE = 0.1
"""The least share of a batch's tokens that sharing prompts must save; below it one pass is faster."""
PART = 64
"""Tokens whose logits are in memory at the same time, if the output layer is not trained."""
SCALED = (
    "final_logit_softcapping",
    "logit_scale",
    "output_multiplier",
    "lm_head_multiplier",
    "logits_scaling",
)
"""Settings of models that change their logits, which are left to TRL."""


def score_learned_tokens(
    model: Any, *, temperature: float = 1.0, differentiable_entropy: bool = False
) -> None:
    """Replace the forward pass that a TRL trainer gave its model by a faster one, if it trains on a CPU.

    Nothing is replaced on a GPU, where TRL has kernels for it, nor for sharded weights. `temperature` divides
    the logits, and `differentiable_entropy` gives the entropy a gradient, which an entropy bonus needs.
    """
    config = model.config.get_text_config()
    scaled = any(getattr(config, name, None) is not None for name in SCALED)
    if scaled or model.device.type != "cpu" or Sharding.launched() is not Sharding.NONE:
        return
    replaced = model.forward

    @wraps(replaced)
    def forward(self: Any, *args: Any, fused_lm_head: bool = False, labels: Any = None, **kwargs: Any) -> Any:
        ids, attention = kwargs.get("input_ids"), kwargs.get("attention_mask")
        # A mixture of experts may want a loss of its router, which only TRL's forward pass computes.
        routed = kwargs.get("output_router_logits") or getattr(config, "output_router_logits", False)
        if not fused_lm_head or args or routed or ids is None or attention is None or labels is None:
            return replaced(*args, fused_lm_head=fused_lm_head, labels=labels, **kwargs)
        return _score(self, ids, attention, labels, temperature, differentiable_entropy)

    model.forward = MethodType(forward, model)
    model.shares_prompts = True
    for layer in filter(_has_plain_adapter, model.modules()):
        layer.forward = MethodType(_adapted, layer)


def shares_prompts(model: Any) -> bool:
    """Return True if `score_learned_tokens` replaced the model's forward pass."""
    return getattr(model, "shares_prompts", False) is True


def _has_plain_adapter(layer: Any) -> bool:
    """Return True for a linear layer with one LoRA adapter, without dropout and not of a variant."""
    import torch

    return (
        type(getattr(layer, "base_layer", None)) is torch.nn.Linear
        and list(getattr(layer, "lora_A", ())) == list(layer.active_adapters)
        and len(layer.lora_A) == 1
        and not layer.lora_variant
        and all(isinstance(dropout, torch.nn.Identity) for dropout in layer.lora_dropout.values())
    )


def _adapted(self: Any, inputs: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Add the adapter in the type of the frozen weights.

    PEFT casts the input to float32 and the sum back, which takes a third of the time of a small model.
    """
    import torch

    if self.disable_adapters or self.merged or args or kwargs:
        return type(self).forward(self, inputs, *args, **kwargs)
    [name] = self.lora_A
    outputs = self.base_layer(inputs)
    # Rounded in every pass: a fused optimizer changes weights without a new version, so that no rounded copy
    # can be trusted after a step.
    down = self.lora_A[name].weight.to(outputs.dtype)
    up = (self.lora_B[name].weight * self.scaling[name]).to(outputs.dtype).t()
    low = torch.nn.functional.linear(inputs, down).flatten(0, -2)
    return torch.addmm(outputs.flatten(0, -2), low, up).view(outputs.shape)


def _score(
    model: Any, ids: Tensor, attention: Tensor, labels: Tensor, temperature: float, differentiable: bool
) -> Any:
    """Return TRL's output for a batch `[rows, tokens]` that is padded on the right."""
    from trl.trainer.utils import FusedCausalLMOutput

    following = labels[:, 1:]
    mask = following != IGNORED
    hidden = _hidden(model, ids, attention, mask)
    wanted = following[mask]
    head = model.get_output_embeddings()
    frozen = not (differentiable or any(weight.requires_grad for weight in head.parameters()))
    log_probs, entropy, top = (
        _scored_in_parts(head, hidden, wanted, temperature)
        if frozen
        else _scored(head, hidden, wanted, temperature, differentiable)
    )

    def placed(values: Tensor) -> Tensor:
        # `masked_scatter` keeps the output connected to the model even without a learned token.
        return values.new_zeros(mask.shape).masked_scatter(mask, values)

    spread = placed(log_probs)
    return FusedCausalLMOutput(
        loss=-spread.sum() / mask.sum().clamp(min=1),
        log_probs=spread,
        entropy=placed(entropy),
        is_top1=placed(top),
        label_mask=mask,
    )


def _scored(
    head: Any, hidden: Tensor, wanted: Tensor, temperature: float, differentiable: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return logprobs and entropies of the wanted tokens, and whether each is the most likely one."""
    import torch

    logits = head(hidden).float() / temperature
    # Relative to the largest logit, as in a softmax: large logits would cost several bits of the difference.
    logits = logits.sub_(logits.detach().amax(1, keepdim=True)) if len(logits) else logits
    # Subtracting the log-sum keeps one matrix of logits for the backward pass, and no matrix of logprobs.
    log_sum = logits.logsumexp(1)
    log_probs = logits.gather(1, wanted[:, None])[:, 0] - log_sum
    with torch.set_grad_enabled(differentiable and torch.is_grad_enabled()):
        entropy = log_sum - (logits.softmax(1) * logits).sum(1)
        top = logits.argmax(1) == wanted
    return log_probs, entropy, top


def _scored_in_parts(
    head: Any, hidden: Tensor, wanted: Tensor, temperature: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what `_scored` returns, for an output layer that is not trained.

    The gradient of each logprob with respect to its hidden state is computed here, so that no matrix over the
    vocabulary is kept; the allocator would ask the system for new memory for each of these matrices.
    """
    import torch

    states, learning = hidden.detach(), torch.is_grad_enabled()
    parts: list[tuple[Tensor, ...]] = []
    with torch.no_grad():
        for part, tokens in zip(torch.split(states, PART), torch.split(wanted[:, None], PART), strict=True):
            logits = head(part).float()
            if temperature != 1:
                logits /= temperature
            largest, places = logits.max(1, keepdim=True) if len(logits) else (logits[:, :1], tokens)
            weights = logits.sub_(largest).exp()
            total = weights.sum(1, keepdim=True)
            log_sum = total.log()
            mean = torch.bmm(weights[:, None], logits[:, :, None])[:, :, 0] / total
            found = logits.gather(1, tokens) - log_sum, log_sum - mean, places == tokens
            if not learning:
                parts.append((*found, part))
                continue
            weights.div_(total).scatter_add_(1, tokens, -torch.ones_like(total))
            parts.append((*found, (weights.to(part.dtype) @ head.weight).div_(-temperature)))
        log_probs, entropy, top, slope = (torch.cat(values) for values in zip(*parts, strict=True))
    log_probs, entropy, top = log_probs[:, 0], entropy[:, 0], top[:, 0]
    # The sum is 0, and its gradient is the one of the logprobs.
    return log_probs + ((hidden - states) * slope).sum(1).float() if learning else log_probs, entropy, top


def _hidden(model: Any, ids: Tensor, attention: Tensor, mask: Tensor) -> Tensor:
    """Return the last hidden states `[learned tokens, width]`, row by row, of the positions in `mask`."""
    # The padding behind a cached prompt would use up a sliding window, and a state has no rows to select.
    shareable = layer_kinds(model.config.get_text_config()) == {"full_attention"}
    shared = _shared_prompts(ids.tolist(), attention.sum(1).tolist(), mask) if shareable else None
    backbone = model.base_model
    if shared is None:
        states = backbone(input_ids=ids, attention_mask=attention, use_cache=False).last_hidden_state
        return states[:, :-1][mask]
    import torch
    from transformers import DynamicCache

    prompts, prompt_mask = _padded(shared.prompts)
    cache = DynamicCache(config=model.config)
    backbone(input_ids=prompts, attention_mask=prompt_mask, past_key_values=cache, use_cache=True)
    # Each row gets the keys and values of its prompt; the gradients of all rows are summed in them.
    owner = torch.tensor(shared.owner)
    cache.batch_select_indices(owner)
    rests = [row[start:end] for row, start, end in zip(ids.tolist(), shared.starts, shared.ends, strict=True)]
    rest, rest_mask = _padded(rests)
    starts = torch.tensor(shared.starts)[:, None]
    positions = starts + torch.arange(rest.shape[1])
    states = backbone(
        input_ids=rest,
        attention_mask=torch.cat([prompt_mask[owner], rest_mask], dim=1),
        position_ids=positions,
        past_key_values=cache,
        use_cache=True,
    ).last_hidden_state
    # Positions behind a row's end are clamped to it, and masked.
    learned = mask.gather(1, positions.clamp(max=mask.shape[1] - 1)) & (positions < mask.shape[1])
    return states[learned & rest_mask.bool()]


@dataclass(frozen=True, slots=True)
class _Shared:
    """A batch whose rows begin with one of `prompts`; row i goes on at `starts[i]` and ends at `ends[i]`."""

    prompts: Sequence[Sequence[int]]
    owner: Sequence[int]
    """The number of each row's prompt."""
    starts: Sequence[int]
    ends: Sequence[int]


def _shared_prompts(rows: Sequence[Sequence[int]], ends: Sequence[int], mask: Tensor) -> _Shared | None:
    """Return the prompts that rows have in common, or None if sharing them does not save enough.

    These are whole prompts if rows are samples of one prompt, else the beginning that all rows share.
    """
    # The hidden state that predicts the first learned token belongs to the row, not to its prompt.
    first = [
        int(learned.to(int).argmax()) if learned.any() else max(0, end - 1)
        for learned, end in zip(mask, ends, strict=True)
    ]
    numbers: dict[tuple[int, ...], int] = {}
    owner = [
        numbers.setdefault(tuple(row[:start]), len(numbers)) for row, start in zip(rows, first, strict=True)
    ]
    whole = _Shared(list(numbers), owner, first, ends)
    common = next((i for i in range(min(first)) if any(row[i] != rows[0][i] for row in rows)), min(first))
    beginning = _Shared([rows[0][:common]], [0] * len(rows), [common] * len(rows), ends)
    best = min((whole, beginning), key=_fed)
    if _fed(best) > (1 - WORTHWHILE) * len(rows) * max(ends) or not all(best.prompts):
        return None
    return best


def _fed(shared: _Shared) -> int:
    """Return the tokens that both passes feed, padding included."""
    longest = max(end - start for start, end in zip(shared.starts, shared.ends, strict=True))
    return len(shared.prompts) * max(map(len, shared.prompts)) + len(shared.owner) * longest


def _padded(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Return rows as ids and attention mask, both `[rows, longest row]`, padded on the right."""
    import torch

    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])
    return ids, torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
