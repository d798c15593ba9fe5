"""Loading of a transformers model into this process: base weights, an adapter, the dtype and the device."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tirjudge.console_text import one_line
from tirjudge.generation.base import GeneratorFailed
from tirjudge.generation.model_files import (
    ADAPTER_WEIGHTS,
    Adapter,
    load_failures,
    tokenizer_of,
    warn_of_other_base,
    weights_bytes,
)
from tirjudge.models.gguf_file import is_gguf
from tirjudge.models.machine import bfloat16_gain, check_memory, complete, has_bfloat16, require
from tirjudge.models.resolve import model_folder

logger = logging.getLogger(__name__)

DTYPES = ("auto", "float32", "bfloat16", "float16")
LIBRARIES = 400_000_000
"""Bytes of memory beyond the weights: keys and values, activations, and what torch loads late."""
_SMALLER = "name a smaller model with --model, or an endpoint with --base-url"


def load_model(path: str, *, device: str | None, dtype: str) -> tuple[Any, Any]:
    """Load a causal LM and its tokenizer: only safetensors, none of the repository's code.

    Args:
        path: a folder, which may hold a LoRA adapter, a hub id, or what else `resolve_model` accepts. An
            adapter is merged into its base, so that decoding costs no more than that of the base.
        device: None is the first GPU, or the CPU without one.
        dtype: of the weights. `auto` is the checkpoint's own on a GPU. On a CPU it is bfloat16 for a bfloat16
            checkpoint if the processor computes it natively and faster, and otherwise float32.

    Raises GeneratorFailed, in one line, and ValueError for an unknown dtype.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, not {dtype!r}")
    if not path.endswith(".gguf"):
        # Checked before torch is imported, which takes seconds.
        _require_folder(path, path)
    with load_failures(path):
        require("a model in this process")
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    with load_failures(path):
        folder = model_folder(path)
        adapter = _adapter(folder, path)
        base = adapter.base if adapter else folder
        config = AutoConfig.from_pretrained(base, trust_remote_code=False)
        chosen = _dtype(config, device, dtype)
        _check_memory(base, config, chosen, device)
        tokenizer = AutoTokenizer.from_pretrained(tokenizer_of(folder), trust_remote_code=False)
        options = {"use_safetensors": True, "trust_remote_code": False, "output_loading_info": True}
        model = complete(
            AutoModelForCausalLM.from_pretrained(base, dtype=chosen, attn_implementation="sdpa", **options)
        )
        if adapter:
            model = merged(model, folder)
    if adapter:
        warn_of_other_base(folder, base)
    return model.to(device), tokenizer


def _require_folder(folder: str, path: str) -> None:
    """Raise GeneratorFailed for a file that is no GGUF file, or a path of nothing that cannot be a hub id."""
    if Path(folder).is_file() and not is_gguf(Path(folder)):
        raise GeneratorFailed(f"cannot load the model {path!r}: a file must be a GGUF file, and it is not")
    if folder.startswith((".", "/", "~")) and not Path(folder).expanduser().exists():
        raise GeneratorFailed(f"cannot load the model {path!r}: no such folder")


def _adapter(folder: str, path: str) -> Adapter | None:
    _require_folder(folder, path)
    adapter = Adapter.of(Path(folder))
    if adapter is not None:
        require(f"the LoRA adapter {path!r}", ("peft",))
    return adapter


def merged(model: Any, folder: str | Path) -> Any:
    """Return the base model with the adapter in `folder` merged into its weights."""
    if tied_targets(model, folder):
        # Merged into shared weights, the update of one embedding would be one of the other too.
        head = model.get_output_embeddings()
        head.weight = type(head.weight)(head.weight.detach().clone(), requires_grad=False)
        model.config.tie_word_embeddings = model.config.get_text_config().tie_word_embeddings = False
    return with_adapter(model, folder).merge_and_unload()


