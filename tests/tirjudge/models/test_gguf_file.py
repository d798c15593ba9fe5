"""Conversion of GGUF files: the wheel's real one, and small ones that gguf writes."""

from __future__ import annotations

import hashlib
import json
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tokenizers import AddedToken, Tokenizer
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, Qwen2Tokenizer

from tests.tirjudge.smollm2 import needs_smollm2, wheel_file
from tests.tirjudge.tiny_models import bpe_tokenizer, tiny_llama, tiny_qwen2, tiny_qwen3
from tirjudge.models import SMOL, ModelUnavailable, gguf_conversion, gguf_file, machine, resolve_model
from tirjudge.models.gguf_file import GgufHeader, file_sha256, read_header
from tirjudge.models.machine import cache_folder

CONVERT = "import sys; from tirjudge.models import resolve_model; print(resolve_model(sys.argv[1]))"
CONVERT_IN_A_GROUP = """
import sys, time
from torch import distributed
from tirjudge.models import resolve_model

name, group, rank = sys.argv[1], sys.argv[2], int(sys.argv[3])
distributed.init_process_group("gloo", init_method=group, rank=rank, world_size=2)
time.sleep(1 - rank)  # the second process comes first
print(resolve_model(name))
distributed.barrier()
distributed.destroy_process_group()
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def written(file: Path, architecture: str) -> Path:
    """Write a file with every kind of metadata value that the format has, and two tensors."""
    writer = gguf.GGUFWriter(file, architecture)
    writer.add_uint32("x.number", 3)
    writer.add_float64("x.real", 0.5)
    writer.add_bool("x.switch", True)
    writer.add_array("x.words", ["a", "bc", ""])
    writer.add_array("x.numbers", [1, 2, 3])
    writer.add_array("x.nested", [[1, 2], [3]])
    writer.add_tensor("a", np.ones((3, 5), dtype=np.float32))
    writer.add_tensor("b", np.ones(7, dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def leftovers() -> list[str]:
    """Return the names in the cache, locks excepted."""
    return [path.name for path in cache_folder().glob("*") if not path.name.endswith(".lock")] + [
        path.name for path in cache_folder().glob(".*") if not path.name.endswith(".lock")
    ]


def test_the_header_of_a_file(tmp_path: Path) -> None:
    assert read_header(written(tmp_path / "x.gguf", "abacus")) == GgufHeader("abacus", 22)


def test_a_file_is_read_once_for_its_checksum_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    digest = hashlib.file_digest

    def counted(stream: Any, name: str) -> Any:
        read.append(stream.name)
        return digest(stream, name)

    monkeypatch.setattr(hashlib, "file_digest", counted)
    file = written(tmp_path / "x.gguf", "abacus")
    for _ in range(5):
        with pytest.raises(ModelUnavailable):
            resolve_model(str(file), lambda line: None)
    assert len(read) == 1
    file.write_bytes(file.read_bytes() + b"more")
    assert file_sha256(file) == hashlib.sha256(file.read_bytes()).hexdigest()
    assert len(read) == 2


def test_an_unknown_architecture_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable) as raised:
        resolve_model(str(written(tmp_path / "x.gguf", "abacus")), lambda line: None)
    line = str(raised.value)
    assert line.startswith("x.gguf (architecture 'abacus') cannot be read by transformers: ")
    assert line.endswith("serve the file with llama.cpp and give --base-url")
    assert "\n" not in line
    assert leftovers() == []


def test_a_file_that_is_cut_off_is_one_line(tmp_path: Path) -> None:
    whole = written(tmp_path / "x.gguf", "llama").read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[:40])
    with pytest.raises(
        ModelUnavailable, match=r"cut\.gguf is not a complete GGUF file .*: download it again$"
    ):
        resolve_model(str(tmp_path / "cut.gguf"), lambda line: None)


@needs_smollm2
@pytest.mark.parametrize("lacking", ["memory", "disk"])
def test_too_little_memory_or_disk_is_one_line(
    lacking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 100 kB\nMemAvailable: 100000 kB\n")
    if lacking == "memory":
        monkeypatch.setattr(machine, "MEMORY", tmp_path / "meminfo")
    else:
        monkeypatch.setattr(machine.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10**6}))
    reason = "102 MB are free" if lacking == "memory" else "1 MB are free: free space"
    with pytest.raises(ModelUnavailable, match=rf"^converting {SMOL.file} needs [^\n]*{reason}[^\n]*$"):
        resolve_model(str(wheel_file()), lambda line: None)
    assert leftovers() == []


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(
        ModelUnavailable, match=r"cannot be converted into .*: Not a directory: free space or"
    ):
        resolve_model(str(written(tmp_path / "x.gguf", "llama")), lambda line: None)


@needs_smollm2
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_processes_convert_once_and_a_killed_one_leaves_no_model(tmp_path: Path) -> None:
    """Killed in the middle; then two of a launch at once, of which the second one converts."""
    command = [sys.executable, "-c", CONVERT, "smol"]
    killed = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert killed.stderr is not None
    while "reading the tokenizer" not in killed.stderr.readline():
        assert killed.poll() is None
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert not SMOL.folder().exists()

    command = [sys.executable, "-c", CONVERT_IN_A_GROUP, "smol", f"file://{tmp_path}/group"]
    both = [
        subprocess.Popen([*command, rank], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for rank in "01"
    ]
    said = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert {output for output, _ in said} == {f"{SMOL.folder()}\n"}
    lines = "".join(errors for _, errors in said)
    assert lines.count("converting ") == lines.count("converted ") == 1
    assert "waiting for another process" in lines
    assert leftovers() == [SMOL.folder().name]

    tensors = load_file(SMOL.folder() / "model.safetensors")
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    assert sum(tensor.numel() for tensor in tensors.values()) == read_header(wheel_file()).parameters
    # The embedding is the first tensor whose values gguf itself can unpack for comparison.
    (stored,) = (one for one in gguf.GGUFReader(wheel_file()).tensors if one.name == "token_embd.weight")
    expected = torch.from_numpy(gguf.dequantize(stored.data, stored.tensor_type)).to(torch.bfloat16)
    assert torch.equal(tensors["model.embed_tokens.weight"], expected)
    assert (SMOL.folder() / "chat_template.jinja").read_text().startswith("{% for message in messages %}")


@needs_smollm2
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_our_conversion_writes_what_transformers_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = Path(resolve_model("smol"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    monkeypatch.setattr(gguf_conversion, "PRE_TOKENIZERS", {})
    theirs = Path(resolve_model("smol"))
    assert ours != theirs
    weights, expected = load_file(ours / "model.safetensors"), load_file(theirs / "model.safetensors")
    assert weights.keys() == expected.keys()
    assert all(weights[name].equal(value) for name, value in expected.items())
    configs = [AutoConfig.from_pretrained(folder).to_dict() for folder in (ours, theirs)]
    # The name in the file, and the number of a token that byte-level BPE never needs.
    for name in ("_model_name_or_path", "_name_or_path", "unk_token_id"):
        for config in configs:
            config.pop(name, None)
    assert configs[0] == configs[1]
    mine, other = (AutoTokenizer.from_pretrained(folder) for folder in (ours, theirs))
    dialogue = [{"role": "user", "content": "naïve ¶ 3.14\n\tprint('<|im_end|>')  x"}]
    assert mine.apply_chat_template(dialogue) == other.apply_chat_template(dialogue)
    assert (mine.eos_token, mine.pad_token, mine.bos_token) == (
        other.eos_token,
        other.pad_token,
        other.bos_token,
    )


TEXTS = [
    "It's 2024, and 3.14 < 12345!\n\n  naïve cafe\u0301 ¶\tx  \r\n<think>so</think> <|im_end|>",
    "I'M HERE'S  \n \n日本語テキスト don't 'tis",
]


@pytest.mark.parametrize(
    ("tiny", "name"), [(tiny_qwen2, "qwen2"), (tiny_qwen3, "qwen3"), (tiny_llama, "llama")]
)
def test_a_file_is_converted_without_transformers(
    tiny: Callable[..., Any], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights are those written, and the tokens those of Qwen's tokenizer in transformers."""
    trained = bpe_tokenizer(*TEXTS * 3)
    state = json.loads(trained.backend_tokenizer.to_str())["model"]
    vocabulary = {**state["vocab"], "<think>": len(state["vocab"]), "</think>": len(state["vocab"]) + 1}
    model = tiny(len(vocabulary))
    with torch.no_grad():
        for weights in model.parameters():
            weights.copy_(weights.bfloat16())
    file = gguf_of(model, name, vocabulary, state["merges"], tmp_path / f"{name}.gguf")
    for module in ("torch", "transformers"):
        monkeypatch.setattr(gguf_file, "LOCAL", (module, "a_module_that_is_not_there"))
    folder = Path(resolve_model(str(file), lambda line: None))
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    expected, found = model.state_dict(), loaded.state_dict()
    assert {name: value.tolist() for name, value in found.items()} == {
        name: value.tolist() for name, value in expected.items()
    }
    ids = torch.tensor([[5, 9, 30, 7, 41]])
    with torch.no_grad():
        assert torch.allclose(loaded(ids).logits, model(ids).logits, atol=1e-4)
    if name == "llama":
        return
    published = Qwen2Tokenizer(vocab=state["vocab"], merges=[tuple(pair) for pair in state["merges"]])
    published.add_tokens([AddedToken(text, normalized=False) for text in ("<think>", "</think>")])
    published.add_special_tokens({"additional_special_tokens": ["<|im_end|>", "<|im_start|>"]})
    ours = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for text in TEXTS:
        assert ours.encode(text).tokens == published.tokenize(text)


