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
        routed = kwargs.get("output_router_logits") or getattr(config, "output_router_logits", False)
        if not fused_lm_head or args or routed or ids is None or attention is None or labels is None:
            return replaced(*args, fused_lm_head=fused_lm_head, labels=labels, **kwargs)
        return _score(self, ids, attention, labels, temperature, differentiable_entropy)

    model.forward = MethodType(forward, model)
    model.shares_prompts = True


def shares_prompts(model: Any) -> bool:
    """Return True if `score_learned_tokens` replaced the model's forward pass."""
    return getattr(model, "shares_prompts", False) is True


def _score(
    model: Any, ids: Tensor, attention: Tensor, labels: Tensor, temperature: float, differentiable: bool
) -> Any:
    """Return TRL's output for a batch `[rows, tokens]` that is padded on the right."""
    import torch
    from trl.trainer.utils import FusedCausalLMOutput

    following = labels[:, 1:]
    mask = following != IGNORED
    hidden = _hidden(model, ids, attention, mask)
    logits = model.get_output_embeddings()(hidden).float() / temperature
    # Relative to the largest logit, as in a softmax: large logits would cost several bits of the difference.
    logits = logits.sub_(logits.detach().amax(1, keepdim=True)) if len(logits) else logits
    wanted = following[mask]
    # Subtracting the log-sum keeps one matrix of logits for the backward pass, and no matrix of logprobs.
    log_sum = logits.logsumexp(1)
    log_probs = logits.gather(1, wanted[:, None])[:, 0] - log_sum
    with torch.set_grad_enabled(differentiable and torch.is_grad_enabled()):
        entropy = log_sum - (logits.softmax(1) * logits).sum(1)
        top = logits.argmax(1) == wanted

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
    common = _common_length(rows, min(first))
    beginning = _Shared([rows[0][:common]], [0] * len(rows), [common] * len(rows), ends)
    best = min((whole, beginning), key=_fed)
    if _fed(best) > (1 - WORTHWHILE) * len(rows) * max(ends) or not all(best.prompts):
        return None
    return best


def _fed(shared: _Shared) -> int:
    """Return the tokens that both passes feed, padding included."""
    longest = max(end - start for start, end in zip(shared.starts, shared.ends, strict=True))
    return len(shared.prompts) * max(map(len, shared.prompts)) + len(shared.owner) * longest


def _common_length(rows: Sequence[Sequence[int]], most: int) -> int:
    return next((i for i in range(most) if any(row[i] != rows[0][i] for row in rows)), most)


def _padded(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Return rows as ids and attention mask, both `[rows, longest row]`, padded on the right."""
    import torch

    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])
    return ids, torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
