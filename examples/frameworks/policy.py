"""The embedded miniature as a policy, standing in for a trainer's own; greedy, one dialogue at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import tirjudge

FOLDER = Path(tirjudge.__file__).parent / "models" / "mini"
SETTINGS = {"judge": "tir-pairwise", "options": {"prompts": "mini", "order": "given"}}
"""The judge that the miniature was trained to be."""


class Policy:
    """Token ids in, token ids out; text in, text out."""

    def __init__(self) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(FOLDER)
        self._model = AutoModelForCausalLM.from_pretrained(FOLDER)

    def prompt(self, messages: Sequence[dict[str, str]]) -> str:
        text: str = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return text

    def write(self, text: str, stop: Sequence[str]) -> str:
        """What comes after `text`, up to and with a stop string."""
        written = self.continue_ids(self.tokenizer.encode(text), stop)
        return str(self.tokenizer.decode(written, skip_special_tokens=True))

    @torch.no_grad()
    def continue_ids(self, ids: Sequence[int], stop: Sequence[str], most: int = 256) -> list[int]:
        context = torch.tensor([list(ids)])
        every = self._model.generate(
            context, max_new_tokens=most, do_sample=False, stop_strings=list(stop), tokenizer=self.tokenizer
        )
        return list(every[0, len(ids) :].tolist())
