"""Conversion of a model from GGUF without torch and transformers, into the folder that those write.

It knows Llama, Qwen 2 and Qwen 3 with the tokenizers in `PRE_TOKENIZERS`; transformers converts other files.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
PRE_TOKENIZERS = {
    "smollm": "",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
"""The published pattern that splits a text before byte-level BPE, by GGUF's name; empty for GPT-2's own."""
_CONTROL = 3
"""GGUF's type of a token that no text contains."""
_USER_DEFINED = 4
"""GGUF's type of a token that a text contains as a whole, such as `<think>`."""
_PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "token_embd": "embed_tokens",
    "output_norm": "norm",
}
"""Names of tensors in GGUF, and in transformers."""
_HEAD = "lm_head.weight"


def is_known(metadata: dict[str, Any]) -> bool:
    """Return True for a file that this module converts."""
    return (
        (architecture := metadata["general.architecture"]) in ARCHITECTURES
        and metadata.get("tokenizer.ggml.model") == "gpt2"
        and metadata.get("tokenizer.ggml.pre") in PRE_TOKENIZERS
        and f"{architecture}.rope.scaling.type" not in metadata
    )


def write(
    metadata: dict[str, Any],
    tensors: dict[str, tuple[tuple[int, ...], int, int]],
    data: Array,
    folder: Path,
    say: Callable[[str], None],
) -> None:
    """Write the weights in bfloat16, the config and the tokenizer into a new folder.

    `tensors`: by GGUF's name, the shape, GGUF's number of the type, and the offset in the bytes `data`.
    """
    folder.mkdir()
    config = _config(metadata)
    say("  reading the weights")
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    paired = heads if config["model_type"] == "llama" else {}

    def values() -> Iterator[Array]:
        for name, (shape, kind, offset) in tensors.items():
            found, part = _dequantized(data[offset:], shape, kind), name.split(".")[-2]
            if part in paired:
                # GGUF puts the two halves of each rotated pair of a Llama side by side.
                found = found.reshape(paired[part], -1, 2, *shape[1:]).swapaxes(1, 2).reshape(shape)
            yield found

    shapes = {_renamed(name): shape for name, (shape, _, _) in tensors.items()}
    config["tie_word_embeddings"] = _HEAD not in shapes
    # One tensor at a time is in memory.
    _write_bfloat16(folder / "model.safetensors", shapes, values())
    say("  reading the tokenizer")
    _write_tokenizer(metadata, folder)
    generation = {
        name: config[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id") if name in config
    }
    for name, content in (("config.json", config), ("generation_config.json", generation)):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n")


def _renamed(name: str) -> str:
    *block, part, kind = name.split(".")  # blk.7.attn_q.weight, or output_norm.weight
    layer = f"layers.{block[1]}." if block else ""
    return _HEAD if part == "output" else f"model.{layer}{_PARTS[part]}.{kind}"


def _dequantized(data: Array, shape: tuple[int, ...], kind: int) -> Array:
    """Return the values of a tensor in float32; `data` begins with its bytes."""
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize, quant_shape_to_byte_shape

    stored = quant_shape_to_byte_shape(shape, GGMLQuantizationType(kind))
    values: Array = dequantize(data[: math.prod(stored)].reshape(stored), GGMLQuantizationType(kind))
    return values.astype(np.float32, copy=False)


def _config(metadata: dict[str, Any]) -> dict[str, Any]:
    architecture = metadata["general.architecture"]
    own = f"{architecture}."
    model = {name.removeprefix(own): value for name, value in metadata.items() if name.startswith(own)}
    tokens = {name: metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos", "padding")}
    heads = model["attention.head_count"]
    return {
        "architectures": [ARCHITECTURES[architecture]],
        "model_type": architecture,
        **({} if architecture == "qwen2" else {"attention_bias": False}),
        **({"mlp_bias": False} if architecture == "llama" else {}),
        "hidden_act": "silu",
        "dtype": "bfloat16",
        "hidden_size": model["embedding_length"],
        "head_dim": model.get("attention.key_length", model["embedding_length"] // heads),
        "intermediate_size": model["feed_forward_length"],
        "max_position_embeddings": model["context_length"],
        "num_attention_heads": heads,
        "num_hidden_layers": model["block_count"],
        "num_key_value_heads": model.get("attention.head_count_kv", heads),
        "rms_norm_eps": model["attention.layer_norm_rms_epsilon"],
        "rope_parameters": {"rope_theta": model.get("rope.freq_base", 10_000.0), "rope_type": "default"},
        "vocab_size": len(metadata["tokenizer.ggml.tokens"]),
        "bos_token_id": tokens["bos"],
        "eos_token_id": tokens["eos"],
        "pad_token_id": tokens["padding"],
    }


def _write_tokenizer(metadata: dict[str, Any], folder: Path) -> None:
    from tokenizers import (
        AddedToken,
        Regex,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
    )

    content = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    vocabulary = {text: number for number, text in enumerate(content)}
    affixes = {"continuing_subword_prefix": "", "end_of_word_suffix": ""}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, **affixes))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if pattern := PRE_TOKENIZERS[metadata["tokenizer.ggml.pre"]]:
        tokenizer.normalizer = normalizers.NFC()
        whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        cut = pre_tokenizers.Split(Regex(pattern), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([cut, whole])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A", pair="$A $B:1", special_tokens=[])
    kinds = metadata["tokenizer.ggml.token_type"]
    whole_texts = [
        AddedToken(text, special=kind == _CONTROL, normalized=False)
        for text, kind in zip(content, kinds, strict=True)
        if kind in (_CONTROL, _USER_DEFINED)
    ]
    tokenizer.add_tokens(whole_texts)
    tokenizer.save(str(folder / "tokenizer.json"))
    named = {"bos": "bos", "eos": "eos", "pad": "padding", "unk": "unknown"}
    settings = {
        f"{ours}_token": content[metadata[f"tokenizer.ggml.{theirs}_token_id"]]
        for ours, theirs in named.items()
        if f"tokenizer.ggml.{theirs}_token_id" in metadata
    }
    settings |= {"backend": "tokenizers", "tokenizer_class": "TokenizersBackend"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    if "tokenizer.chat_template" in metadata:
        (folder / "chat_template.jinja").write_text(metadata["tokenizer.chat_template"])


def _write_bfloat16(file: Path, shapes: Mapping[str, tuple[int, ...]], tensors: Iterable[Array]) -> None:
    """Write float32 tensors as safetensors, in the order of their names, rounded to the nearest bfloat16.

    Ties are rounded to even.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": (start, end)}
    text = json.dumps(header).encode()
    # Spaces may end the header of safetensors; with them the data begins at a multiple of 8 bytes.
    text += b" " * (-len(text) % 8)
    with file.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for values in tensors:
            bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
            stream.write(((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16).tobytes())
