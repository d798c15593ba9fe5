"""The miniature, standing in for the model that a trainer serves: greedy, one text at a time."""

from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

FOLDER = Path(__file__).parents[1] / "miniature" / "trained"


class Policy:
    """Token ids in and out, or text in and out."""

    def __init__(self) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(FOLDER)
        self._model = AutoModelForCausalLM.from_pretrained(FOLDER)

    def prompt(self, messages: Sequence[dict[str, str]]) -> str:
        return self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)

    def write(self, text: str, stop: Sequence[str]) -> str:
        """Return the continuation of `text`, up to and including a stop string."""
        ids = self.continue_ids(self.tokenizer.encode(text), stop)
        return self.tokenizer.decode(ids, skip_special_tokens=True)

    @torch.no_grad()
    def continue_ids(self, ids: Sequence[int], stop: Sequence[str], most: int = 256) -> list[int]:
        written = self._model.generate(
            torch.tensor([list(ids)]),
            max_new_tokens=most,
            do_sample=False,
            stop_strings=list(stop) or None,
            tokenizer=self.tokenizer,
        )
        return written[0, len(ids) :].tolist()
