"""The rows of a forward pass: padding, length buckets, packs under a token budget, each process's share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, TypeVar

from tirjudge_training.cpu_forward import IGNORED
from tirjudge_training.distributed.processes import Processes
from tirjudge_training.rl.packed_attention import pack, packs_rows, prefixes
from tirjudge_training.rl.trl_rollout import RolloutTokens

T = TypeVar("T")


def without_left_padding(row: RolloutTokens) -> RolloutTokens:
    """Return the row with all of the prompt except its first token moved into the completion, masked.

    TRL pads prompts on the left without passing position ids, and rotary embeddings at shifted positions
    round differently: logprobs then differ from the sampler's by about 1e-5 in float32. Prompts that all have
    one token are not padded.
    """
    # One token has to stay: TRL takes the logits of the first completion token from it.
    moved = row.prompt_ids[1:]
    return replace(
        row,
        prompt_ids=row.prompt_ids[:1],
        completion_ids=moved + row.completion_ids,
        mask=(0,) * len(moved) + row.mask,
        logprobs=(0.0,) * len(moved) + row.logprobs,
    )


def written_tokens(rows: Sequence[RolloutTokens], width: int, device: Any) -> Any:
    """Return 1 for the tokens that the model wrote, `[rows, width]`, of rows `without_left_padding`."""
    import torch

    masks = [without_left_padding(row).mask for row in rows]
    return torch.tensor([[*mask, *[0] * (width - len(mask))] for mask in masks], device=device)


def prompt_order(row: RolloutTokens) -> tuple[int, tuple[int, ...], int]:
    """Return a key that puts rows of one prompt together, short prompts first."""
    return len(row.prompt_ids), row.prompt_ids, len(row.completion_ids)


def length_buckets(
    inputs: dict[str, Any], parts: int, *, every: bool = False, by_prompt: bool = False
) -> Iterator[dict[str, Any]]:
    """Split a TRL batch into `parts` parts by length, each with its tensors cut to its longest row.

    With `by_prompt` the rows of one prompt stay together, in parts that compute each prompt once.

    The tensors are `[rows, completion tokens]`. Rows that do not count are dropped, or, with `every`, kept
    with their first token: TRL gathers one number per row, so all processes need the same number of rows in
    each part. A part without rows becomes one masked token, since a loss must depend on the model and every
    process must make the same number of forward passes.
    """
    # A filler has no token that counts, and neither has a rollout of program output alone.
    counting = (inputs["completion_mask"] * inputs["tool_mask"]).any(1)
    lengths, full = inputs["completion_mask"].sum(1) * counting, inputs["completion_mask"].shape[1]
    order = _prompts(inputs, lengths) if by_prompt else lengths.argsort(stable=True)
    for rows in (order if every else order[counting[order]]).tensor_split(parts):
        if len(rows):
            yield cut(inputs, rows, full, lengths[rows].max().clamp(min=1))
        else:
            blank = cut(inputs, slice(0, 1), full, 1)
            yield blank | {"tool_mask": blank["tool_mask"] * 0}


def _prompts(inputs: dict[str, Any], lengths: Any) -> Any:
    """Return the order of the rows that puts those of one prompt together, short prompts first."""
    ids, starts = inputs["completion_ids"].tolist(), (inputs["tool_mask"].cumsum(1) == 0).sum(1).tolist()
    keys = [
        (start, row[:start], length) for row, start, length in zip(ids, starts, lengths.tolist(), strict=True)
    ]
    return lengths.new_tensor(sorted(range(len(keys)), key=keys.__getitem__))


def cut(inputs: dict[str, Any], rows: Any, full: int, longest: Any) -> dict[str, Any]:
    """Return some rows of a TRL batch, with tensors of `full` completion tokens cut to `longest`."""
    return {name: _cut(tensor, rows, full, longest) for name, tensor in inputs.items()}


def _cut(tensor: Any, rows: Any, full: int, longest: Any) -> Any:
    if tensor.dim() == 0:  # a count over the batch
        return tensor
    part = tensor[rows]
    # Tensors of another width hold prompts, which are not padded, or one value per row.
    return part[:, :longest] if part.dim() == 2 and part.shape[1] == full else part


def shard_batch(
    rows: Sequence[T],
    *,
    steps: int,
    processes: Processes,
    seed: int,
    order_by: Callable[[T], Any] | None = None,
) -> list[T]:
    """Return this process's share of a generation batch, in an order that undoes TRL's own shuffle.

    The batch is shuffled and cut into `steps` optimizer steps, and each step into one share per process: a
    step has the same rows for any number of processes. TRL shuffles a process's rows with `torch.randperm`;
    calling `seed_shuffle(seed)` right before makes that the permutation that is undone here. The number of
    rows must be a multiple of steps times processes. `order_by` orders the rows of each optimizer step, so
    that its micro-batches hold neighbours in this order.
    """
    import torch

    def order(count: int) -> list[int]:
        permutation = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
        return permutation.tolist()

    each = len(rows) // (steps * processes.world)
    mixed = [rows[i] for i in order(len(rows))]
    if order_by is not None:
        size = each * processes.world
        mixed = [row for i in range(0, len(mixed), size) for row in sorted(mixed[i : i + size], key=order_by)]
    starts = [(step * processes.world + processes.rank) * each for step in range(steps)]
    wanted = [row for start in starts for row in mixed[start : start + each]]
    # The inverse of the permutation that TRL is about to apply.
    placed = dict(zip(order(len(wanted)), wanted, strict=True))
    return [placed[i] for i in range(len(wanted))]


def seed_shuffle(seed: int) -> None:
    """Seed torch so that TRL's next shuffle is the one that `shard_batch` undoes."""
    import torch

    torch.manual_seed(seed)


