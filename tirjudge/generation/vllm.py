"""A generator that samples from vLLM's engine, whose weights a trainer can replace."""

from __future__ import annotations

import asyncio
import os
import pickle
from collections.abc import Iterable
from itertools import count
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any, Literal, Self

from tirjudge.console_text import one_line
from tirjudge.generation.base import BusyClock, GeneratorFailed, Sampling, context_ids
from tirjudge.generation.model_files import Adapter, load_encoder, warn_of_other_base
from tirjudge.models import ModelUnavailable, resolve_model
from tirjudge_environments import Completion, Context, Finish, Usage
from tirjudge_environments.tokenization import ChatEncoder

SETTINGS = {
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}
"""Defaults for vLLM's environment variables: no logs on standard output, and no usage reports."""
SEEDS = (1 << 63) - 1
"""The largest seed that torch accepts, as a bit mask."""
RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""The values that vLLM accepts for `max_lora_rank`."""
Part = Literal["weights", "kv_cache"]
"""The parts of an engine's memory that sleep, as vLLM names them."""
ALIVE = 1.0
"""Seconds between two looks at whether the engine is alive."""


class SharedTensor:
    """Memory for one tensor at a time that another process of this machine reads. A context manager."""

    def __init__(self, dtype: Any) -> None:
        """`dtype` is the type that tensors are passed in."""
        self.passed = 0
        """Bytes passed so far."""
        self._dtype = dtype
        self._memory: SharedMemory | None = None
        self._held: Any = None  # the tensor on a GPU, kept until the engine has read it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._held = None
        if self._memory is not None:
            self._memory.close()
            self._memory.unlink()

    def hold(self, tensor: Any) -> bytes:
        """Put a tensor in the place of the last one; return what `open_shared` opens in the other process."""
        import torch

        size = tensor.numel() * self._dtype.itemsize
        self.passed += size
        if tensor.is_cuda:
            from torch.multiprocessing import reductions

            reduce_tensor: Any = reductions.reduce_tensor

            self._held = tensor.to(self._dtype).contiguous()
            return pickle.dumps(("cuda", *reduce_tensor(self._held)))
        if self._memory is None or self._memory.size < size:
            self.__exit__()
            self._memory = SharedMemory(create=True, size=size)
        target = torch.frombuffer(self._memory.buf, dtype=self._dtype, count=tensor.numel())
        target.copy_(tensor.reshape(-1))
        shape, name = tuple(tensor.shape), str(self._dtype).removeprefix("torch.")
        return pickle.dumps(("memory", self._memory.name, name, shape))


