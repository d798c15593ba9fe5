"""Real causal LMs with random weights, and a real tokenizer, small enough for every test."""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

CHAT = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TRL_ON_CPU: dict[str, Any] = {
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "report_to": [],
}
"""Arguments of `GRPOConfig` with which TRL trains a tiny model."""
SHAPE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 2048,
    "initializer_range": 0.2,
    "bos_token_id": None,
    "eos_token_id": None,
}


def bpe_tokenizer(*texts: str, vocab_size: int = 384) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer with ChatML markers on `texts`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<|im_end|>", "<|im_start|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>")
    fast.chat_template = CHAT
    return fast


def tiny_qwen3(vocab_size: int = 384, *, seed: int = 0, **changes: Any) -> PreTrainedModel:
    torch.manual_seed(seed)
    return Qwen3ForCausalLM(Qwen3Config(**SHAPE | {"vocab_size": vocab_size} | changes)).eval()


def tiny_llama(vocab_size: int = 384, *, seed: int = 0, **changes: Any) -> PreTrainedModel:
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(**SHAPE | {"vocab_size": vocab_size} | changes)).eval()


def tiny_qwen2(vocab_size: int = 384, *, seed: int = 0, **changes: Any) -> PreTrainedModel:
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(Qwen2Config(**SHAPE | {"vocab_size": vocab_size} | changes)).eval()
    for name, bias in model.named_parameters():
        if name.endswith(".bias"):  # transformers begins with zeros
            torch.nn.init.normal_(bias, std=0.2)
    return model


def tiny_phi3(vocab_size: int = 384, *, seed: int = 0, **changes: Any) -> PreTrainedModel:
    torch.manual_seed(seed)
    config = Phi3Config(
        **SHAPE | {"vocab_size": vocab_size, "pad_token_id": 0, "sliding_window": None} | changes
    )
    return Phi3ForCausalLM(config).eval()