def packs(
    lengths: Sequence[int], budget: int, prefixes: Sequence[Sequence[Any]] | None = None
) -> list[list[int]]:
    """Return the numbers of the rows of each pass: first fit, the most tokens first.

    A row that is longer than `budget` gets a pass of its own. Rows with equal `prefixes` stay together as far
    as they fit, and count their prefix once.
    """
    together: dict[Any, list[int]] = {}
    for row in range(len(lengths)):
        together.setdefault(row if prefixes is None else prefixes[row], []).append(row)
    units: list[tuple[int, list[int]]] = []
    for prefix, rows in together.items():
        shared = 0 if prefixes is None else len(prefix)
        size, unit = shared, list[int]()
        for row in rows:
            if unit and size + lengths[row] - shared > budget:
                units.append((size, unit))
                size, unit = shared, []
            size += lengths[row] - shared
            unit.append(row)
        units.append((size, unit))
    found: list[list[int]] = []
    room: list[int] = []
    for size, rows in sorted(units, key=lambda unit: -unit[0]):
        place = next((n for n, left in enumerate(room) if left >= size), None)
        if place is None:
            place = len(found)
            found.append([])
            room.append(budget)
        found[place] += rows
        room[place] -= size
    return found


def packed_parts(
    inputs: dict[str, Any], budget: int, processes: Processes, *, shared: bool = False
) -> Iterator[dict[str, Any]]:
    """Split a TRL batch into parts of at most `budget` tokens, each with its tensors cut to its longest row.

    With `shared` the rows of one prompt count it once, see `packed_attention`. Rows that do not count are
    dropped. All processes get the same number of parts, and each part has the same number of rows in all of
    them, since TRL gathers one number per row; masked rows of one token fill them up.
    """
    import torch

    # A filler has no token that counts, and neither has a rollout of program output alone.
    counting = (inputs["completion_mask"] * inputs["tool_mask"]).any(1).nonzero()[:, 0].tolist()
    completions = inputs["completion_mask"].sum(1)
    lengths = (inputs["prompt_mask"].sum(1) + completions)[counting].tolist()
    prompts = None
    if shared:
        ids, written = (
            torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)[counting],
            torch.cat([inputs["prompt_mask"] * 0, inputs["completion_mask"] * inputs["tool_mask"]], 1)[
                counting
            ],
        )
        prompts = prefixes(ids, written)
    parts = [[counting[n] for n in pack] for pack in packs(lengths, budget, prompts)]
    every = processes.every([len(part) for part in parts])
    # One part even if no row counts anywhere: the backward pass needs a loss that depends on the model.
    sizes = [max(1, *each) for each in zip_longest(*every, fillvalue=0)] or [1]
    for number, size in enumerate(sizes):
        rows = parts[number] if number < len(parts) else []
        chosen = torch.tensor(rows + [0] * (size - len(rows)), device=completions.device)
        longest = int(completions[rows].max()) if rows else 1
        part = cut(inputs, chosen, inputs["completion_mask"].shape[1], longest)
        # Written in place, which is safe because indexing by a tensor of rows has made copies.
        part["tool_mask"][len(rows) :] = 0
        part["completion_mask"][len(rows) :, 1:] = 0
        yield part