def tied_targets(model: Any, folder: str | Path) -> list[str]:
    """Return the embeddings that share their weights in a model and that the adapter in `folder` changes."""
    ends = model.get_input_embeddings(), model.get_output_embeddings()
    if None in ends or ends[0].weight is not ends[1].weight:
        return []
    names = [name for name, module in model.named_modules() if module in ends]
    return sorted(adapted_modules(Path(folder)) & set(names))


def with_adapter(model: Any, folder: str | Path, *, trainable: bool = False) -> Any:
    """Return PEFT's model of the base model and the adapter in `folder`, which `Adapter.of` has read."""
    from peft import PeftConfig, PeftModel

    config: Any = PeftConfig.from_pretrained(str(folder))
    if isinstance(config.target_modules, str) or isinstance(config.exclude_modules, str):
        # The names in the weights say the same as a regular expression, which may take for ever.
        config.target_modules, config.exclude_modules = adapted_modules(Path(folder)), None
    # The weights take the memory of the file, whatever ranks the config names. Weights that begin as a part
    # of the base's weights first take that part away from the base.
    lazily = isinstance(config.init_lora_weights, bool)
    if trainable:
        config.lora_dropout = 0.0  # the sampler has none, and both must be the same policy
    try:
        with quiet_peft():
            return PeftModel.from_pretrained(
                model, folder, is_trainable=trainable, config=config, low_cpu_mem_usage=lazily
            )
    except (RuntimeError, UserWarning) as error:
        raise GeneratorFailed(f"{str(folder)!r} is no adapter of its base: {one_line(error)}") from error


def adapted_modules(folder: Path) -> set[str]:
    """Return the places of the modules that the weights of an adapter change."""
    from safetensors import safe_open

    with safe_open(folder / ADAPTER_WEIGHTS, "pt") as weights:
        names = [name.removeprefix("base_model.model.") for name in weights.keys()]  # noqa: SIM118
    return {module for name in names if (module := name.rpartition(".lora_")[0])}


@contextmanager
def quiet_peft() -> Iterator[None]:
    """Silence the warning about a name that PEFT 0.21 still uses and transformers has deprecated.

    The warning that an adapter lacks weights, which would then be random, is an error.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Found missing adapter keys", category=UserWarning)
        warnings.filterwarnings("ignore", message=".*gradient_checkpointing` is deprecated")
        yield


def _dtype(config: Any, device: str, wanted: str) -> Any:
    """Return the type of the weights in memory, as `from_pretrained` takes it."""
    import torch

    stored = _stored(config)
    on_cpu = torch.device(device).type == "cpu"
    if wanted == "bfloat16" and on_cpu and not has_bfloat16():
        logger.warning(
            "this processor has no bfloat16 instructions and emulates them slowly: leave out dtype=bfloat16"
        )
    if wanted != "auto":
        return getattr(torch, wanted)
    if on_cpu and stored in (torch.bfloat16, torch.float16):
        # A processor may have the instructions and a build of torch may not use them, hence the measurement.
        fast = stored is torch.bfloat16 and has_bfloat16() and bfloat16_gain() > 1
        return torch.bfloat16 if fast else torch.float32
    if (
        not on_cpu
        and stored is torch.bfloat16
        and not torch.cuda.is_bf16_supported(including_emulation=False)
    ):
        logger.warning(
            "this GPU has no bfloat16 and computes in float32; dtype=float16 is faster if the model allows it"
        )
        return torch.float32
    return "auto"


def _stored(config: Any) -> Any:
    """Return the checkpoint's type of weights, None if its config does not say."""
    import torch

    return getattr(torch, str(config.get_text_config().dtype).removeprefix("torch."), None)


def _check_memory(base: str, config: Any, dtype: Any, device: str) -> None:
    """Raise ModelUnavailable if the weights do not fit into memory; those of a hub id are not known yet."""
    import torch

    files = weights_bytes(base)
    stored = _stored(config)
    if not files:
        return
    size = files
    if isinstance(dtype, torch.dtype) and stored is not None:
        size = files * dtype.itemsize // stored.itemsize
    check_memory(size + LIBRARIES, f"the model {base}", f"end other programs, or {_SMALLER}")
