"""Every part of the plan's memory is what torch allocates for a small model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import Qwen3Config, Qwen3ForCausalLM
from trl.trainer import utils

from tests.tirjudge.smollm2 import needs_smollm2, use_converted, wheel_file
from tirjudge_training.planning import memory
from tirjudge_training.planning.memory import Shape, Work, device_bytes

ROWS, PROMPT, RESPONSE, VOCABULARY = 2, 64, 192, 64
TOKENS = ROWS * (PROMPT + RESPONSE)


def model(layers: int = 2, hidden: int = 128, mlp: int = 512, dtype: torch.dtype = torch.bfloat16) -> Any:
    config = Qwen3Config(
        hidden_size=hidden,
        intermediate_size=mlp,
        num_attention_heads=hidden // 32,
        num_key_value_heads=hidden // 64,
        head_dim=32,
        num_hidden_layers=layers,
        vocab_size=VOCABULARY,
        tie_word_embeddings=False,
    )
    return Qwen3ForCausalLM(config).to(dtype)


@pytest.fixture
def shape(tmp_path: Path) -> Shape:
    """The shape that a plan reads from the configuration of `model()`."""
    model().config.save_pretrained(tmp_path)
    return memory.shape(str(tmp_path))


@needs_smollm2
def test_the_shape_of_a_gguf_file_is_that_of_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sizes are those that SmolLM2-135M's `config.json` on the hub gives."""
    use_converted(tmp_path, monkeypatch)
    hidden, keys, mlp, layers, words = 576, 192, 1536, 30, 49152
    layer = 2 * hidden * hidden + 2 * hidden * keys + 3 * hidden * mlp + 2 * hidden
    assert memory.trained_shape(str(wheel_file()), None).parameters == (
        words * hidden + layers * layer + hidden
    )


def plan(shape: Shape, **changes: Any) -> dict[str, int]:
    """Return all parts of a plan for one device, which samples with the trained model."""
    work = {"devices": 1, "reference": True, "sampler": "transformers", "cached": 0} | changes
    phases = device_bytes(shape, Work(rows=ROWS, prompt=PROMPT, response=RESPONSE, **work))
    return {part: size for parts in phases.values() for part, size in parts.items()}


def passes(
    trained: Any,
    monkeypatch: pytest.MonkeyPatch,
    *,
    grad: bool = True,
    tile: int = 64,
    packed: tuple[int, int] | None = None,
) -> int:
    """Return the most bytes of activations and temporaries in a pass as TRL makes it on a GPU.

    `packed` are the tokens of a pass of packed rows, and of each row.
    """
    monkeypatch.setattr(utils, "_CHUNKED_LOGPROB_CHUNK_SIZE", tile)
    utils.add_fused_lm_head(trained, outputs=("log_probs", "entropy"))
    trained.activation_checkpointing_enable({"use_reentrant": False})
    trained.train()
    ids = torch.zeros(ROWS, PROMPT + RESPONSE, dtype=torch.long)
    labels = ids.clone()
    labels[:, :PROMPT] = -100
    apart: dict[str, Any] = {"attention_mask": torch.ones_like(ids)}
    if packed is not None:
        ids = labels = torch.zeros(1, packed[0], dtype=torch.long)
        apart = {"position_ids": torch.arange(packed[0])[None] % packed[1]}
    for weight in trained.parameters():  # as in every micro-batch but the first
        weight.grad = torch.zeros_like(weight) if grad else None
    tracker = MemTracker()
    tracker.track_external(trained)
    with tracker, torch.set_grad_enabled(grad):
        found = trained(input_ids=ids, labels=labels, fused_lm_head=True, **apart)
        if grad:
            found.log_probs.sum().backward()
    (peak,) = tracker.get_tracker_snapshot("peak").values()
    named = {str(getattr(kind, "value", kind)): size for kind, size in peak.items()}
    return int(named.get("Activation", 0) + named.get("Temp", 0))