def score_packed(
    model: Any,
    ids: Any,
    attention: Any,
    scored: Any,
    *,
    budget: int | None,
    processes: Processes,
    entropies: bool = False,
) -> tuple[Any, Any]:
    """Return logprobs and, if wanted, entropies `[rows, tokens]` of the tokens in `scored`, 0 for the others.

    `ids`, `attention` and `scored` are `[rows, tokens]`, and `model` has TRL's fused head. Rows are told
    apart by `packed_attention` where the model has it, or else by their positions, which begin at 0:
    transformers gives each an attention of its own. `budget` None makes one pass; otherwise every process
    makes as many as the others, which sharded weights require.
    """
    import torch

    attended = attention.bool()
    shared = packs_rows(model)
    chosen = [list(range(len(ids)))]
    if budget is not None:
        chosen = packs(attended.sum(1).tolist(), budget, prefixes(ids, scored) if shared else None)
        chosen += [[]] * (max(processes.every(len(chosen))) - len(chosen))
    labels = ids.masked_fill(~scored.bool(), IGNORED)
    positions = attended.cumsum(1) - 1
    found = []
    for rows in chosen:
        # A pass that only keeps up with the other processes has one token.
        kept = attended[rows] if rows else attended[:1].cumsum(1) * attended[:1] == 1
        own = rows or [0]
        packed: dict[str, Any] = {}
        if shared:
            sections = pack(ids[own], kept, scored[own])
            places = sections.places
            # A mask of four dimensions is passed on as it is, and the sections need none.
            packed = {"pack": sections, "attention_mask": kept.new_ones(1, 1, 1, 1)}
        else:
            places = kept.flatten().nonzero()[:, 0]
        passed = model(
            input_ids=ids[own].flatten()[places][None],
            position_ids=positions[own].flatten()[places][None],
            labels=labels[own].flatten()[places][None],
            fused_lm_head=True,
            **packed,
        )
        if shared:
            sections.follow(model)
        if rows:
            values = (passed.log_probs, passed.entropy) if entropies else (passed.log_probs,)
            found.append([_placed(value[0], places, kept) for value in values])
    back = torch.tensor([row for rows in chosen for row in rows], device=ids.device).argsort()
    logprobs, *more = (torch.cat(parts)[back] for parts in zip(*found, strict=True))
    return logprobs, (more[0] if more else None)


def _placed(values: Any, places: Any, kept: Any) -> Any:
    """Return the values of a packed sequence at the places of its tokens; nothing predicts the first one."""
    import torch

    flat = values.new_zeros(kept.numel())
    return flat.index_copy(0, places, torch.cat([values.new_zeros(1), values])).view(kept.shape)
