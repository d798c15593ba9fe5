"""A seed that is a function of what it belongs to, and of nothing else."""

from __future__ import annotations

import hashlib


def derive_seed(*parts: int | str) -> int:
    """A number from 0 to 2**32 - 1, the same for the same parts on every machine and in every version."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return int.from_bytes(digest, "big")
