"""A generator that samples from a transformers model in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Self

from tirjudge.generation.local.attention import grouped
from tirjudge.generation.local.batch_generator import BatchGenerator
from tirjudge.generation.local.continuous_batching import Decoder
from tirjudge.generation.local.loading import load_model
from tirjudge_environments.tokenization import ChatEncoder

ATTENDING = frozenset({"full_attention", "sliding_attention"})
"""Kinds of layers in which a mask hides padding and other rows; others carry a state from token to token."""


class TransformersGenerator(BatchGenerator):
    """Samples from a transformers causal LM in this process, with continuous batching.

    A trainer may share the model: it is in evaluation mode only while rows run, and after an update of the
    weights `weights_changed` drops the keys and values of the old ones. The forward passes run in a thread of
    their own, so programs run while other rows generate. The same seed and context give the same completion
    whatever else is in the batch, up to the last bits of the matrix products, which depend on the batch's
    shape: a draw that falls within about 1e-6 of the border between two tokens may go either way.

    `OpenvinoGenerator` samples faster from a Llama model on a CPU. This generator takes all architectures,
    GPUs, the model's exact weights, and weights that a trainer changes.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        name: str,
        max_rows: int = 128,
        max_context: int | None = None,
        parked_bytes: int = 1 << 30,
        cache_bytes: int | None = None,
        device: str | None = None,
        autocast: str | None = None,
        enable_thinking: bool | None = None,
    ) -> None:
        """
        Args:
            model: a causal LM in memory, with full or sliding attention.
            max_rows: at most so many rows run at once; the others wait in order.
            max_context: tokens of prompt and answer together; None is what the model's positions allow.
            parked_bytes: memory for the keys and values of rows that may be resumed.
            cache_bytes: memory for the keys and values of rows that run, each as long as the longest; as
                many rows run at once as fit. None is four fifths of the free memory.
            device: where the model is moved; None leaves it where it is.
            autocast: type of the matrix products, `bfloat16` or `float16`; None is the type of the weights.
            enable_thinking: see `ChatEncoder`.

        Raises ValueError for another `autocast`, for a chat template that cannot be used, and for an
        architecture that cannot be decoded in a padded batch.
        """
        if autocast not in (None, "bfloat16", "float16"):
            raise ValueError(f"autocast must be bfloat16 or float16, not {autocast!r}")
        ends = model.generation_config.eos_token_id
        ends = [one for one in (ends if isinstance(ends, list) else [ends]) if one is not None]
        encoder = ChatEncoder(tokenizer, ends=ends, enable_thinking=enable_thinking)
        self._network = model if device is None else model.to(device)
        positions = min(max_context or _positions(model), _positions(model))
        decoder = Decoder(
            model,
            ends=encoder.end_of_turn,
            max_rows=max_rows,
            max_context=positions,
            parked_bytes=parked_bytes,
            cache_bytes=cache_bytes,
        )
        super().__init__(name, encoder, decoder, positions)
        self._autocast = autocast

    @classmethod
    def load(cls, path: str, *, device: str | None = None, dtype: str = "auto", **options: Any) -> Self:
        """Load a model and its tokenizer, see `load_model`. Raises GeneratorFailed."""
        model, tokenizer = load_model(path, device=device, dtype=dtype)
        return cls(model, tokenizer, name=path, **options)

    @property
    def precision(self) -> str:
        """Type of the matrix products: `float32`, `bfloat16`, ..."""
        return self._autocast or str(self._network.dtype).removeprefix("torch.")

    def weights_changed(self) -> None:
        """Drop the keys and values of parked rows. Raises RuntimeError while rows are generated."""
        if self._decoder.busy:
            raise RuntimeError(f"the weights changed while {self._decoder.busy} rows were running")
        self._decoder.forget()

    @contextmanager
    def _around_batch(self) -> Iterator[None]:
        with _evaluating(self._network), grouped(self._network):
            yield

    @contextmanager
    def _around_steps(self) -> Iterator[None]:
        import torch

        # Around several steps: autocast then casts the weights once for all steps. In inference mode every
        # step would cast.
        dtype = self._autocast and getattr(torch, self._autocast)
        casting = torch.autocast(self._network.device.type, dtype=dtype) if dtype else nullcontext()
        with torch.no_grad(), casting:
            yield


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Set evaluation mode, and restore the mode of every module afterwards."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def layer_kinds(config: Any) -> set[str]:
    """Return the kinds of a text model's layers by their names in transformers, as `full_attention`."""
    window = getattr(config, "sliding_window", None)
    return set(getattr(config, "layer_types", None) or ["sliding_attention" if window else "full_attention"])


def _positions(model: Any) -> int:
    """Return the tokens that a row may have.

    Within a sliding window, sliding attention equals full attention, so the window bounds the row.
    """
    config = model.config.get_text_config()
    window = getattr(config, "sliding_window", None)
    kinds, attention = layer_kinds(config), config._attn_implementation
    if kinds - ATTENDING or attention not in ("sdpa", "eager"):
        raise ValueError(
            f"{type(model).__name__} with {attention} attention and layers {sorted(kinds)} cannot be decoded "
            "in a padded batch, which needs full or sliding attention, implemented as sdpa or eager"
        )
    positions: int = config.max_position_embeddings
    return min(positions, window) if window and "sliding_attention" in kinds else positions
