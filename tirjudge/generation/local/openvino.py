"""A generator that samples with OpenVINO, on a CPU, without torch and transformers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Self

import numpy as np

from tirjudge.generation.base import NEEDED
from tirjudge.generation.local.batch_generator import BatchGenerator, BatchRow, RowDecoder
from tirjudge.generation.local.chat_tokenizer import ChatTokenizer
from tirjudge.generation.local.openvino_graph import GRAPH, LIBRARIES, Array, graph_folder, read_config
from tirjudge.generation.local.paged_cache import PagedCache
from tirjudge.generation.local.sampling import draw_one
from tirjudge.generation.model_files import Adapter, load_failures, tokenizer_of, warn_of_other_base
from tirjudge.models.machine import check_memory, has_bfloat16, require
from tirjudge.models.resolve import model_folder
from tirjudge.storage.settings_text import json_file
from tirjudge_environments.tokenization import ChatEncoder

PASS_TOKENS = 2048
"""Tokens of all rows in one pass."""
_PRECISIONS = {"auto": "", "bfloat16": "bf16", "float32": "f32"}


class OpenvinoGenerator(BatchGenerator):
    """Samples from a Llama, Qwen 2, Qwen 3 or Phi 3 model, with continuous batching over a paged cache.

    The weights are in float16. The same seed and context give the same completion whatever else is in the
    batch, up to the last bits of the matrix products.
    """

    @classmethod
    def load(
        cls,
        path: str,
        *,
        max_rows: int = 32,
        max_context: int | None = None,
        threads: int | None = None,
        dtype: str = "auto",
        cache_bytes: int = 256 << 20,
        enable_thinking: bool | None = None,
    ) -> Self:
        """Load a model: a folder, also of a LoRA adapter, or any other name for `resolve_model`.

        Args:
            path: the model. The first call writes its graph into the cache, with the adapter merged.
            max_rows: at most so many rows run at once; the others wait in order.
            max_context: tokens of prompt and answer together; None is what the model's positions allow.
            threads: None is one for each core that this process may use.
            dtype: of the arithmetic: `bfloat16`, `float32`, or `auto`, which is bfloat16 if the CPU has
                instructions for it.
            cache_bytes: memory for keys and values; more is taken for a `max_context` that needs it.
            enable_thinking: see `ChatEncoder`.

        Raises GeneratorFailed, in one line, and ValueError for an unknown dtype and for a chat template that
        cannot be used.
        """
        if dtype not in _PRECISIONS:
            raise ValueError(f"dtype must be one of {', '.join(_PRECISIONS)}, not {dtype!r}")
        if dtype == "auto":
            dtype = "bfloat16" if has_bfloat16() else "float32"
        with load_failures(path):
            extra, modules = NEEDED["openvino"]
            require("a model in this process", modules, extra)
            folder = model_folder(path)
            adapter = Adapter.of(Path(folder))
            if adapter:
                adapter = replace(adapter, base=model_folder(adapter.base))
            base = Path(adapter.base if adapter else folder)
            config = read_config(base)
            graph = graph_folder(folder, adapter) / GRAPH
            size = graph.with_suffix(".bin").stat().st_size
            size *= 2 if dtype == "bfloat16" else 3  # the file, and the weights packed for the products
            check_memory(size + cache_bytes + LIBRARIES, f"the model {path}", "end other programs")
        if adapter:
            warn_of_other_base(folder, adapter.base)
        core, cpus = _core(), threads or len(os.sched_getaffinity(0))
        # Half of the time to load a small model is its compilation, and most of the other half the tokenizer.
        with ThreadPoolExecutor(1, thread_name_prefix="tirjudge-compile") as thread:
            compiling = thread.submit(_compiled, core, graph, cpus, _PRECISIONS[dtype])
            with load_failures(path):
                tokenizer, ends = ChatTokenizer(Path(model_folder(tokenizer_of(folder)))), _end_tokens(base)
                encoder = ChatEncoder(tokenizer, ends=ends, enable_thinking=enable_thinking)
            with load_failures(path):
                compiled = compiling.result()
                context = min(
                    max_context or config["max_position_embeddings"], config["max_position_embeddings"]
                )
                decoder = PagedDecoder(
                    compiled,
                    ends=encoder.end_of_turn,
                    max_rows=max_rows,
                    max_context=context,
                    cache_bytes=cache_bytes,
                )
        return cls(path, encoder, decoder, context)


def _end_tokens(folder: Path) -> list[int]:
    file = folder / "generation_config.json"
    ends = json_file(file).get("eos_token_id") if file.is_file() else None
    several = [ends] if isinstance(ends, int) else ends or []
    if not isinstance(several, list) or not all(isinstance(end, int) for end in several):
        raise ValueError(f"eos_token_id in {file} is {ends!r}, no token")
    return several


class PagedDecoder(RowDecoder):
    """Decodes rows over a paged cache of keys and values."""

    def __init__(
        self, compiled: Any, *, ends: Iterable[int], max_rows: int, max_context: int, cache_bytes: int
    ) -> None:
        """`compiled` is the compiled graph."""
        import openvino as ov

        super().__init__(ends, max_rows)
        self._tensor = ov.Tensor
        self._request = compiled.create_infer_request()
        caches = {
            name: (entry.element_type, [axis.get_length() for axis in list(entry.partial_shape)[1:]])
            for entry in compiled.inputs
            if "_cache." in (name := entry.get_any_name())
        }
        block = caches["value_cache.0"][1][1]
        bytes_of_block = sum(kind.size * int(np.prod(shape)) for kind, shape in caches.values())
        blocks = max(-(-max_context // block), cache_bytes // bytes_of_block)
        arrays = []
        for name, (kind, shape) in caches.items():
            # Zeros: in other memory, places without a token could be NaN. Pages are taken at the first write.
            arrays.append(np.zeros([blocks, *shape], np.uint16))
            self._request.set_tensor(name, ov.Tensor(arrays[-1], ov.Shape([blocks, *shape]), kind))
        self._cache = PagedCache(arrays, block)

    def forget(self) -> None:
        super().forget()
        self._cache.clear()

    def _sample(self) -> None:
        rows, feeds, left = [], [], PASS_TOKENS
        # Rows that decode come first, then contexts in order, as far as the pass has room for them.
        for row in sorted(self._rows, key=lambda row: row.pending > 0):
            if left:
                rows.append(row)
                feeds.append(row.ids[row.fed :][:left])
                left -= len(feeds[-1])
        logprobs = self._infer(rows, feeds)
        for row, ours in zip(rows, logprobs, strict=True):
            # A row that still has known tokens to feed takes no sample yet.
            if row.fed == len(row.ids):
                row.accept(*draw_one(ours, row.uniform, row.sampling), self._ends)

    def _leave(self, leaves: Callable[[BatchRow], bool]) -> list[BatchRow]:
        gone = [row for row in self._rows if leaves(row)]
        for row in gone:
            self._rows.remove(row)
            self._cache.leave(row, park=not row.cancelled)
        return gone

    def _admit(self) -> None:
        for row in list(self._waiting):
            if len(self._rows) == self._max_rows:
                break
            if self._cache.follows(row):
                continue
            if not self._cache.admit(row):
                break
            self._waiting.remove(row)
            self._rows.append(row)

    def _infer(self, rows: Sequence[BatchRow], feeds: Sequence[Sequence[int]]) -> Array:
        """Feed tokens of each row; return the log-probabilities of the next ones, `[rows, vocabulary]`."""
        lengths = np.array([len(feed) for feed in feeds])
        fed = np.array([row.fed for row in rows])
        used = -(-(fed + lengths) // self._cache.block)
        ends = lengths.cumsum()
        arrays = {
            "input_ids": np.concatenate([np.array(feed, np.int64) for feed in feeds]),
            "position_ids": np.concatenate(
                [
                    np.arange(start, start + length, dtype=np.int64)
                    for start, length in zip(fed, lengths, strict=True)
                ]
            ),
            "last": (ends - 1).astype(np.int64),
            "past_lens": fed.astype(np.int32),
            "subsequence_begins": np.concatenate([[0], ends]).astype(np.int32),
            "block_indices": np.concatenate(
                [self._cache.blocks[row][:count] for row, count in zip(rows, used, strict=True)]
            ).astype(np.int32),
            "block_indices_begins": np.concatenate([[0], used.cumsum()]).astype(np.int32),
            "max_context_len": np.array((fed + lengths).max(), np.int32),
        }
        for name, array in arrays.items():
            self._request.set_tensor(name, self._tensor(array))
        self._request.infer()
        for row, length in zip(rows, lengths, strict=True):
            row.fed += int(length)
        self.tokens_fed += int(ends[-1])
        logprobs: Array = self._request.get_output_tensor(0).data.reshape(len(rows), -1)
        return logprobs


@cache
def _core() -> Any:
    """Return the OpenVINO core of this process.

    Its CPU plugin gives signal handlers a stack and frees it in the end. With several cores, the freed stack
    of one core could stay in use, and the next signal would end the process.
    """
    import openvino as ov

    return ov.Core()


def _compiled(core: Any, graph: Path, threads: int, precision: str) -> Any:
    """Compile a graph with a paged cache in place of its own."""
    import openvino as ov
    from openvino._offline_transformations import paged_attention_transformation

    model = core.read_model(graph)
    for node in model.get_ops():
        # Marked as by OpenVINO's own compression, weights stay in float16 until packed. Else weights would be
        # unpacked to float32 first.
        if node.get_type_name() == "Convert" and node.get_input_element_type(0) == ov.Type.f16:
            node.get_rt_info()["decompression_0"] = ""
    paged_attention_transformation(model)
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "ENABLE_CPU_PINNING": False,
        "INFERENCE_PRECISION_HINT": precision,
        "KV_CACHE_PRECISION": "f16",
    }
    return core.compile_model(model, "CPU", settings)
