"""A local transformers model as a generator: one batch that every request joins and leaves at any step."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from tirjudge.console_text import first_line
from tirjudge.generation.base import BusyClock, ContextTooLong, GeneratorFailed, Sampling
from tirjudge.generation.local.continuous_batching import Decoder, Row
from tirjudge.generation.local.sampling import StopStrings, noise
from tirjudge.generation.model_files import Adapter
from tirjudge_environments import Completion, Context, Usage
from tirjudge_environments.chat_encoder import ChatEncoder


class TransformersGenerator:
    """Samples from a transformers causal LM, in this process and with its weights as they are.

    A trainer may share the model: it is in evaluation mode only while rows run, and after an update of the
    weights `weights_changed` drops what was computed with the old ones. The steps run in a thread of their
    own, so programs run while other rows generate. The same seed and context give the same completion in any
    company, up to the last bits of the matrix products, which depend on the batch's shape: a draw that falls
    within about 1e-6 of the border between two tokens may go either way.
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
    ) -> None:
        """A model in memory and its fast tokenizer.

        `name` is what result rows carry. At most `max_rows` rows run at once, the others wait in order.
        `max_context` bounds prompt and answer together, in tokens; None is what the model's positions allow.
        `parked_bytes` bounds the keys and values kept for rows that may come back. `device` None leaves the
        model where it is. `autocast` is the type of matrix products, `bfloat16` or `float16`; None: the
        weights' own. Raises ValueError for another type, and for an architecture that cannot be decoded in a
        padded batch.
        """
        if autocast not in (None, "bfloat16", "float16"):
            raise ValueError(f"autocast is {autocast!r}, and can be bfloat16 or float16")
        self.model = name
        self.encoder = ChatEncoder(tokenizer, ends=_end_tokens(model))
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
    def load(cls, path: str, *, device: str | None = None, **options: Any) -> Self:
        """From a local folder or a hub id: safetensors only, none of the repository's own code is run.

        The folder may be an adapter's, which names its model.
        `device`: None is the first GPU where there is one. Raises GeneratorFailed.
        """
        try:
            import torch
            from transformers import AutoModelForCausalLM, AutoTokenizer
        except ImportError as error:
            raise GeneratorFailed(f"a local model needs `pip install tirjudge[local]`: {error}") from error
        if path.startswith((".", "/", "~")) and not Path(path).expanduser().is_dir():
            raise GeneratorFailed(f"cannot load the model {path!r}: there is no such folder")
        if Adapter.of(Path(path)) is not None and find_spec("peft") is None:
            raise GeneratorFailed(f"{path!r} is an adapter, which needs `pip install peft`")
        safe = {"trust_remote_code": False}
        try:
            tokenizer = AutoTokenizer.from_pretrained(path, **safe)
            model = AutoModelForCausalLM.from_pretrained(
                path, dtype="auto", use_safetensors=True, attn_implementation="sdpa", **safe
            )
        except (OSError, ValueError) as error:
            raise GeneratorFailed(f"cannot load the model {path!r}: {first_line(error)}") from error
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        return cls(model, tokenizer, name=path, device=device, **options)

    @property
    def busy_seconds(self) -> float:
        """Wall time since the start in which tokens were computed."""
        return self._clock.seconds

    @property
    def precision(self) -> str:
        """What matrix products are computed in: `float32`, `bfloat16`, ..."""
        return self._autocast or str(self._network.dtype).removeprefix("torch.")

    @property
    def tokens_fed(self) -> int:
        """Tokens that went through the model since the start, padding not counted."""
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
        """Drop all parked rows and give their memory back. Raises RuntimeError while rows are generated."""
        if self._decoder.busy:
            raise RuntimeError(f"the weights changed under {self._decoder.busy} running rows")
        self._decoder.forget()

    async def close(self) -> None:
        self._cancel_all()
        if self._driver is not None and not self._driver.done():
            await self._driver
        self._thread.shutdown()
        self._decoder.forget()

    def _row(self, context: Context, sampling: Sampling) -> Row:
        if context.ids is None:
            raise GeneratorFailed(f"{self.model} takes token ids: give the session this generator's encoder")
        start = len(context.ids)
        if start >= self._max_context:
            raise ContextTooLong(
                f"the context has {start} tokens and {self.model} takes {self._max_context} with its answer: "
                "shorten the row, or raise max_context"
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
        """Step the batch until it is empty, handing out what ended; cancelled, it cancels every row."""
        loop = asyncio.get_running_loop()
        try:
            with _evaluating(self._network):
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
        """Steps until a row ends."""
        import torch

        with self._clock.working(), torch.inference_mode(), self._casting():
            ended: list[Row] = []
            while self._decoder.busy and not ended:
                ended = self._decoder.step()
        return ended

    def _casting(self) -> AbstractContextManager[Any]:
        """Around several steps at once: the weights are cast once for all of them."""
        if self._autocast is None:
            return nullcontext()
        import torch

        return torch.autocast(self._network.device.type, dtype=getattr(torch, self._autocast))

    def _fail(self, error: Exception) -> None:
        """The forward pass broke, for lack of memory or otherwise: every row fails, later ones may not."""
        self._decoder.forget()
        futures, self._futures = self._futures, {}
        for future in futures.values():
            failure = GeneratorFailed(f"{self.model}: {first_line(error)}")
            failure.__cause__ = error
            future.set_exception(failure)


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Evaluation mode, and afterwards every module as it was."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _positions(model: Any) -> int:
    """How many tokens a row may have; within it sliding attention sees all that full attention sees."""
    config = model.config.get_text_config()
    window = getattr(config, "sliding_window", None)
    kinds = set(getattr(config, "layer_types", None) or ["sliding_attention" if window else "full_attention"])
    attention = config._attn_implementation
    if kinds - {"full_attention", "sliding_attention"} or attention not in ("sdpa", "eager"):
        raise ValueError(
            f"{type(model).__name__} with {attention} attention and layers {sorted(kinds)} cannot be decoded "
            "in a padded batch: it takes full or sliding attention, as sdpa or eager"
        )
    positions: int = config.max_position_embeddings
    return min(positions, window) if window and "sliding_attention" in kinds else positions


def _end_tokens(model: Any) -> list[int]:
    configured = model.generation_config.eos_token_id
    several = configured if isinstance(configured, list) else [configured]
    return [token for token in several if token is not None]