class VllmGenerator:
    """Samples from a model in vLLM's engine, which runs in its own processes.

    Logprobs belong to the sampling distribution. The same seed and context give the same completion, up to
    the last bits of the matrix products, which depend on the batch. Belongs to one event loop.
    """

    def __init__(self, engine: Any, encoder: ChatEncoder, *, name: str, adapter: Any = None) -> None:
        """`engine` is an `AsyncLLM` with `logprobs_mode="processed_logprobs"`; `close` shuts it down.

        `adapter` is the `LoRARequest` that is sent with every row.
        """
        self.model = name
        self.encoder = encoder
        self._engine, self._adapter = engine, adapter
        self._max_context: int = engine.model_config.max_model_len
        self._numbers = count()
        self._clock = BusyClock()
        self._whole = True
        self._asleep: set[Part] = set()

    @classmethod
    def load(
        cls,
        path: str,
        *,
        max_rows: int = 128,
        max_context: int | None = None,
        enable_thinking: bool | None = None,
        **engine: Any,
    ) -> Self:
        """Load a model from a local folder or the hub: only safetensors, none of the repository's code.

        Args:
            path: a folder, which may hold a LoRA adapter, a hub id, or what else `resolve_model` accepts.
            max_rows: at most so many rows run at once; the others wait in order.
            max_context: tokens of prompt and answer together; None is what the model's positions allow.
            enable_thinking: see `ChatEncoder`.
            engine: further arguments of vLLM's `AsyncEngineArgs`: tensor_parallel_size,
                gpu_memory_utilization, dtype, ...

        Raises GeneratorFailed, and ValueError for a chat template that cannot be used.
        """
        for name, value in SETTINGS.items():
            os.environ.setdefault(name, value)
        try:
            from vllm.engine.arg_utils import AsyncEngineArgs
            from vllm.lora.request import LoRARequest
            from vllm.v1.engine.async_llm import AsyncLLM
        except ImportError as error:
            raise GeneratorFailed(f"vLLM needs pip install 'tirjudge[vllm]': {error}") from error
        try:
            folder = resolve_model(path)
        except ModelUnavailable as error:
            raise GeneratorFailed(str(error)) from error
        adapter, encoder = Adapter.of(Path(folder)), load_encoder(folder, enable_thinking=enable_thinking)
        if adapter:
            warn_of_other_base(folder, adapter.base)
        try:
            arguments = AsyncEngineArgs(
                **{
                    "model": folder,
                    "max_num_seqs": max_rows,
                    "max_model_len": max_context,
                    "load_format": "safetensors",
                    "trust_remote_code": False,
                    "generation_config": "vllm",
                    "logprobs_mode": "processed_logprobs",
                    "worker_extension_cls": "tirjudge.generation.vllm_worker.WeightReloader",
                    "disable_log_stats": True,
                    "use_tqdm_on_load": False,
                    **(_with_adapter(adapter) if adapter else {}),
                    **engine,
                }
            )
            request = LoRARequest("adapter", 1, folder) if adapter else None
            return cls(AsyncLLM.from_engine_args(arguments), encoder, name=path, adapter=request)
        except Exception as error:  # vLLM has no error class for refused arguments
            raise GeneratorFailed(f"vLLM cannot load {path!r}: {one_line(error)}") from error

    @property
    def busy_seconds(self) -> float:
        """Wall seconds since the start in which at least one request was in the engine."""
        return self._clock.seconds

    @property
    def precision(self) -> str:
        """Type of the matrix products: `bfloat16`, ..."""
        return str(self._engine.model_config.dtype).removeprefix("torch.")

    async def generate(self, context: Context, sampling: Sampling) -> Completion:
        """Generate one turn. Cancelling frees the row. Raises GeneratorFailed, also ContextTooLong."""
        if self._asleep:
            raise GeneratorFailed(f"{self.model} sleeps: wake it and give it its weights first")
        if not self._whole:
            raise GeneratorFailed(f"{self.model} has received only a part of its new weights")
        ids = context_ids(context, self.model, self._max_context)
        with self._clock.working():
            output = await self._output(ids, self._parameters(context, sampling))
        return self._completion(output, context)

    async def load_weights(self, folder: Path) -> None:
        """Replace the weights by those of a model folder of the same architecture, and drop the prefix cache.

        From the first call on, the engine ends with this process, even if this process is killed. Raises
        RuntimeError while rows are generated, and GeneratorFailed if loading fails: the engine's weights are
        then unknown, so `generate` raises GeneratorFailed too.
        """
        self._replace_weights()
        try:
            await self._engine.collective_rpc("end_with", args=(os.getpid(),))
            await self._engine.collective_rpc("reload_from", args=(str(folder),))
            dropped = await self._engine.reset_prefix_cache()
        except Exception as error:
            raise GeneratorFailed(f"{self.model}: cannot load new weights: {one_line(error)}") from error
        if not dropped:
            raise GeneratorFailed(
                f"{self.model}: new weights: the keys and values of the old ones are still cached"
            )
        self._whole = True

    async def receive_weights(self, weights: Iterable[tuple[str, Any]]) -> int:
        """Replace the weights by named tensors, one at a time; return the bytes that were passed.

        Each tensor is passed in the engine's type, through memory that both processes see: CUDA IPC for one
        on a GPU, else shared memory, which never holds more than one. `weights` is iterated to its end even
        if the engine fails, since gathering sharded weights takes all processes.

        Raises RuntimeError while rows are generated, and GeneratorFailed if loading fails; from then on,
        until all weights have been received again, `generate` raises it too, because the engine would sample
        from a mixture of old and new weights.
        """
        self._replace_weights()
        failure = None
        with SharedTensor(self._engine.model_config.dtype) as place:
            try:
                await self._ask("end_with", os.getpid())
                await self._ask("begin_weights")
            except Exception as error:
                failure = error
            for name, tensor in weights:
                try:
                    if failure is None:
                        await self._ask("take_weight", name, place.hold(tensor))
                except Exception as error:
                    failure = error
            try:
                if failure is None:
                    await self._ask("end_weights")
                    self._whole = await self._engine.reset_prefix_cache()
            except Exception as error:
                failure = error
        if not self._whole:
            reason = "the keys and values of the old ones are still cached"
            reason = one_line(failure) if failure else reason
            raise GeneratorFailed(f"{self.model}: cannot receive new weights: {reason}") from failure
        return place.passed

    async def sleep(self) -> None:
        """Free the GPU memory of weights and KV cache, which are lost, until `wake`.

        The engine must have been loaded with `enable_sleep_mode`. Raises RuntimeError while rows are
        generated, and GeneratorFailed.
        """
        self._replace_weights()
        self._asleep = {"weights", "kv_cache"}
        try:
            # Level 1 would copy the weights to host memory, but all of them come from the trainer anyway.
            await self._engine.sleep(level=2)
        except Exception as error:
            raise GeneratorFailed(f"{self.model} cannot sleep: {one_line(error)}") from error

    async def wake(self, part: Part) -> None:
        """Allocate the memory of a part again, unless it is awake; raises GeneratorFailed.

        Before new weights are passed, wake the weights only, since passing takes extra memory; wake the KV
        cache afterwards.
        """
        if part not in self._asleep:
            return
        try:
            await self._engine.wake_up(tags=[part])
        except Exception as error:
            raise GeneratorFailed(f"{self.model} cannot wake up: {one_line(error)}") from error
        self._asleep.discard(part)

    def _replace_weights(self) -> None:
        """Generate nothing until all weights have been replaced. Raises RuntimeError if rows are running."""
        if self._clock.running:
            raise RuntimeError(f"the weights changed while {self._clock.running} rows were running")
        self._whole = False

    async def _ask(self, method: str, *arguments: Any) -> None:
        """Call a method of vLLM's workers; raises also if the engine dies, which vLLM may not report."""
        call = asyncio.ensure_future(self._engine.collective_rpc(method, args=arguments))
        while not (await asyncio.wait({call}, timeout=ALIVE))[0]:
            if self._engine.errored:
                call.cancel()
                raise GeneratorFailed("the engine has died")
        call.result()

    async def close(self) -> None:
        self._engine.shutdown()
        # A live reference would shut the engine down again when Python exits, which logs an error.
        del self._engine

    def _parameters(self, context: Context, sampling: Sampling) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        assert context.ids is not None
        return SamplingParams(
            **sampling.parameters,
            seed=sampling.seed & SEEDS,
            max_tokens=max(1, min(sampling.max_tokens, self._max_context - len(context.ids))),
            stop=list(context.prompt.stop),
            stop_token_ids=sorted(self.encoder.end_of_turn),
            # With 0 vLLM returns the logprob of the sampled token alone, and with None it returns none.
            logprobs=0,
            # vLLM finds a stop string that is a special token only if the text shows special tokens.
            skip_special_tokens=False,
            spaces_between_special_tokens=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    async def _output(self, ids: list[int], parameters: Any) -> Any:
        outputs: list[Any] = []
        try:
            request = self._engine.generate(
                {"prompt_token_ids": ids},
                parameters,
                f"row-{next(self._numbers)}",
                lora_request=self._adapter,
            )
            async for answer in request:
                outputs = answer.outputs
        except Exception as error:
            raise GeneratorFailed(f"{self.model}: {one_line(error)}") from error
        if not outputs or outputs[0].finish_reason not in ("stop", "length"):
            reason = outputs[0].finish_reason if outputs else "no answer"
            raise GeneratorFailed(f"{self.model}: vLLM aborted the request ({reason})")
        return outputs[0]

    def _completion(self, output: Any, context: Context) -> Completion:
        ids = tuple(output.token_ids)
        drawn = zip(ids, output.logprobs, strict=True)
        if output.finish_reason == "length":
            finish = Finish.LENGTH
        else:
            finish = Finish.STOP if output.stop_reason in context.prompt.stop else Finish.END
        assert context.ids is not None
        return Completion(
            text=self.encoder.decode(ids),
            finish=finish,
            token_ids=ids,
            logprobs=tuple(position[token].logprob for token, position in drawn),
            usage=Usage(prompt_tokens=len(context.ids), completion_tokens=len(ids)),
        )


def _with_adapter(adapter: Adapter) -> dict[str, Any]:
    """Return the engine's arguments for an adapter and its base model."""
    # Beyond the largest rank, the engine itself raises an error.
    rank = next((rank for rank in RANKS if rank >= adapter.rank), RANKS[-1])
    return {"model": adapter.base, "enable_lora": True, "max_lora_rank": rank}
