"""Listings of folders, as judges and people are shown them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile

from tirjudge_environments.files.folder import NO_FILES, Folder, shown_path, text_of_file
from tirjudge_environments.files.kinds import cells_of, counted, kind_of
from tirjudge_environments.quoting import cut_middle, quote_lines, starts_with, with_look_alikes

_LISTED, _SHOWN = 40, 8
"""Files of a folder that a prompt lists, and files whose start or difference it shows."""
_PART, _WHOLE = 1200, 6000
"""Characters of one file, and of all files of a folder, that a prompt shows."""
_LARGE = 1 << 20
"""Bytes of a text from which its start alone is read, and no difference."""
_MOST_COMPARED = 200_000
"""Pairs of changed lines that are compared: the time of difflib grows with them, and with repeated lines."""
_CONTEXT = 2
"""Unchanged lines around changed ones."""
_INDENT = "    "
_HUNK = re.compile(r"@@ -(\d+)(.*) \+(\d+)(.*) @@")
_is_heading = starts_with(["[files of "])


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file of a listing, or a line about further files."""

    line: str
    """Path, size and kind, or how many files are left out."""
    body: str = ""
    """The start of the file, or what was changed in it; hostile text of several lines."""
    is_diff: bool = False

    @property
    def text(self) -> str:
        """The line and, indented below it, the body."""
        return "\n".join([self.line, *(f"{_INDENT}{line}" for line in self.body.splitlines())])


def unlisted(text: str) -> str:
    """Return a response in which no line reads as the heading of a listing."""
    return quote_lines(text, _is_heading)


def listing(folder: Folder, of: str, before: Folder = NO_FILES) -> str:
    """Return the files of a folder as a judge is shown them: paths, sizes, kinds, starts and changes.

    `of` says whose files they are. Of a file that was in `before` the difference is shown.
    """
    files = (file.text for file in listed_files(folder, before))
    # After everything that was read and cut.
    return with_look_alikes("\n".join([f"[{folder_heading(folder, of)}]", *files]), folder.marks)


def folder_heading(folder: Folder, of: str) -> str:
    """Return whose files are in a folder, how many, and their size."""
    size = sum(map(len, folder.files.values()))
    return f"files of {of}: {counted(len(folder.files), 'file')}, {counted(size, 'byte')}"


def listed_files(folder: Folder, before: Folder = NO_FILES) -> Iterator[ListedFile]:
    """Yield the lines of a listing, see `listing`, each with the part of the file that is shown."""
    same = [path for path in folder.files if before.files.get(path) == folder.files[path]]
    gone = sorted(before.files.keys() - folder.files.keys())
    own = sorted(folder.files.keys() - set(same))
    left, parts = _WHOLE, 0
    for path in own[:_LISTED]:
        content, old = folder.files[path], before.files.get(path)
        line = f"{shown_path(path)}, {counted(len(content), 'byte')}{', changed' * (old is not None)}"
        kind = kind_of(content)
        line += f", {kind}" * bool(kind)
        shown = _excerpt(path, content, old) if parts < _SHOWN and left > 0 else None
        if shown is None:
            unread = ", not shown" if _start(content) is not None else ", no text" * (not kind)
            yield ListedFile(line + unread)
            continue
        body = cut_middle(shown[0], min(_PART, left))
        left, parts = left - len(body), parts + bool(body)
        yield ListedFile(line, body, shown[1])
    if len(own) > _LISTED:
        yield ListedFile(f"... {counted(len(own) - _LISTED, 'file')} left out ...")
    if same:
        yield ListedFile(f"{counted(len(same), 'file')} unchanged")
    yield from (ListedFile(f"{shown_path(path)}, deleted") for path in gone[:_LISTED])
    if len(gone) > _LISTED:
        yield ListedFile(f"... {counted(len(gone) - _LISTED, 'file')} deleted as well ...")


def _start(content: bytes) -> str | None:
    """Return a text, of a large one its start; None for other content."""
    if len(content) <= _LARGE:
        return text_of_file(content)
    # The last line may end within a character.
    start = text_of_file(content[: 8 * _PART].rpartition(b"\n")[0])
    return None if start is None else f"{start[:_PART]}\n... the rest is left out ..."


def _excerpt(path: str, content: bytes, old: bytes | None) -> tuple[str, bool] | None:
    """Return the start of a text and False, or what changed in it and True; None for other content."""
    text, earlier = _readable(path, content), _readable(path, old or b"")
    if text is None:
        return None
    if old is None or earlier is None:
        return text, False
    if max(len(content), len(old)) > _LARGE:
        return None
    return "\n".join(_changes(earlier.splitlines(), text.splitlines())), True


def _readable(path: str, content: bytes) -> str | None:
    """Return a text as it is shown: of a notebook its cells."""
    cells = cells_of(path, content)
    return _start(content) if cells is None else cells


def _changes(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a unified difference, without its head."""
    first = _alike(old, new)
    last = _alike(old[first:][::-1], new[first:][::-1])
    before, after = old[first : len(old) - last], new[first : len(new) - last]
    if len(before) * len(after) > _MOST_COMPARED:
        yield f"@@ -{first + 1},{len(before)} +{first + 1},{len(after)} @@"
        yield from (f"-{line}" for line in before)
        yield from (f"+{line}" for line in after)
        return
    skipped, rest = max(0, first - _CONTEXT), max(0, last - _CONTEXT)
    before, after = (lines[skipped : len(lines) - rest] for lines in (old, new))
    # Without the head, of two lines.
    for line in islice(difflib.unified_diff(before, after, lineterm="", n=_CONTEXT), 2, None):
        hunk = _HUNK.fullmatch(line)
        if hunk:
            line = f"@@ -{int(hunk[1]) + skipped}{hunk[2]} +{int(hunk[3]) + skipped}{hunk[4]} @@"
        yield line


def _alike(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many lines are the same at the start."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
