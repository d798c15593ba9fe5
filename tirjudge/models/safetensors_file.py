"""Safetensors files as numpy arrays, which have no bfloat16: https://huggingface.co/docs/safetensors."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
_TYPES = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}


def read(file: Path) -> dict[str, Array]:
    """Return the tensors of a file by name, in float32. Raises ValueError for one of another type."""
    with file.open("rb") as stream:
        header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
        data = np.memmap(file, np.uint8, "r", stream.tell())
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        if entry["dtype"] not in _TYPES:
            raise ValueError(f"{file}: {name} has the type {entry['dtype']}, not one of {', '.join(_TYPES)}")
        values = data[slice(*entry["data_offsets"])].view(_TYPES[entry["dtype"]]).reshape(entry["shape"])
        if entry["dtype"] == "BF16":  # the upper half of a float32
            values = (values.astype(np.uint32) << 16).view(np.float32)
        tensors[name] = values.astype(np.float32, copy=False)
    return tensors


def write_bfloat16(file: Path, shapes: Mapping[str, tuple[int, ...]], tensors: Iterable[Array]) -> None:
    """Write float32 tensors, in the order of their names, rounded to the nearest bfloat16, ties to even."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": (start, end)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with file.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for values in tensors:
            bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
            stream.write(((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16).tobytes())
