"""Tokenizers with the published chat templates and control tokens of the recipes' model families."""

from __future__ import annotations

from pathlib import Path

import trl
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

TEMPLATES = Path(trl.__file__).parent / "chat_templates"
# Tokens of the published tokenizers that the templates and the judges' turns use.
CHATML = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
THINKING = ("<think>", "</think>")
DEEPSEEK = ("<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>")
LLAMA = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
FAMILIES = {
    "qwen2_5": CHATML,
    "qwen3": CHATML + THINKING,
    "qwen3_instruct_2507": CHATML + THINKING,
    "deepseek_r1_distill": DEEPSEEK + THINKING,
    "llama3": LLAMA,
    "llama3_1": LLAMA,
}
"""Template files of TRL, and the added tokens of the tokenizers that they belong to."""


def tokenizer_of(family: str) -> PreTrainedTokenizerFast:
    """A tokenizer of bytes with the family's added tokens and its published chat template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={text: n for n, text in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    added = FAMILIES[family]
    # Special or not as published: the thinking tags are ordinary added tokens.
    backend.add_tokens([AddedToken(text, special=text not in THINKING, normalized=False) for text in added])
    ends = {"deepseek_r1_distill": DEEPSEEK[3], "llama3": LLAMA[3], "llama3_1": LLAMA[3]}
    starts = {"deepseek_r1_distill": DEEPSEEK[0], "llama3": LLAMA[0], "llama3_1": LLAMA[0]}
    fast = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token=ends.get(family, CHATML[1]), bos_token=starts.get(family)
    )
    fast.chat_template = (TEMPLATES / f"{family}.jinja").read_text(encoding="utf-8")
    return fast