def test_weights_gradients_and_moments_are_what_training_holds(shape: Shape) -> None:
    trained = model(dtype=torch.float32)
    adam = torch.optim.AdamW(trained.parameters())
    trained(input_ids=torch.zeros(1, 8, dtype=torch.long), use_cache=False).logits.sum().backward()
    adam.step()
    found = plan(shape)
    parameters = list(trained.parameters())
    moments = [state[name] for state in adam.state.values() for name in ("exp_avg", "exp_avg_sq")]
    for part, tensors in {
        "weights, float32": parameters,
        "KL reference, float32": parameters,
        "gradients, float32": [weight.grad for weight in parameters],
        "Adam's moments, float32": moments,
    }.items():
        assert found[part] == sum(one.nbytes for one in tensors), part


def test_a_layer_keeps_its_input_and_computes_the_rest_again(
    shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One more layer keeps one more input; the layer that is computed again takes the rest, within 15 %."""
    monkeypatch.setattr(memory, "TILE_WORDS", 64)  # else the tile of a model this small is larger
    two, three = (passes(model(layers), monkeypatch) for layers in (2, 3))
    found = plan(shape)
    assert three - two == found["activations kept between layers"] // 2
    layer = two - found["activations kept between layers"]
    assert layer == pytest.approx(found["one layer or the output layer, whichever is larger"], rel=0.15)


def test_a_token_budget_bounds_a_pass(shape: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of 256 tokens exceeds a budget of 100; a mask has a byte and a bfloat16 number for each pair."""
    for budget, tokens in ((1024, 1024), (100, PROMPT + RESPONSE)):
        found = plan(shape, budget=budget)
        assert found["activations kept between layers"] == 2 * tokens * 128 * 2
        assert found["mask of packed rows"] == 3 * budget**2
        assert found["activations of one layer"] == plan(shape)["activations of one layer"] * tokens // TOKENS
    assert "mask of packed rows" not in plan(shape, budget=1024, masked=False), "FlashAttention needs none"
    packed, alone = (passes(model(), monkeypatch, packed=(1024, length)) for length in (256, 1024))
    assert packed - alone == pytest.approx(3 * 1024**2, rel=0.1), "one row alone has no mask"


def test_whole_logits_are_never_held(shape: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tile of logits for all words has VOCABULARY columns, one of 32,768 columns has as many."""
    narrow, wide = (passes(model(), monkeypatch, grad=False, tile=tile) for tile in (64, 32768))
    planned = plan(shape)["output layer, one tile of logits"] - 2 * ROWS * RESPONSE * 128
    # On a CPU TRL scores the prompt too; on a GPU only the response.
    assert wide > narrow
    assert wide == pytest.approx(planned * (PROMPT + RESPONSE) / RESPONSE, rel=0.05)


@pytest.fixture
def eight_processes() -> Iterator[Any]:
    """One process that believes it is the first of eight; collectives do nothing."""
    dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
    yield dist.init_device_mesh("cpu", (8,))
    dist.destroy_process_group()


def gathered(model: Any, mesh: Any) -> dict[str, int]:
    """Return the largest sizes by kind in a pass, sharded by layer as the policy and the reference are."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    tracker = FSDPMemTracker(model)
    with tracker, torch.no_grad():
        model(input_ids=torch.zeros(1, 8, dtype=torch.long), use_cache=False)
    ((_, peak),) = tracker.get_tracker_snapshot("peak").items()
    return {str(getattr(kind, "value", kind)): size for kind, size in peak.items()}


def test_a_pass_gathers_the_outer_weights_and_two_layers(shape: Shape, eight_processes: Any) -> None:
    """FSDP2 copies the gathered weights out of the buffer that they arrive in, so both exist at once."""
    planned = plan(shape, devices=8)
    by_layer = gathered(model(4, dtype=torch.float32), eight_processes)
    root, two = (
        planned[f"{part} gathered, bfloat16"] for part in ("embedding and output layer", "two layers")
    )
    assert by_layer["Unsharded Param"] + by_layer["All Gather"] == pytest.approx(root + two, rel=0.1)
    sharded = gathered(model(dtype=torch.float32), eight_processes)["Sharded Param"]
    assert sharded == pytest.approx(planned["weights, float32, sharded"], rel=0.01)
