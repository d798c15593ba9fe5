"""A model folder's tokenizer and chat template without transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CONFIG = "tokenizer_config.json"
TEMPLATE = "chat_template.jinja"
_LONGEST = 1 << 22
"""Bytes of a template's file."""


class ChatTokenizer:
    """The part of transformers' `PreTrainedTokenizerFast` that `ChatEncoder` needs."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError, ValueError and any error of the libraries for a folder without a readable one."""
        from tokenizers import Tokenizer

        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        self.backend_tokenizer = Tokenizer.from_str((folder / "tokenizer.json").read_text(encoding="utf-8"))
        self.added_tokens_decoder = self.backend_tokenizer.get_added_tokens_decoder()
        template = folder / TEMPLATE
        self.chat_template: str | None = _default(config.get("chat_template"))
        if template.is_file():
            if template.stat().st_size > _LONGEST:
                raise ValueError(f"{template} has more than {_LONGEST:,} bytes")
            self.chat_template = template.read_text(encoding="utf-8")
        # Some configs wrap the text of a token with its properties.
        self.special_tokens_map = {
            key: str(value["content"] if isinstance(value, dict) else value or "")
            for key, value in config.items()
            if key.endswith("_token")
        }

    @property
    def eos_token_id(self) -> int | None:
        token: int | None = self.backend_tokenizer.token_to_id(self.special_tokens_map.get("eos_token", ""))
        return token

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        ids: list[int] = self.backend_tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return ids


def _default(template: Any) -> str | None:
    """Return the template of a config; from a list of named templates, the template called `default`."""
    if not isinstance(template, list):
        return None if template is None else str(template)
    return next((str(one["template"]) for one in template if one["name"] == "default"), None)
