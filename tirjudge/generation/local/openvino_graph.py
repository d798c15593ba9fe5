"""A Llama, Qwen 2, Qwen 3 or Phi 3 model as a graph of OpenVINO, and the file that holds it."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tirjudge.generation.base import GeneratorFailed
from tirjudge.generation.model_files import CONFIG as ADAPTER_CONFIG
from tirjudge.generation.model_files import Adapter
from tirjudge.models import weights_sha256
from tirjudge.models.gguf_file import SOURCE_FILE, file_sha256, written_once
from tirjudge.models.machine import cache_folder, check_memory
from tirjudge.storage.settings_text import json_file

logger = logging.getLogger(__name__)

Array = np.ndarray[Any, np.dtype[Any]]
GRAPH = "model.xml"
_ADAPTER = "adapter_model.safetensors"
_LORA_PREFIX = "base_model.model."
_VERSION = 6
"""Raised with every change of the graph, so that files of an earlier one are not used."""
_PLAIN_LORA = {
    "bias": "none",
    "use_dora": False,
    "use_rslora": False,
    "rank_pattern": {},
    "alpha_pattern": {},
}
_ADDED = (True, False, "gaussian")
"""Values of `init_lora_weights` with which the factors are added to the base's weights, and nothing else."""
_TYPES = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}
_LONGEST_HEADER = 100_000_000
"""Bytes of a safetensors file's header, as its own library bounds them."""
_CONVERTING = 6
"""Bytes of memory per parameter while a graph is written: in float32, and in float16 in the graph."""
LIBRARIES = 300_000_000
"""Bytes of memory of OpenVINO beyond the weights, and beyond the cache of keys and values."""
_HIDDEN = -3e38
_MODELS = ("llama", "qwen2", "qwen3", "phi3")


def graph_folder(folder: str, adapter: Adapter | None, say: Callable[[str], None] = logger.warning) -> Path:
    """Return the folder of a model's graph, written at the first call; an adapter is merged into it.

    folder: of the model in safetensors, or of the adapter. Raises GeneratorFailed for a model that the
    graph does not compute, and ModelUnavailable.
    """
    base = Path(adapter.base if adapter else folder)
    identity = hashlib.sha256(f"{_VERSION} {weights_sha256(str(base))}".encode())
    if adapter:
        identity.update((Path(folder) / ADAPTER_CONFIG).read_bytes())
        identity.update(file_sha256(Path(folder) / _ADAPTER).encode())
    sha256 = identity.hexdigest()
    found = cache_folder() / f"{Path(folder).name}-openvino-{sha256[:16]}"
    if found.is_dir():
        return found

    def write(fresh: Path) -> None:
        import openvino

        config = json_file(base / "config.json")
        files = sorted(base.glob("*.safetensors"))
        parameters = sum(math.prod(entry["shape"]) for file in files for entry in _header(file)[0].values())
        check_memory(
            parameters * _CONVERTING + LIBRARIES,
            f"converting {Path(folder).name}",
            "end other programs, or give --generator transformers",
        )
        weights = {name: values for file in files for name, values in _read(file).items()}
        factors = _low_rank(Path(folder)) if adapter else {}
        for name, (down, up) in factors.items():
            if name not in weights or weights[name].shape != (len(up), down.shape[1]):
                raise GeneratorFailed(f"{folder!r} is an adapter of another model: see {name}")
        fresh.mkdir()
        # Compression would also round the frequencies of the rotary embedding.
        openvino.save_model(decoder(config, weights, factors), fresh / GRAPH, compress_to_fp16=False)
        source = {"file": str(folder), "sha256": sha256, "architecture": config["model_type"]}
        (fresh / SOURCE_FILE).write_text(json.dumps(source, indent=2) + "\n")

    return written_once(found, Path(folder).name, say, write)


