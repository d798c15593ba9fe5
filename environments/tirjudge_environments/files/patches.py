"""Unified diffs: of one file, and of several, as `git diff`, `git format-patch` and `diff -ru` write them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from tirjudge_environments.files.folder import (
    MOST_BYTES,
    MOST_FILES,
    BadFolder,
    Folder,
    encoded,
    folder_of,
    shown_path,
    text_of_file,
    too_many,
)

_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
"""A line as diffs have lines: only a line feed ends it."""
_COMMIT = re.compile(r"(?:From|commit) [0-9a-f]{40}\b")
_LINK_OR_MODULE = re.compile(r"(?:new file mode|new mode) 1[26]0000")
_ESCAPE = re.compile(rb'\\([0-7]{3}|[abtnvfr"\\])')
_ESCAPED = dict(zip(b'abtnvfr"\\', b'\a\b\t\n\v\f\r"\\', strict=True))
_NOWHERE = "/dev/null"
_MOST_DIFF = 8 << 20
"""Characters of a diff: lists of its lines need up to fifty times as many bytes."""
_MOST_REREAD = 4 * MOST_BYTES
"""Bytes of files that one diff changes; it may change a file several times."""


def patched_file(path: str, diff: str, before: Folder) -> bytes:
    """Return a file of `before` after a unified diff of it; raises BadFolder if the diff does not fit."""
    lines = _lines(diff)
    if not any(map(_HUNK.match, lines)):
        raise BadFolder(f"{shown_path(path)}: no unified diff (@@ -1,3 +1,4 @@)")
    return _patched(path, lines, before.files.get(path, b""))


def patched_folder(diff: str, before: Folder) -> Folder:
    """Return all files of `before` after a unified diff of several.

    Raises BadFolder if the diff does not fit, or changes files that are no texts.
    """
    files, reread, number = dict(before.files), 0, 0
    start = dict(files)
    for number, change in enumerate(_changes(diff), 1):
        if change.of_next_commit:
            start = dict(files)
        old, new = change.names(files)
        path = new or old
        if not path:
            raise BadFolder("a diff that does not name a file")
        if number > MOST_FILES:
            raise BadFolder(too_many(number))
        if change.fault:
            raise BadFolder(f"{shown_path(path)}: {change.fault}")
        if old and old not in (start if change.copies else files):
            raise BadFolder(f"{shown_path(old)}: the diff changes it, and prompt_files lack it")
        if new != old and new in files:
            raise BadFolder(f"{shown_path(new)}: the diff adds it, and prompt_files have it")
        # Git copies what a file was before the commit; an earlier part of the diff may have changed it.
        content = (start if change.copies else files)[old] if old else b""
        reread += len(content)
        if reread > _MOST_REREAD:
            raise BadFolder(f"a diff that changes more than {_MOST_REREAD:,} bytes of files")
        if change.hunks:
            content = _patched(path, change.hunks, content)
            if content and not new:
                raise BadFolder(f"{shown_path(old)}: the diff deletes it, and leaves lines of it")
        if old and not change.copies:
            del files[old]
        if new:
            files[new] = content
    if not number:
        raise BadFolder("no unified diff (--- a/path, +++ b/path, @@ -1,3 +1,4 @@)")
    return folder_of(files)


@dataclass
class _Change:
    """The part of a diff that is about one file. A name that the diff lacks is empty."""

    of_next_commit: bool
    header: tuple[str, str] = ("", "")
    """Both names of git's first line, which also files without hunks have."""
    old: str = ""
    new: str = ""
    moved: tuple[str, str] = ("", "")
    """Names of a renamed or copied file, which have no prefix."""
    copies: bool = False
    adds: bool = False
    deletes: bool = False
    fault: str = ""
    hunks: list[str] = field(default_factory=list)

    def names(self, files: Collection[str]) -> tuple[str, str]:
        """Return the paths before and after; an empty path stands for no file."""
        if all(self.moved):
            return self.moved
        old, new = self.old or self.header[0], self.new or self.header[1]
        first, second = self.header if all(self.header) else (old, new)
        if _NOWHERE in (first, second):
            has_prefix = (second if first == _NOWHERE else first).startswith(("a/", "b/"))
        else:
            # Prefixes differ: a/ and b/, i/ and w/, both folders of `diff -ru`. `--no-prefix` writes none.
            has_prefix = first != second and _tail(first) == _tail(second) != ""
        adds, deletes = self.adds or old == _NOWHERE, self.deletes or new == _NOWHERE
        if has_prefix:
            old, new = _tail(old), _tail(new)
        if old != new and not adds and not deletes:  # x.orig and x
            old = new = new if new in files else old
        return "" if adds else old, "" if deletes else new


def _tail(name: str) -> str:
    return name.partition("/")[2]


def _changes(diff: str) -> Iterator[_Change]:
    """Yield the parts of a diff about each file, in its order. Other lines are left out."""
    lines, place, change, next_commit = _lines(diff), 0, None, False
    while place < len(lines):
        line = lines[place].rstrip("\r\n")
        place += 1
        if _COMMIT.match(line):
            if change:
                yield change
            change, next_commit = None, True
        elif line.startswith("diff --git "):
            if change:
                yield change
            change = _Change(next_commit, header=_header(line.removeprefix("diff --git ")))
            next_commit = False
        elif line.startswith("--- ") and lines[place : place + 1] and lines[place].startswith("+++ "):
            if change and (change.old or change.hunks):
                yield change
                change = None
            change = change or _Change(next_commit)
            next_commit = False
            change.old, change.new = _name(line[4:]), _name(lines[place].rstrip("\r\n")[4:])
            place += 1
        elif change is None:
            continue
        elif found := _HUNK.match(line):
            end = _end_of_hunk(lines, place, int(found[2] or 1), int(found[3] or 1))
            change.hunks += lines[place - 1 : end]
            place = end
        elif not change.hunks:
            _note(change, line)
    if change:
        yield change


