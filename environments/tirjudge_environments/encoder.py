"""The encoder contract: text to token ids in which untrusted text never becomes a control token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tirjudge_environments.types import Prompt


class Encoder(Protocol):
    """A tokenizer as the rollout needs it."""

    def prompt(self, prompt: Prompt) -> list[int]:
        """The chat template with every message's content, and the prefill, spliced in as plain text."""
        ...

    def text(self, text: str) -> list[int]:
        """Plain text: no added token of the tokenizer, special or not, can come out of it."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids as sampled; tokens that end a turn are left out."""
        ...