def read_config(folder: Path) -> dict[str, Any]:
    """Return the config of a model. Raises GeneratorFailed for a model that the graph does not compute."""
    try:
        config: dict[str, Any] = json_file(folder / "config.json")
    except (OSError, ValueError) as error:
        raise GeneratorFailed(f"cannot load the model {str(folder)!r}: {error}") from error
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    plain = (
        config.get("model_type") in _MODELS
        # Older configs have the kind under `type`.
        and (rope.get("rope_type") or rope.get("type", "default")) == "default"
        and rope.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0)) == 1.0
        and config.get("hidden_act", "silu") == "silu"
        and not _slides(config)
    )
    if not plain:
        raise GeneratorFailed(
            f"{str(folder)!r} is no plain Llama, Qwen 2, Qwen 3 or Phi 3 model, and the generator openvino "
            "runs no other: give --generator transformers"
        )
    return config


def _slides(config: dict[str, Any]) -> bool:
    """Return True if a layer attends to the last tokens of a long context alone."""
    if "layer_types" in config:
        return set(config["layer_types"]) != {"full_attention"}
    # Configs of Qwen name a window that they do not use.
    window = config.get("sliding_window") if config.get("use_sliding_window", True) else None
    return window is not None and window < config["max_position_embeddings"]


def _header(file: Path) -> tuple[dict[str, Any], int]:
    """Return the entries of a safetensors file by the names of its tensors, and the offset of their data.

    Raises ValueError for another file, for a type that is not read, and for tensors beyond the file's end.
    """
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if length > _LONGEST_HEADER:
            raise ValueError(f"{file} is no safetensors file")
        try:
            header: dict[str, Any] = json.loads(stream.read(length))
            header.pop("__metadata__", None)
            entries = [
                (name, entry["dtype"], entry["shape"], entry["data_offsets"])
                for name, entry in header.items()
            ]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise ValueError(f"{file} is no safetensors file") from None
        start = stream.tell()
    size = file.stat().st_size - start
    for name, dtype, shape, (begin, end) in entries:
        if dtype not in _TYPES:
            raise ValueError(f"{file}: {name} has the type {dtype}, not one of {', '.join(_TYPES)}")
        length = math.prod(shape) * np.dtype(_TYPES[dtype]).itemsize
        if not 0 <= begin <= end <= size or end - begin != length or any(axis < 0 for axis in shape):
            raise ValueError(f"{file}: {name} is not as long as its shape says, or not in the file")
    return header, start


def _read(file: Path) -> dict[str, Array]:
    """Return the tensors of a safetensors file by name, in float32; raises ValueError as `_header` does."""
    header, start = _header(file)
    data, tensors = np.memmap(file, np.uint8, "r", start), {}
    for name, entry in header.items():
        values = data[slice(*entry["data_offsets"])].view(_TYPES[entry["dtype"]]).reshape(entry["shape"])
        if entry["dtype"] == "BF16":  # the upper half of a float32
            values = (values.astype(np.uint32) << 16).view(np.float32)
        tensors[name] = values.astype(np.float32, copy=False)
    return tensors


def _low_rank(folder: Path) -> dict[str, tuple[Array, Array]]:
    """Return the two factors of a LoRA adapter for each weight, `[rank, in]` and, scaled, `[out, rank]`."""
    config = json_file(folder / ADAPTER_CONFIG)
    other = [name for name, plain in _PLAIN_LORA.items() if config.get(name, plain) != plain]
    other += ["modules_to_save"] if config.get("modules_to_save") else []
    other += [] if config.get("init_lora_weights", True) in _ADDED else ["init_lora_weights"]
    if other:
        raise GeneratorFailed(
            f"{str(folder)!r} is an adapter with {', '.join(other)}, which only the generator transformers "
            "takes"
        )
    factors, rank = _read(folder / _ADAPTER), config["r"]
    scale = np.float32(config["lora_alpha"] / rank)
    found = {
        name.removeprefix(_LORA_PREFIX).replace(".lora_A.weight", ".weight"): (
            down,
            scale * factors.get(name.replace(".lora_A.", ".lora_B."), np.zeros(0)),
        )
        for name, down in factors.items()
        if ".lora_A." in name
    }
    for name, (down, up) in found.items():
        if (down.ndim, up.ndim) != (2, 2) or not len(down) == up.shape[1] == rank:
            raise GeneratorFailed(f"{str(folder)!r} is no adapter of rank {rank}: see {name}")
    # The graph adds factors to the matrices of the layers alone: those of the embedding and of the output
    # layer, biases and whole weights would be left out.
    if (
        not found
        or len(factors) > 2 * len(found)
        or not all(name.startswith("model.layers.") for name in found)
    ):
        raise GeneratorFailed(
            f"{str(folder)!r} is an adapter of other weights than the matrices of the layers, which only the "
            "generator transformers takes"
        )
    return found


