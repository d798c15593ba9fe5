"""Listings of folders, as judges and people are shown them."""

from __future__ import annotations

import difflib

from tirjudge_environments.files.folder import NO_FILES, Folder, shown_path, text_of_file
from tirjudge_environments.quoting import cut_middle, quote_lines, starts_with

_LISTED, _SHOWN = 40, 8
"""Files of a folder that a prompt lists, and files whose start or difference it shows."""
_PART, _WHOLE = 1200, 6000
"""Characters of one file, and of all files of a folder, that a prompt shows."""
_INDENT = "    "
_is_heading = starts_with(["[files of "])


def unlisted(text: str) -> str:
    """Return a response in which no line reads as the heading of a listing."""
    return quote_lines(text, _is_heading)


def listing(folder: Folder, of: str, before: Folder = NO_FILES) -> str:
    """Return the files of a folder as a judge is shown them: paths, sizes, starts, and what was changed.

    Args:
        folder: the files.
        of: whose files they are, for the heading.
        before: the files that the response began with; of a file that it changed, the difference is shown.
    """
    size = sum(map(len, folder.files.values()))
    same = [path for path in folder.files if before.files.get(path) == folder.files[path]]
    gone = sorted(before.files.keys() - folder.files.keys())
    own = sorted(folder.files.keys() - set(same))
    lines = [f"[files of {of}: {_counted(len(folder.files))}, {size:,} bytes]"]
    left, parts = _WHOLE, 0
    for path in own[:_LISTED]:
        content, old = folder.files[path], before.files.get(path)
        lines.append(f"{shown_path(path)}, {len(content):,} bytes{', changed' * (old is not None)}")
        shown = _excerpt(content, old) if parts < _SHOWN and left > 0 else None
        if shown is None:
            lines[-1] += ", not shown" if text_of_file(content) is not None else ", no text"
        elif shown:
            shown = cut_middle(shown, min(_PART, left))
            left, parts = left - len(shown), parts + 1
            lines += [f"{_INDENT}{line}" for line in shown.splitlines()]
    if len(own) > _LISTED:
        lines.append(f"... {_counted(len(own) - _LISTED)} left out ...")
    if same:
        lines.append(f"{_counted(len(same))} unchanged")
    lines += [f"{shown_path(path)}, deleted" for path in gone[:_LISTED]]
    if len(gone) > _LISTED:
        lines.append(f"... {_counted(len(gone) - _LISTED)} deleted as well ...")
    return "\n".join(lines)


def _counted(count: int) -> str:
    return f"{count:,} file{'s' * (count != 1)}"


def _excerpt(content: bytes, old: bytes | None) -> str | None:
    """Return a text, or what changed in it; None for other content."""
    text, earlier = text_of_file(content), text_of_file(old or b"")
    if text is None:
        return None
    if old is None or earlier is None:
        return text
    if len(text) + len(earlier) > 200_000:  # difflib takes quadratic time
        return None
    diff = difflib.unified_diff(earlier.splitlines(), text.splitlines(), lineterm="", n=2)
    return "\n".join(line for line in diff if not line.startswith(("--- ", "+++ ")))
