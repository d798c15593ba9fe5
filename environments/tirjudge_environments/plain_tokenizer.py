"""Copies of a `tokenizers.Tokenizer` for the middle of a text: no added tokens, no space put first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

_PUTS_SPACE_FIRST = {
    "ByteLevel": ("add_prefix_space", False),
    "Metaspace": ("prepend_scheme", "never"),
    "Prepend": ("prepend", ""),
}
"""Parts of a tokenizer that may do so: which setting of theirs keeps them from it."""


def without_added_tokens(backend: Any, added: set[str]) -> Any:
    """A copy that knows none of the added tokens' texts, nor a way to merge into one of them."""
    state = json.loads(backend.to_str())
    state["added_tokens"] = []
    model = state["model"]
    if "merges" in model:
        pairs = [merge.split(" ", 1) if isinstance(merge, str) else merge for merge in model["merges"]]
        model["merges"] = [pair for pair in pairs if added.isdisjoint((*pair, "".join(pair)))]
        known = added - {model.get("unk_token")}
        model["vocab"] = {text: number for text, number in model["vocab"].items() if text not in known}
    _drop_first_space(state)
    return _loaded(state)


def within_text(backend: Any) -> Any:
    """The same tokenizer, or, if it puts a space before every text, a copy that does not."""
    state = json.loads(backend.to_str())
    return _loaded(state) if _drop_first_space(state) else backend


def _loaded(state: dict[str, Any]) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_str(
        json.dumps(state | {"post_processor": None, "truncation": None, "padding": None})
    )


def _drop_first_space(state: dict[str, Any]) -> bool:
    """Change the parts in place; tells whether there was anything to change."""
    changed = False
    for part in _parts(state):
        name, value = _PUTS_SPACE_FIRST.get(part["type"], ("type", part["type"]))
        changed |= part[name] != value
        part[name] = value
    return changed


def _parts(state: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Normalizers and pre-tokenizers, out of their sequences."""
    for part in (state["normalizer"], state["pre_tokenizer"]):
        if part is not None:
            yield from part.get("normalizers") or part.get("pretokenizers") or [part]