def decoder(
    config: dict[str, Any], weights: dict[str, Array], adapter: dict[str, tuple[Array, Array]]
) -> Any:
    """Return the graph of a model with a paged cache of keys and values, and weights in float16.

    `adapter`: see `_low_rank`; empty for none.

    Inputs beside those of the cache: `input_ids` and `position_ids`, `[tokens]`, of all rows in a row, and
    `last`, `[rows]`, the places of the tokens whose successors are wanted. Output: their log-probabilities,
    `[rows, vocabulary]`, in float32.
    """
    import openvino as ov
    from openvino import opset13 as op
    from openvino.op.util import Variable, VariableInfo

    layers, heads = config["num_hidden_layers"], config["num_attention_heads"]
    groups = config.get("num_key_value_heads") or heads
    size = config.get("head_dim") or config["hidden_size"] // heads
    theta = (config.get("rope_parameters") or config).get("rope_theta", 10_000.0)

    def parameter(name: str, shape: list[int], kind: Any = ov.Type.i64) -> Any:
        made = op.parameter(shape, kind, name=name)
        made.output(0).get_tensor().set_names({name})
        return made

    def whole(*values: int) -> Any:
        return op.constant(np.array(values, np.int64))

    def merged(name: str) -> Array:
        rows = weights[name]
        if name in adapter:
            down, up = adapter[name]
            rows = rows + up @ down
        return rows

    def weight(rows: Array) -> Any:
        return op.convert(op.constant(rows.astype(np.float16)), "f32")

    def linear(x: Any, name: str, rows: Array | None = None) -> Any:
        made = op.matmul(x, weight(merged(name) if rows is None else rows), False, True)
        bias = weights.get(name.replace(".weight", ".bias"))
        return made if bias is None else op.add(made, op.constant(bias.reshape(1, 1, -1)))

    def parts(x: Any, module: str, fused: str, sizes: dict[str, int]) -> list[Any]:
        """Multiply by several matrices, which Phi 3 stores as one."""
        if (name := f"{module}{fused}.weight") not in weights:
            return [linear(x, f"{module}{part}.weight") for part in sizes]
        cuts = np.cumsum(list(sizes.values()))[:-1]
        return [linear(x, name, rows) for rows in np.split(merged(name), cuts)]

    def norm(x: Any, name: str) -> Any:
        mean = op.reduce_mean(op.power(x, op.constant(np.array([[[2]]], np.float32))), whole(-1), True)
        scale = op.sqrt(op.add(mean, op.constant(np.array([[[config["rms_norm_eps"]]]], np.float32))))
        scaled = op.multiply(x, op.divide(op.constant(np.array([[[1]]], np.float32)), scale))
        return op.multiply(op.constant(weights[name].reshape(1, 1, -1)), scaled)

    ids, positions = parameter("input_ids", [-1, -1]), parameter("position_ids", [-1, -1])
    mask, last = parameter("attention_mask", [-1, -1]), parameter("last", [-1])
    beams = parameter("beam_idx", [-1], ov.Type.i32)
    zero, one = op.constant(np.int64(0)), op.constant(np.int64(1))
    minus = op.constant(np.array([[[[-1]]]], np.float32))

    embedding = weight(merged("model.embed_tokens.weight"))
    h = op.gather(embedding, op.convert(ids, "i32"), op.constant(np.int32(0)))

    # Rotary embeddings, https://arxiv.org/abs/2104.09864
    inverse = (1 / theta ** (np.arange(0, size, 2, dtype=np.float64) / size)).astype(np.float32)
    places = op.convert(op.unsqueeze(positions, whole(2)), "f32")
    angles = op.multiply(places, op.constant(inverse.reshape(1, 1, -1)))
    angles = op.unsqueeze(op.concat([angles, angles], -1), whole(1))
    cosine, sine = op.cos(angles), op.sin(angles)

    def rotated(x: Any) -> Any:
        low = op.slice(x, whole(0), whole(size // 2), whole(1), whole(3))
        high = op.slice(x, whole(size // 2), whole(2**31 - 1), whole(1), whole(3))
        turned = op.concat([op.multiply(high, minus), low], -1)
        return op.add(op.multiply(x, cosine), op.multiply(turned, sine))

    # The transformation to a paged cache looks for this mask, and removes it.
    batch = op.gather(op.shape_of(ids), zero, zero)
    total = op.gather(op.shape_of(mask), one, zero)
    past = op.subtract(total, op.gather(op.shape_of(ids), one, zero))
    queries = op.unsqueeze(op.range(past, total, one, "i64"), whole(1))
    keys = op.unsqueeze(op.range(zero, total, one, "i64"), whole(0))
    seen = op.unsqueeze(op.convert(mask, "boolean"), whole(1, 2))
    allowed = op.logical_and(op.unsqueeze(op.less_equal(keys, queries), whole(0, 1)), seen)
    bias = op.select(allowed, op.constant(np.float32(0)), op.constant(np.float32(_HIDDEN)))

    assigned = []

    def cached(x: Any, name: str) -> Any:
        info = VariableInfo()
        info.data_shape, info.data_type = ov.PartialShape([-1, groups, -1, size]), ov.Type.f32
        info.variable_id = name
        variable = Variable(info)
        empty = op.broadcast(
            op.constant(np.float32(0)), op.concat([op.unsqueeze(batch, zero), whole(groups, 0, size)], 0)
        )
        before = op.gather(op.read_value(empty, variable), beams, zero)
        both = op.concat([before, x], 2)
        assigned.append(op.assign(both, variable))
        shape = op.concat(
            [
                op.unsqueeze(batch, zero),
                whole(groups, heads // groups),
                op.unsqueeze(total, zero),
                whole(size),
            ],
            0,
        )
        spread = op.broadcast(op.unsqueeze(both, whole(2)), shape, "BIDIRECTIONAL")
        return op.reshape(spread, whole(0, heads, -1, size), True)

    def split(x: Any, count: int, norm_name: str = "") -> Any:
        apart = op.reshape(x, whole(0, 0, count, size), True)
        return op.transpose(norm(apart, norm_name) if norm_name in weights else apart, whole(0, 2, 1, 3))

    for number in range(layers):
        layer = f"model.layers.{number}."
        attention, past_name = f"{layer}self_attn.", f"past_key_values.{number}."
        x = norm(h, f"{layer}input_layernorm.weight")
        widths = {"q_proj": heads * size, "k_proj": groups * size, "v_proj": groups * size}
        query, key, value = parts(x, attention, "qkv_proj", widths)
        query = rotated(split(query, heads, f"{attention}q_norm.weight"))
        key = rotated(split(key, groups, f"{attention}k_norm.weight"))
        key = cached(key, f"{past_name}keypresent.{number}.key")
        value = cached(split(value, groups), f"{past_name}valuepresent.{number}.value")
        attended = op.scaled_dot_product_attention(
            query, key, value, bias, op.constant(np.float32(size**-0.5)), causal=False
        )
        attended = op.reshape(op.transpose(attended, whole(0, 2, 1, 3)), whole(0, 0, heads * size), True)
        h = op.add(h, linear(attended, f"{attention}o_proj.weight"))
        x = norm(h, f"{layer}post_attention_layernorm.weight")
        widths = dict.fromkeys(("gate_proj", "up_proj"), config["intermediate_size"])
        gate, up = parts(x, f"{layer}mlp.", "gate_up_proj", widths)
        h = op.add(h, linear(op.multiply(op.swish(gate), up), f"{layer}mlp.down_proj.weight"))

    head = embedding if config.get("tie_word_embeddings") else weight(merged("lm_head.weight"))
    wanted = op.gather(norm(h, "model.norm.weight"), last, zero)
    logits = op.log_softmax(op.matmul(wanted, head, False, True), -1)
    return ov.Model([op.result(logits)], assigned, [ids, mask, positions, beams, last], config["model_type"])