def _lines(diff: str) -> list[str]:
    """Return the lines of a diff, whose last line feed may be missing; raises BadFolder if it is too long."""
    if len(diff) > _MOST_DIFF:
        raise BadFolder(f"a diff of more than {_MOST_DIFF:,} characters; give the files themselves")
    return _LINE.findall(diff if diff.endswith("\n") else f"{diff}\n")


def _note(change: _Change, line: str) -> None:
    """Take what a line of git between the names and the hunks says."""
    if line.startswith(("rename from ", "copy from ")):
        change.moved = _name(line.partition(" from ")[2]), change.moved[1]
        change.copies = line.startswith("copy")
    elif line.startswith(("rename to ", "copy to ")):
        change.moved = change.moved[0], _name(line.partition(" to ")[2])
    elif _LINK_OR_MODULE.match(line):
        change.fault = "it becomes a link or a submodule, which are not read"
    elif line.startswith("new file mode "):
        change.adds = True
    elif line.startswith("deleted file mode "):
        change.deletes = True
    elif line.startswith("GIT binary patch") or re.match(r"Binary files .* differ$", line):
        change.fault = "the diff changes it as a binary file; give the files themselves"


def _header(names: str) -> tuple[str, str]:
    """Return both names of git's first line; empty names if they differ by more than a prefix."""
    if names.startswith('"'):
        found = re.fullmatch(r'("(?:[^"\\]|\\.)*") ("(?:[^"\\]|\\.)*")', names)
        return (_name(found[1]), _name(found[2])) if found else ("", "")
    middle = len(names) // 2
    first, second = names[:middle], names[middle + 1 :]
    same = first == second or _tail(first) == _tail(second) != ""
    return (first, second) if same and names[middle : middle + 1] == " " else ("", "")


def _name(text: str) -> str:
    """Return a name as it is in the folder: without a time behind a tab, and without git's quotes."""
    if text.startswith('"') and (found := re.match(r'"((?:[^"\\]|\\.)*)"', text)):
        plain = found[1].encode(errors="surrogateescape")
        return _ESCAPE.sub(_unescaped, plain).decode(errors="replace")
    return text.partition("\t")[0].rstrip()


def _unescaped(found: re.Match[bytes]) -> bytes:
    mark = found[1]
    return bytes([int(mark, 8) & 255] if len(mark) == 3 else [_ESCAPED[mark[0]]])


def _end_of_hunk(lines: Sequence[str], place: int, old: int, new: int) -> int:
    """Return where a hunk ends: behind its lines, however they begin."""
    while place < len(lines):
        mark = lines[place][:1]
        if mark != "\\" and old <= 0 and new <= 0:
            break
        old -= mark in (" ", "-", "\n", "\r")
        new -= mark in (" ", "+", "\n", "\r")
        if mark not in (" ", "-", "+", "\\", "\n", "\r"):
            break
        place += 1
    return place


def _patched(path: str, given: Sequence[str], content: bytes) -> bytes:
    """Return a text after the hunks of a unified diff; raises BadFolder if they do not fit."""
    old = text_of_file(content)
    if old is None:
        raise BadFolder(f"{shown_path(path)}: a diff of a file in prompt_files that is no text")
    lines, made, place = _LINE.findall(old), list[str](), 0
    hunks = [number for number, line in enumerate(given) if _HUNK.match(line)]
    for start, end in zip(hunks, [*hunks[1:], len(given)], strict=True):
        found = _HUNK.match(given[start])
        assert found is not None
        first, count = int(found[1]), int(found[2] or 1)
        begin = first - 1 if count else first
        if not place <= begin <= len(lines):
            raise BadFolder(f"{shown_path(path)}: the diff does not fit the file in prompt_files")
        made += lines[place:begin]
        taken, added = _hunk(given[start + 1 : end], lines[begin : begin + count])
        if taken != count or len(added) != int(found[3] or 1):
            raise BadFolder(f"{shown_path(path)}: the diff does not fit the file in prompt_files")
        made += added
        place = begin + count
    return encoded(path, "".join([*made, *lines[place:]]))


def _hunk(given: Sequence[str], old: Sequence[str]) -> tuple[int, list[str]]:
    """Return how many of the old lines a hunk takes, -1 if one differs, and the lines that it leaves."""
    taken, made, last = 0, list[str](), ""
    for line in given:
        mark, text = line[:1], line[1:]
        if mark == "\\":  # "\ No newline at end of file", about the line before
            if last == "+":
                made[-1] = made[-1].removesuffix("\n")
            continue
        if mark == "\n":  # an empty line whose leading space an editor took away
            mark, text = " ", "\n"
        if mark == "+":
            made.append(text)
        elif mark in (" ", "-") and taken < len(old):
            if old[taken].rstrip("\r\n") != text.rstrip("\r\n"):
                return -1, made
            made += [] if mark == "-" else [old[taken]]
            taken += 1
        else:
            # Behind the hunk: the head of another file's diff, or an empty line.
            break
        last = mark
    return taken, made
