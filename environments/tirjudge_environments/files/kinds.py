"""Kinds of files: what a listing says about a file beyond its size, and the cells of a notebook.

Files are hostile, so no library opens a binary format here: databases, archives, images and the like are
recognised by their first bytes.
"""

from __future__ import annotations

import json

_MOST_BYTES, _MOST_CELLS = 1 << 18, 24
"""Bytes of the largest notebook that is parsed, and cells that are shown."""
_MARKS = (
    (b"SQLite format 3\0", "SQLite database"),
    (b"PAR1", "Parquet"),
    (b"PK\x03\x04", "zip"),
    (b"\x89PNG\r\n\x1a\n", "PNG image"),
    (b"GIF87a", "GIF image"),
    (b"GIF89a", "GIF image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"%PDF-", "PDF"),
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\0", "xz"),
    (b"\x7fELF", "ELF program"),
    (b"\x80\x04\x95", "Python pickle"),
    (b"\x80\x05\x95", "Python pickle"),
    (b"\x93NUMPY", "NumPy array"),
    (b"\x89HDF\r\n\x1a\n", "HDF5"),
    (b"ARROW1", "Arrow file"),
)


def kind_of(content: bytes) -> str:
    """Return the kind of a file by its first bytes; empty for texts and for unknown kinds."""
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return "WebP image"
    return next((name for mark, name in _MARKS if content.startswith(mark)), "")


def cells_of(path: str, content: bytes) -> str | None:
    """Return the cells of a notebook as a text, without outputs; None for anything else."""
    if not path.casefold().endswith(".ipynb") or len(content) > _MOST_BYTES:
        return None
    try:
        cells = json.loads(content)["cells"][:_MOST_CELLS]
        return "\n".join(
            f"[{cell['cell_type']} cell]\n{''.join(map(str, cell.get('source', '')))}" for cell in cells
        )
    except Exception:  # damaged files raise anything
        return None


def counted(count: int, what: str) -> str:
    """Return a count with its word, such as `1 file` and `2,000 files`."""
    return f"{count:,} {what}{'s' * (count != 1)}"
