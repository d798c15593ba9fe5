"""A generator that samples from a transformers model in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Self

from tirjudge.console_text import first_line
from tirjudge.generation.base import BusyClock, ContextTooLong, GeneratorFailed, Sampling
from tirjudge.generation.local.attention import grouped
from tirjudge.generation.local.continuous_batching import Decoder, Row
from tirjudge.generation.local.loading import load_model
from tirjudge.generation.local.sampling import StopStrings, noise
from tirjudge_environments import Completion, Context, Usage
from tirjudge_environments.tokenization import ChatEncoder

ATTENDING = frozenset({"full_attention", "sliding_attention"})
"""Kinds of layers in which a mask hides padding and other rows; others carry a state from token to token."""


class TransformersGenerator:
    """Samples from a transformers causal LM in this process, with continuous batching.

    A trainer may share the model: it is in evaluation mode only while rows run, and after an update of the
    weights `weights_changed` drops the keys and values of the old ones. The forward passes run in a thread of
    their own, so programs run while other rows generate. The same seed and context give the same completion
    whatever else is in the batch, up to the last bits of the matrix products, which depend on the batch's
    shape: a draw that falls within about 1e-6 of the border between two tokens may go either way.
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
        device: str | None = None,
        autocast: str | None = None,
        enable_thinking: bool | None = None,
    ) -> None:
        """
        Args:
            model: a causal LM in memory, with full or sliding attention.
            tokenizer: its fast tokenizer.
            name: the name that result rows carry.
            max_rows: at most so many rows run at once; the others wait in order.
            max_context: tokens of prompt and answer together; None is what the model's positions allow.
            parked_bytes: memory for the keys and values of rows that may be resumed.
            device: where the model is moved; None leaves it where it is.
            autocast: type of the matrix products, `bfloat16` or `float16`; None is the type of the weights.
            enable_thinking: see `ChatEncoder`.

        Raises ValueError for another `autocast`, for a chat template that cannot be used, and for an
        architecture that cannot be decoded in a padded batch.
        """
        if autocast not in (None, "bfloat16", "float16"):
            raise ValueError(f"autocast must be bfloat16 or float16, not {autocast!r}")
        self.model = name
        self.encoder = ChatEncoder(tokenizer, ends=_end_tokens(model), enable_thinking=enable_thinking)
        self._network = model if device is None else model.to(device)
        self._max_context = min(max_context or _positions(model), _positions(model))
        self._decoder = Decoder(
            model,
            ends=self.encoder.end_of_turn,
            max_rows=max_rows,
            max_context=self._max_context,
            parked_bytes=parked_bytes,
        )
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tirjudge-generation")
        self._driver: asyncio.Task[None] | None = None
        self._futures: dict[Row, asyncio.Future[None]] = {}
        self._stops: dict[tuple[str, ...], StopStrings] = {}
        self._autocast = autocast
        self._clock = BusyClock()

    @classmethod
    def load(cls, path: str, *, device: str | None = None, dtype: str = "auto", **options: Any) -> Self:
        """Load a model and its tokenizer, see `load_model`. Raises GeneratorFailed."""
        model, tokenizer = load_model(path, device=device, dtype=dtype)
        return cls(model, tokenizer, name=path, **options)

    @property
    def busy_seconds(self) -> float:
        """Wall seconds since the start in which tokens were computed."""
        return self._clock.seconds

    @property
    def precision(self) -> str:
        """Type of the matrix products: `float32`, `bfloat16`, ..."""
        return self._autocast or str(self._network.dtype).removeprefix("torch.")

    @property
    def tokens_fed(self) -> int:
        """Tokens that went through the model since the start, without padding."""
        return self._decoder.tokens_fed

    async def generate(self, context: Context, sampling: Sampling) -> Completion:
        row = self._row(context, sampling)
        future = asyncio.get_running_loop().create_future()
        self._futures[row] = future
        self._decoder.submit(row)
        if self._driver is None or self._driver.done():
            self._driver = asyncio.create_task(self._drive())
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError:
            row.cancelled = True
            await asyncio.gather(future, return_exceptions=True)
            raise
        ids, start = tuple(row.ids[row.start :]), row.start
        assert row.finish is not None
        return Completion(
            text=self.encoder.decode(ids),
            finish=row.finish,
            token_ids=ids,
            logprobs=tuple(row.logprobs),
            usage=Usage(prompt_tokens=start, completion_tokens=len(ids)),
        )

    def weights_changed(self) -> None:
        """Drop the keys and values of parked rows. Raises RuntimeError while rows are generated."""
        if self._decoder.busy:
            raise RuntimeError(f"the weights changed while {self._decoder.busy} rows were running")
        self._decoder.forget()

    async def close(self) -> None:
        self._cancel_all()
        if self._driver is not None and not self._driver.done():
            await self._driver
        self._thread.shutdown()
        self._decoder.forget()

    def _row(self, context: Context, sampling: Sampling) -> Row:
        if context.ids is None:
            raise GeneratorFailed(
                f"{self.model} takes token ids: pass this generator's encoder to the session"
            )
        start = len(context.ids)
        if start >= self._max_context:
            raise ContextTooLong(
                f"the context has {start} tokens, but {self.model} takes {self._max_context} including its "
                "answer: shorten the row, or raise max_context"
            )
        stop = context.prompt.stop
        if stop not in self._stops:
            self._stops[stop] = StopStrings(stop, self.encoder)
        limit = min(start + max(1, sampling.max_tokens), self._max_context)
        return Row(
            ids=list(context.ids),
            start=start,
            limit=limit,
            stops=self._stops[stop],
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            noise=noise(sampling.seed, limit) if sampling.temperature > 0 else None,
        )

    async def _drive(self) -> None:
        """Step the batch until it is empty, and resolve the futures of rows that end.

        Cancelling it cancels every row.
        """
        loop = asyncio.get_running_loop()
        try:
            with _evaluating(self._network), grouped(self._network):
                while self._decoder.busy:
                    steps = loop.run_in_executor(self._thread, self._advance)
                    try:
                        await asyncio.shield(steps)
                    except asyncio.CancelledError:
                        self._cancel_all()
                    for row in await steps:
                        self._settle(row)
        except Exception as error:
            self._fail(error)

    def _cancel_all(self) -> None:
        for row in self._futures:
            row.cancelled = True

    def _settle(self, row: Row) -> None:
        future = self._futures.pop(row)
        if row.cancelled:
            future.cancel()
        else:
            future.set_result(None)

    def _advance(self) -> list[Row]:
        """Step until at least one row ends, and return those rows."""
        import torch

        with self._clock.working(), torch.inference_mode(), self._casting():
            ended: list[Row] = []
            while self._decoder.busy and not ended:
                ended = self._decoder.step()
        return ended

    def _casting(self) -> AbstractContextManager[Any]:
        # Around several steps: autocast then casts the weights once for all of them.
        if self._autocast is None:
            return nullcontext()
        import torch

        return torch.autocast(self._network.device.type, dtype=getattr(torch, self._autocast))

    def _fail(self, error: Exception) -> None:
        """Fail every row after a forward pass that raised, for lack of memory or otherwise.

        Later requests start with an empty batch, and may succeed.
        """
        self._decoder.forget()
        futures, self._futures = self._futures, {}
        for future in futures.values():
            failure = GeneratorFailed(f"{self.model}: {first_line(error)}")
            failure.__cause__ = error
            future.set_exception(failure)


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


def _end_tokens(model: Any) -> list[int]:
    configured = model.generation_config.eos_token_id
    several = configured if isinstance(configured, list) else [configured]
    return [token for token in several if token is not None]
