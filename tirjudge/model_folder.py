"""Which weights a model's folder holds, in a few digits: the same path may hold others tomorrow."""

from __future__ import annotations

import hashlib
from pathlib import Path

_BLOCK = 1 << 20


def weights_digest(folder: str) -> str:
    """Of all files directly in a model's folder, 16 hexadecimal digits; empty for what is no local folder."""
    path = Path(folder)
    if not path.is_dir():
        return ""
    digest = hashlib.blake2b(digest_size=8)
    for file in sorted(file for file in path.iterdir() if file.is_file()):
        digest.update(file.name.encode(errors="surrogatepass") + b"\0")
        with file.open("rb") as stream:
            while block := stream.read(_BLOCK):
                digest.update(block)
    return digest.hexdigest()
