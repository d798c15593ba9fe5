"""A digest of a model folder's files: the same path may hold other weights later."""

from __future__ import annotations

import hashlib
from pathlib import Path

_BLOCK = 1 << 20


def weights_digest(folder: str) -> str:
    """Return 16 hexadecimal digits that identify the files in a model's folder.

    Files in subfolders do not count. The digest is empty if `folder` is not a local folder.
    """
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
