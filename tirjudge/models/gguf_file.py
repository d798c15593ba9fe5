"""GGUF files: their header, and their conversion into a model folder that transformers loads directly."""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import shutil
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr
from dataclasses import dataclass, field
from functools import cache, lru_cache
from io import StringIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tirjudge.console_text import first_line
from tirjudge.models import gguf_conversion
from tirjudge.models.machine import (
    LOCAL,
    ModelUnavailable,
    cache_folder,
    check_disk,
    check_memory,
    complete,
    require,
)

MAGIC = b"GGUF"
SOURCE_FILE = "source.json"
"""The file in a converted folder that names the GGUF file and its checksum."""
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Types of metadata values, by GGUF's number, as struct's letters."""
_STRING, _ARRAY = 8, 9
_ALIGNMENT = 32
_MOST_DEPTH = 8
_MOST_DIMENSIONS = 8
"""Twice as many as ggml's tensors can have."""
_STORED = 2
"""Bytes of a converted parameter on disk: bfloat16."""
_CONVERTING = 5
"""Bytes of memory per parameter during a conversion; 944 MB in all were measured for 135 M parameters."""
_LIBRARIES = 600_000_000
"""Bytes of memory of torch, transformers and the tokenizer."""


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """The header of a GGUF file."""

    architecture: str
    parameters: int
    metadata: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    tensors: dict[str, tuple[tuple[int, ...], int, int]] = field(
        default_factory=dict, compare=False, repr=False
    )
    """By name: the shape, rows first, GGUF's number of the type, and the offset in the data."""
    start: int = field(default=0, compare=False)
    """Bytes before the data."""


def is_gguf(file: Path) -> bool:
    """Return True for a file that begins like a GGUF file."""
    with file.open("rb") as stream:
        return stream.read(len(MAGIC)) == MAGIC


def file_sha256(file: Path) -> str:
    """Return the checksum of a file in hexadecimal digits; a file that has not changed is read once."""
    state = file.stat()
    return _sha256(file.resolve(), state.st_size, state.st_mtime_ns, state.st_ino)


@lru_cache(maxsize=256)
def _sha256(file: Path, *_state: int) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def converted_folder(name: str, sha256: str) -> Path:
    """Return the cache folder of a converted GGUF file, which need not exist yet."""
    return cache_folder() / f"{name}-{sha256[:16]}"


def converted(file: Path, sha256: str, say: Callable[[str], None]) -> Path:
    """Return the folder of a GGUF file's bfloat16 weights and tokenizer, converting it at the first call.

    Processes that convert the same file wait for each other. A conversion that is interrupted leaves nothing
    that would be taken for a model. Raises ModelUnavailable.
    """
    folder = converted_folder(file.stem, sha256)
    if folder.is_dir():
        return folder
    header = read_header(file)
    known = gguf_conversion.is_known(header.metadata)
    needed = (("gguf", "tokenizers"), "fast") if known else ((*LOCAL, "gguf"), "local")
    require(f"converting {file.name}", *needed)
    return written_once(folder, file.name, say, lambda fresh: _convert(file, sha256, header, fresh, say))


