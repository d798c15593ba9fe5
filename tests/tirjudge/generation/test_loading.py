"""Loading of models: adapters on their base, the dtype that the processor computes fast, and memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from tests.tirjudge.hub_cache import snapshot
from tests.tirjudge.smollm2 import needs_smollm2, use_converted
from tests.tirjudge.tiny_models import bpe_tokenizer, tiny_llama
from tirjudge.generation import GeneratorFailed
from tirjudge.generation.base import open_generator
from tirjudge.generation.local import loading
from tirjudge.generation.local.loading import load_model
from tirjudge.generation.local.transformers import TransformersGenerator
from tirjudge.models import SMOL, machine, weights_sha256

# PEFT 0.21 still uses the name that transformers has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing` is deprecated:FutureWarning")
IDS = torch.arange(2, 30).unsqueeze(0)


def base(folder: Path, dtype: torch.dtype = torch.float32) -> Path:
    tokenizer = bpe_tokenizer("print the longer response")
    tiny_llama(len(tokenizer)).to(dtype).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def adapter(folder: Path, start: str | Path, *, named: str = "", sha256: str = "") -> torch.Tensor:
    """Write an adapter with random weights and no tokenizer; return the logits of base and adapter."""
    model = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32)
    torch.manual_seed(1)
    config = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False)
    tuned = get_peft_model(model, config).eval()
    tuned.save_pretrained(folder)
    if named:
        written = json.loads((folder / "adapter_config.json").read_text())
        written["base_model_name_or_path"] = named
        (folder / "adapter_config.json").write_text(json.dumps(written))
    if sha256:
        note = {"max_tokens": 8, "base": {"name": named or "base", "sha256": sha256}}
        (folder / "tirjudge.json").write_text(json.dumps(note))
    with torch.inference_mode():
        logits: torch.Tensor = tuned(IDS).logits
    return logits


def test_an_adapter_needs_no_tokenizer_and_computes_as_peft_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    start = base(tmp_path / "base")
    expected = adapter(tmp_path / "adapter", start, sha256=weights_sha256(str(start)))
    model, tokenizer = load_model(str(tmp_path / "adapter"), device="cpu", dtype="auto")
    with torch.inference_mode():
        assert torch.allclose(model(IDS).logits, expected, atol=1e-4)
        plain, _ = load_model(str(start), device="cpu", dtype="auto")
        assert not torch.allclose(plain(IDS).logits, expected, atol=1e-2)
    assert tokenizer.chat_template
    assert not caplog.records


def test_an_adapter_in_pickle_is_not_read(tmp_path: Path) -> None:
    """Its weights run code when they are read, in older versions of the libraries also as plain tensors."""
    adapter(tmp_path / "adapter", base(tmp_path / "base"))
    weights = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    torch.save(weights, tmp_path / "adapter" / "adapter_model.bin")
    (tmp_path / "adapter" / "adapter_model.safetensors").unlink()
    with pytest.raises(GeneratorFailed, match=r"has no adapter_model.safetensors: adapter_model.bin is not"):
        load_model(str(tmp_path / "adapter"), device="cpu", dtype="auto")


@pytest.mark.parametrize("field", ["target_modules", "exclude_modules"])
def test_a_pattern_of_modules_is_never_searched_for(field: str, tmp_path: Path) -> None:
    """PEFT would search every name of a module for it, for longer than anyone waits."""
    expected = adapter(tmp_path / "adapter", base(tmp_path / "base"))
    file = tmp_path / "adapter" / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {field: "(([a-z0-9_.]+)+)+!"}))
    model, _ = load_model(str(tmp_path / "adapter"), device="cpu", dtype="auto")
    with torch.inference_mode():
        assert torch.allclose(model(IDS).logits, expected, atol=1e-4)


def renamed(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name.replace("layers", "blocks"): weight for name, weight in weights.items()}


@pytest.mark.parametrize(
    "change",
    [
        renamed,
        lambda weights: dict(list(weights.items())[:5]),
        lambda weights: {},
        lambda weights: {name: torch.zeros(3) for name in weights},
        lambda weights: {name: torch.zeros(2 * weight.shape[0], 9) for name, weight in weights.items()},
    ],
    ids=["renamed", "some", "none", "flat", "shapes"],
)
@pytest.mark.parametrize("generator", ["transformers", "openvino"])
def test_weights_of_another_model_are_one_line(
    change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]],
    generator: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Merged as far as they fit, they would be a judge of which no number is known."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    adapter(tmp_path / "adapter", base(tmp_path / "base"))
    file = tmp_path / "adapter" / "adapter_model.safetensors"
    save_file(change(load_file(file)), file)
    with pytest.raises(GeneratorFailed) as raised:
        open_generator(generator, str(tmp_path / "adapter"))
    assert len(str(raised.value)) < 600
    assert "\n" not in str(raised.value)


def test_an_adapter_of_the_hub_is_read_as_its_folder_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = adapter(tmp_path / "adapter", base(tmp_path / "base"))
    snapshot(tmp_path / "adapter", "owner/adapter", tmp_path / "hub", monkeypatch)
    model, _ = load_model("owner/adapter", device="cpu", dtype="auto")
    with torch.inference_mode():
        assert torch.allclose(model(IDS).logits, expected, atol=1e-4)
    file = tmp_path / "adapter" / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"peft_type": "IA3"}))
    snapshot(tmp_path / "adapter", "owner/other", tmp_path / "hub", monkeypatch)
    with pytest.raises(GeneratorFailed, match="no plain LoRA adapter: peft_type"):
        load_model("owner/other", device="cpu", dtype="auto")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("model.safetensors", (1 << 40).to_bytes(8, "little") + b"{}"),
        ("model.safetensors", (2).to_bytes(8, "little") + b"[]"),
        ("model.safetensors", b""),
        ("config.json", b'{"model_type": "llama", "num_attention_heads": 0}'),
        ("config.json", b'{"model_type": "llama", "hidden_size": [1]}'),
        ("config.json", b'{"model_type": "llama", "dtype": 7, "rope_parameters": {"rope_type": "x"}}'),
        ("config.json", b"[]"),
        ("tokenizer.json", b"{}"),
        ("tokenizer_config.json", b"[]"),
    ],
)
def test_a_damaged_model_is_one_line(tmp_path: Path, file: str, content: bytes) -> None:
    (base(tmp_path) / file).write_bytes(content)
    with pytest.raises(GeneratorFailed, match=r"^cannot load the [^\n]+$"):
        load_model(str(tmp_path), device="cpu", dtype="auto")


@pytest.mark.parametrize("kind", ["transformers", "openvino"])
def test_a_model_that_lacks_a_layer_is_refused_in_one_line(kind: str, tmp_path: Path) -> None:
    weights = load_file(base(tmp_path) / "model.safetensors")
    left = {name: one for name, one in weights.items() if ".layers.1." not in name}
    assert 0 < len(left) < len(weights)
    save_file(left, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(GeneratorFailed, match=r"^[^\n]*layers\.1\.[^\n]+$"):
        open_generator(kind, str(tmp_path))


@pytest.mark.parametrize(("sha256", "warns"), [("", False), ("0" * 64, True)])
def test_another_base_than_that_of_the_training_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, sha256: str, warns: bool
) -> None:
    start = base(tmp_path / "base")
    adapter(tmp_path / "adapter", start, sha256=sha256)
    load_model(str(tmp_path / "adapter"), device="cpu", dtype="auto")
    found = weights_sha256(str(start))[:16]
    expected = (
        f"{tmp_path / 'adapter'} was trained on the base base with sha256 0000000000000000…, and this one "
        f"has {found}…: its numbers are unmeasured"
    )
    assert caplog.messages == [expected] * warns


@pytest.mark.parametrize(
    ("stored", "flags", "gain", "expected"),
    [
        (torch.bfloat16, "avx2 avx512_bf16", 3.0, torch.bfloat16),
        (torch.bfloat16, "avx2 amx_bf16", 0.9, torch.float32),
        (torch.bfloat16, "avx2 avx512f", None, torch.float32),
        (torch.float32, "avx2 avx512_bf16", None, torch.float32),
    ],
)
def test_the_processor_decides_the_dtype(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stored: torch.dtype,
    flags: str,
    gain: float | None,
    expected: torch.dtype,
) -> None:
    """Without the instructions nothing is measured, so that equal machines always choose alike."""
    start = base(tmp_path / "base", stored)
    (tmp_path / "cpuinfo").write_text(f"model name\t: x\nflags\t\t: fpu {flags}\n")
    monkeypatch.setattr(machine, "PROCESSOR", tmp_path / "cpuinfo")

    def measured() -> float:
        assert gain is not None
        return gain

    monkeypatch.setattr(loading, "bfloat16_gain", measured)
    model, _ = load_model(str(start), device="cpu", dtype="auto")
    assert model.dtype is expected


def test_an_option_overrides_the_dtype_and_emulated_bfloat16_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start = base(tmp_path / "base")
    monkeypatch.setattr(machine, "PROCESSOR", tmp_path / "nowhere")
    generator = TransformersGenerator.load(str(start), dtype="bfloat16")
    assert generator.precision == "bfloat16"
    assert caplog.messages == [
        "this processor has no bfloat16 instructions and emulates them slowly: leave out dtype=bfloat16"
    ]
    with pytest.raises(
        ValueError, match=r"^dtype must be one of auto, float32, bfloat16, float16, not 'fp8'$"
    ):
        TransformersGenerator.load(str(start), dtype="fp8")


def test_too_little_memory_for_a_model_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = base(tmp_path / "base")
    (tmp_path / "meminfo").write_text("MemAvailable: 100000 kB\n")
    monkeypatch.setattr(machine, "MEMORY", tmp_path / "meminfo")
    with pytest.raises(GeneratorFailed) as raised:
        TransformersGenerator.load(str(start))
    assert str(raised.value) == (
        f"the model {start} needs 400 MB of memory, and 102 MB are free: end other programs, or name a "
        "smaller model with --model, or an endpoint with --base-url"
    )


@needs_smollm2
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_adapter_of_smol_is_loaded_on_the_wheels_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start = use_converted(tmp_path / "cache", monkeypatch)
    expected = adapter(tmp_path / "adapter", start, named="smol", sha256=SMOL.sha256)
    model, tokenizer = load_model(str(tmp_path / "adapter"), device="cpu", dtype="float32")
    with torch.inference_mode():
        found = model(IDS).logits
    assert torch.allclose(found, expected, atol=1e-2 * float(expected.abs().max()))
    assert "<|im_start|>user" in tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=False
    )
    assert not caplog.records