@pytest.mark.parametrize("pair", [("absent", "token"), ("a", "absent"), ("a",)], ids=str)
def test_a_merge_outside_of_the_vocabulary_is_one_line(pair: tuple[str, ...], tmp_path: Path) -> None:
    state = json.loads(bpe_tokenizer(*TEXTS).backend_tokenizer.to_str())["model"]
    model = tiny_llama(len(state["vocab"]))
    file = gguf_of(model, "llama", state["vocab"], [*state["merges"], pair], tmp_path / "model.gguf")
    with pytest.raises(ModelUnavailable, match=r"^model.gguf is damaged [^\n]+: download it again$"):
        resolve_model(str(file), lambda line: None)


def gguf_of(
    model: Any, architecture: str, vocabulary: dict[str, int], merges: Sequence[Any], file: Path
) -> Path:
    """Write a model as llama.cpp converts it, with the names of gguf's own table."""
    config, writer = model.config, gguf.GGUFWriter(file, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    words = sorted(vocabulary, key=lambda word: vocabulary[word])
    kinds = [3 if word.startswith("<|") else 4 if "think>" in word else 1 for word in words]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm" if architecture == "llama" else "qwen2")
    writer.add_token_list(words)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_eos_token_id(vocabulary["<|im_end|>"])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture.upper()], config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        values = tensor.float().numpy()
        if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
            heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            # llama.cpp's convert_hf_to_gguf.py, LlamaModel.permute
            values = values.reshape(heads, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
        writer.add_tensor(names.get_name(name, (".weight", ".bias")), np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


_LLAMA = _text("general.architecture") + struct.pack("<I", 8) + _text("llama")
DAMAGED = {
    "dimensions": (
        [_LLAMA],
        _text("t") + struct.pack("<I100000QIQ", 100_000, *[2**40] * 100_000, 0, 0),
        "a tensor of 100000 dimensions",
    ),
    "alignment": ([_LLAMA, _text("general.alignment") + struct.pack("<II", 4, 0)], b"", "an alignment of 0"),
    "nested": (
        [_LLAMA, _text("a") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 5000],
        b"",
        "arrays in more than 8 arrays",
    ),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", DAMAGED)
def test_a_header_that_no_model_has_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    values, tensors, reason = DAMAGED[name]
    file = tmp_path / "model.gguf"
    counts = struct.pack("<IQQ", 3, int(bool(tensors)), len(values))
    file.write_bytes(b"GGUF" + counts + b"".join(values) + tensors)
    said = rf"is not a complete GGUF file \({reason}\): download it again$"
    with pytest.raises(ModelUnavailable, match=said):
        read_header(file)