def written_once(folder: Path, name: str, say: Callable[[str], None], write: Callable[[Path], None]) -> Path:
    """Return a folder of the cache, which `write` makes at the first call; no process ever sees a part of it.

    `name`: what is converted, for messages. Raises ModelUnavailable.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder, say):
            if not folder.is_dir():  # another process may have finished while this one waited
                fresh = _partial(folder)
                # Under the lock this can only be what a killed process left.
                shutil.rmtree(fresh, ignore_errors=True)
                say(f"converting {name} into {folder}, once")
                start = time.monotonic()
                try:
                    write(fresh)
                    fresh.rename(folder)
                finally:
                    shutil.rmtree(fresh, ignore_errors=True)
                say(f"converted {name} in {time.monotonic() - start:.0f} s")
    except OSError as error:
        raise ModelUnavailable(
            f"{name} cannot be converted into {folder.parent}: {error.strerror or error}: "
            "free space or name another cache folder with XDG_CACHE_HOME"
        ) from error
    return folder


def remove_converted(folder: Path) -> None:
    """Remove a converted folder; no process ever sees a part of it."""
    with _locked(folder, lambda line: None):
        leftover = _partial(folder)
        shutil.rmtree(leftover, ignore_errors=True)
        folder.rename(leftover)
        shutil.rmtree(leftover)


def _partial(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.partial")


@contextmanager
def _locked(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of a conversion. The file stays: removing it would let two processes hold a lock."""
    with folder.with_name(f".{folder.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that converts {folder.name}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _convert(file: Path, sha256: str, header: GgufHeader, folder: Path, say: Callable[[str], None]) -> None:
    check_disk(
        header.parameters * _STORED * 11 // 10,
        folder.parent,
        f"converting {file.name}",
        "free space or name another cache folder with XDG_CACHE_HOME",
    )
    check_memory(
        header.parameters * _CONVERTING + _LIBRARIES,
        f"converting {file.name}",
        "end other programs, or serve the file with llama.cpp and give --base-url",
    )
    _write(file, header, folder, say)
    source = {"file": file.name, "sha256": sha256, "architecture": header.architecture}
    (folder / SOURCE_FILE).write_text(json.dumps(source, indent=2) + "\n")


def _write(file: Path, header: GgufHeader, folder: Path, say: Callable[[str], None]) -> None:
    """Write the weights and the tokenizer of a GGUF file as transformers reads them.

    Our own conversion of the models that it knows takes no torch, and a fifth of the time.
    """
    if gguf_conversion.is_known(header.metadata):
        data = np.memmap(file, np.uint8, "r", header.start)
        try:
            gguf_conversion.write(header.metadata, header.tensors, data, folder, say)
        except (MemoryError, OSError):
            raise
        except Exception as error:  # shapes, vocabulary and merges of a damaged file, of three libraries
            raise ModelUnavailable(
                f"{file.name} is damaged ({first_line(error)}): download it again"
            ) from error
        return
    import gguf
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    named = {"gguf_file": file.name, "trust_remote_code": False}
    try:
        with _parsed_once(gguf):
            say("  reading the weights")
            with _quiet():
                model: Any = complete(
                    AutoModelForCausalLM.from_pretrained(
                        file.parent, dtype=torch.bfloat16, output_loading_info=True, **named
                    )
                )
            say("  reading the tokenizer")
            with _quiet():
                tokenizer = AutoTokenizer.from_pretrained(file.parent, **named)
    except MemoryError:
        raise
    except Exception as error:  # transformers raises whatever its parsers happen to
        raise ModelUnavailable(
            f"{file.name} (architecture {header.architecture!r}) cannot be read by transformers: "
            f"{first_line(error)}: give the model's safetensors folder, or serve the file with llama.cpp and "
            "give --base-url"
        ) from error
    # The weights are plain tensors by now; these marks only make save_pretrained refuse them.
    model.hf_quantizer, model.is_quantized = None, False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    # Whichever process of a launch holds the lock writes, while transformers leaves that to the first one.
    model.should_save_on_this_rank = lambda is_main_process: True
    with _quiet():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


@contextmanager
def _parsed_once(gguf: Any) -> Iterator[None]:
    """Let transformers parse the file once and list the architecture's tensors once.

    It does the first three times, and the second for each module of the model, which took half of the 37 CPU
    seconds of a conversion.
    """
    reader, name_map = gguf.GGUFReader, gguf.get_tensor_name_map
    gguf.GGUFReader, gguf.get_tensor_name_map = cache(reader), cache(name_map)
    try:
        yield
    finally:
        gguf.GGUFReader, gguf.get_tensor_name_map = reader, name_map


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence transformers' warnings, which are about other uses of a GGUF file, and most progress bars."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    # One bar is always drawn. In a log file it would be one line of thousands of characters.
    bar = nullcontext() if sys.stderr.isatty() else redirect_stderr(StringIO())
    try:
        with bar:
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def read_header(file: Path) -> GgufHeader:
    """Return the header of a GGUF file; takes a fraction of a second, unlike gguf's own reader.

    Raises ModelUnavailable for a file that is cut off or damaged.
    """
    try:
        with file.open("rb") as stream:
            return _Reader(stream).header()
    except (_Damaged, struct.error, KeyError, UnicodeDecodeError, OverflowError, MemoryError) as error:
        raise ModelUnavailable(
            f"{file} is not a complete GGUF file ({first_line(error)}): download it again"
        ) from error


class _Damaged(Exception):
    """A header that no model has."""


class _Reader:
    """Reads GGUF, version 2 and 3, little-endian: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def header(self) -> GgufHeader:
        self._stream.seek(len(MAGIC))
        _version, tensors, values = self._numbers("IQQ")
        metadata: dict[str, Any] = {}
        for _ in range(values):
            key = self._string()
            metadata[key] = self._value(*self._numbers("I"))
        found = dict(self._tensor() for _ in range(tensors))
        parameters = sum(math.prod(shape) for shape, _, _ in found.values())
        alignment = metadata.get("general.alignment", _ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1:
            raise _Damaged(f"an alignment of {alignment}")
        start = -(-self._stream.tell() // alignment) * alignment
        return GgufHeader(str(metadata["general.architecture"]), parameters, metadata, found, start)

    def _tensor(self) -> tuple[str, tuple[tuple[int, ...], int, int]]:
        name = self._string()
        (dimensions,) = self._numbers("I")
        if dimensions > _MOST_DIMENSIONS:
            raise _Damaged(f"a tensor of {dimensions} dimensions")
        # GGUF writes the fastest dimension first.
        shape = self._numbers(f"{dimensions}Q")[::-1]
        kind, offset = self._numbers("IQ")
        return name, (shape, kind, offset)

    def _value(self, kind: int, depth: int = 1) -> Any:
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            return self._numbers(_SCALARS[kind])[0]
        inner, length = self._numbers("IQ")
        if inner == _ARRAY and depth == _MOST_DEPTH:
            raise _Damaged(f"arrays in more than {_MOST_DEPTH} arrays")
        if inner in (_STRING, _ARRAY):
            return [self._value(inner, depth + 1) for _ in range(length)]
        return list(self._numbers(f"{length}{_SCALARS[inner]}"))

    def _string(self) -> str:
        (length,) = self._numbers("Q")
        return self._stream.read(length).decode()

    def _numbers(self, letters: str) -> tuple[Any, ...]:
        layout = f"<{letters}"
        return struct.unpack(layout, self._stream.read(struct.calcsize(layout)))
