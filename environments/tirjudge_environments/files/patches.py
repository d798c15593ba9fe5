"""Unified diffs: of one file, and of several, as `git diff`, `git format-patch` and `diff -ru` write them.

A diff is applied as by `git apply`, but only where its lines stand, and otherwise refused: a judge must
not see files that nobody wrote.
"""

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
_MERGE = re.compile(r"diff --(?:cc|combined) |@@@+ ")
_MODE = re.compile(r"(?:new file mode|new mode|index [0-9a-f]+\.\.[0-9a-f]+) (\d+)$")
_NOTES = (
    *("old mode ", "new mode ", "new file mode ", "deleted file mode ", "index "),
    *("similarity index ", "dissimilarity index ", "rename ", "copy "),
)
_FILE_MODES = "100644", "100755", "100664"
"""Git's modes of plain files. A link has the mode 120000, and a submodule 160000."""
_BINARY = re.compile(r"GIT binary patch$|Binary files .* differ$")
_NEVER = re.compile(r"(?:1970-01-01|1969-12-31) \d\d:\d\d:00(?:\.0+)?(?: |$)|\((?:nonexistent|revision 0)\)$")
"""The time or revision that `diff -N` and Subversion write of a file that is not there."""
_ESCAPE = re.compile(rb'\\([0-3][0-7]{2}|[abtnvfr"\\])')
_ESCAPED = dict(zip(b'abtnvfr"\\', b'\a\b\t\n\v\f\r"\\', strict=True))
_NOWHERE = "/dev/null"
_MOST_TEXT = 8 << 20
"""Characters of a diff, and of a file that it changes; a list of lines needs up to 50 times as many bytes."""
_MOST_REREAD = 4 * MOST_BYTES
"""Bytes of files that one diff changes; it may change a file several times."""


def patched_file(path: str, diff: str, before: Folder) -> bytes:
    """Return a file of `before` after a unified diff of it; raises BadFolder if the diff does not fit."""
    parts = list(_parts(diff, path))
    if not any(part.hunks for part in parts):
        raise BadFolder(f"{shown_path(path)}: no unified diff (@@ -1,3 +1,4 @@)")
    if len(parts) > 1:
        raise BadFolder(f"{shown_path(path)}: a diff of several files")
    return _bytes(path, _patched(path, parts[0].hunks, before.files.get(path, b"")))


def patched_folder(diff: str, before: Folder) -> Folder:
    """Return all files of `before` after a unified diff of several.

    Raises BadFolder if the diff does not fit, or changes files that are no texts.
    """
    files: dict[str, bytes | _Text] = dict(before.files)
    reread, number, commit = 0, 0, 0
    # Git copies what a file was before the commit; an earlier part of the diff may have changed it.
    replaced: dict[str, bytes | _Text | None] = {}
    for number, part in enumerate(_parts(diff), 1):
        if number > MOST_FILES:
            raise BadFolder(too_many(number))
        if part.commit != commit:
            replaced, commit = {}, part.commit
        old, new = part.names(files)
        content = replaced.get(old, files.get(old)) if part.copies else files.get(old)
        if old and content is None:
            raise BadFolder(f"{shown_path(old)}: the diff changes it, and prompt_files lack it")
        if new and new != old and new in files:
            raise BadFolder(f"{shown_path(new)}: the diff adds it, and prompt_files have it")
        content = content or b""
        reread += len(content)
        if reread > _MOST_REREAD:
            raise BadFolder(f"a diff that changes more than {_MOST_REREAD:,} bytes of files")
        if part.hunks:
            content = _patched(new or old, part.hunks, content)
        if content and not new:
            raise BadFolder(f"{shown_path(old)}: the diff deletes it, and leaves lines of it")
        for path in filter(None, (old, new)):
            replaced.setdefault(path, files.get(path))
        if old and not part.copies:
            del files[old]
        if new:
            files[new] = content
    if not number:
        raise BadFolder("no unified diff (--- a/path, +++ b/path, @@ -1,3 +1,4 @@)")
    return folder_of({path: _bytes(path, content) for path, content in files.items()})


@dataclass(frozen=True)
class _Text:
    """A changed file, of which several parts of a diff may change a few lines each."""

    lines: list[str]
    size: int
    """Characters."""

    def __len__(self) -> int:
        return self.size


@dataclass(frozen=True)
class _Hunk:
    """Lines that take the place of others, with their line feeds."""

    begin: int
    """The number of lines of the file before the hunk."""
    old: list[str]
    new: list[str]


@dataclass
class _Part:
    """The part of a diff that is about one file. A name that the diff lacks is empty."""

    commit: int = 0
    """The number of commits that began before this part, as `git log -p` lists several."""
    header: tuple[str, str] = ("", "")
    """Both names of git's first line, which also files without hunks have."""
    old: str = ""
    new: str = ""
    moved: tuple[str, str] = ("", "")
    """Names of a renamed or copied file, which have no prefix."""
    copies: bool = False
    adds: bool = False
    deletes: bool = False
    changes_mode: bool = False
    ends: bool = False
    """True once the part has ended, so that further lines are about no file."""
    hunks: list[_Hunk] = field(default_factory=list)

    @property
    def shown(self) -> str:
        return shown_path(self.new or self.moved[1] or self.header[1] or self.old)

    def names(self, files: Collection[str]) -> tuple[str, str]:
        """Return the paths before and after; an empty path stands for no file."""
        if not (self.hunks or all(self.moved) or self.adds or self.deletes or self.changes_mode):
            raise BadFolder(f"{self.shown}: the diff ends before its changes")
        if any(self.moved):
            named = (
                (self.old.endswith(self.moved[0]), self.new.endswith(self.moved[1])) if self.old else (True,)
            )
            if not all(self.moved) or not all(named) or self.adds or self.deletes or all(self.header):
                raise self.inconsistent()
            return self.moved
        adds, deletes = self.adds or self.old == _NOWHERE, self.deletes or self.new == _NOWHERE
        if adds and deletes:
            raise BadFolder("a diff that does not name a file")
        path = self._path_of_git() if all(self.header) else self._path_of_names(files, adds)
        return "" if adds else path, "" if deletes else path

    def _path_of_git(self) -> str:
        old, new = self.header
        if self.old:
            # Git writes /dev/null for a file that it says to be new or deleted.
            fits_old = self.old == _NOWHERE or (self.old == old and not self.adds)
            fits_new = self.new == _NOWHERE or (self.new == new and not self.deletes)
            if not fits_old or not fits_new:
                raise self.inconsistent()
        # The prefixes differ: a/ and b/, or i/ and w/. With `--no-prefix` there are none.
        return new if old == new else _tail(new)

    def _path_of_names(self, files: Collection[str], adds: bool) -> str:
        given = [name for name in (self.old, self.new) if name and name != _NOWHERE]
        if not given:
            raise BadFolder("a diff that does not name a file")
        if len(given) == 2 and self.old != self.new and _tail(self.old) == _tail(self.new) != "":
            return _tail(self.new)
        if adds:
            if given[-1].startswith("b/"):
                return _tail(given[-1])
            if "/" in given[-1]:
                raise BadFolder(f"{self.shown}: a new file whose path in the diff does not begin with b/")
            return given[-1]
        known = {path for name in given for path in (name, _tail(name)) if path in files}
        if len(known) > 1:
            raise BadFolder(f"{self.shown}: the diff may mean {' or '.join(map(shown_path, sorted(known)))}")
        return known.pop() if known else given[-1]

    def move(self, side: int, name: str) -> None:
        """Take a name of a renamed or copied file: the first or the second."""
        if self.moved[side]:
            raise self.inconsistent()
        self.moved = (name, self.moved[1]) if side == 0 else (self.moved[0], name)

    def inconsistent(self) -> BadFolder:
        return BadFolder(f"{self.shown}: the diff gives it several names")


def _tail(name: str) -> str:
    return name.partition("/")[2]


def _parts(diff: str, of: str = "") -> Iterator[_Part]:
    """Yield the parts of a diff about each file, in its order. A diff that is about `of` need not name it."""
    lines, place, hunks_end, commit = _lines(diff), 0, -1, 0
    part: _Part | None = None
    while place < len(lines):
        line, here = lines[place].rstrip("\r\n"), place
        place += 1
        is_git = line.startswith("diff --git ")
        is_named = (
            line.startswith("--- ")
            and len(lines) > place + 1
            and lines[place].startswith("+++ ")
            and _HUNK.match(lines[place + 1]) is not None
        )
        begins_commit = _COMMIT.match(line) is not None
        commit += begins_commit
        if is_git or begins_commit or (is_named and part and part.old):
            if part:
                yield part
            part = None
        if _MERGE.match(line):
            raise BadFolder("a diff of a merge, which changes files in two ways at once")
        if is_git:
            part = _Part(commit, header=_header(line.removeprefix("diff --git ")))
        elif is_named:
            part = part or _Part(commit)
            _take_names(part, line[4:], lines[place].rstrip("\r\n")[4:])
            place += 1
        elif _HUNK.match(line):
            if part is None and of:
                part = _Part(new=of)
            # A hunk follows the names or another hunk: behind other lines, it may be one of another file.
            if part is None or not part.new or (part.hunks and here != hunks_end):
                raise BadFolder(
                    f"a part of the diff does not follow the name of its file ({shown_path(line)})"
                )
            hunk, place = _hunk(lines, here, part.shown)
            part.hunks.append(hunk)
            hunks_end = place
        elif _BINARY.match(line) or line.startswith("Only in "):
            raise BadFolder(
                f"a diff that lacks what a file holds ({shown_path(line)}); give the files themselves"
            )
        elif part:
            _take_note(part, line)
    if part:
        yield part


def _lines(diff: str) -> list[str]:
    """Return the lines of a diff, whose last line feed may be missing; raises BadFolder if it is too long."""
    if len(diff) > _MOST_TEXT:
        raise BadFolder(f"a diff of more than {_MOST_TEXT:,} characters; give the files themselves")
    diff = diff.removeprefix("\ufeff")
    return _LINE.findall(diff if diff.endswith("\n") else f"{diff}\n")


def _take_names(part: _Part, old: str, new: str) -> None:
    part.old, part.new = _name(old), _name(new)
    part.adds |= _NEVER.match(old.partition("\t")[2]) is not None
    part.deletes |= _NEVER.match(new.partition("\t")[2]) is not None


def _take_note(part: _Part, line: str) -> None:
    """Take what a line before the hunks says; raises BadFolder for a line of a hunk that is in none."""
    over = bool(part.hunks) or part.ends or line in ("", "-- ")
    stray = ("+", "-", "@", " ", *(_NOTES if over else ()))
    if line.startswith(stray) and line != "-- ":  # which is before the signature of a mail
        raise BadFolder(f"{part.shown}: a line without its place in the diff ({shown_path(line)})")
    if over:
        part.ends = True
    elif line.startswith(("rename from ", "copy from ")):
        part.move(0, _name(line.partition(" from ")[2]))
        part.copies = line.startswith("copy")
    elif line.startswith(("rename to ", "copy to ")):
        part.move(1, _name(line.partition(" to ")[2]))
    elif (mode := _MODE.match(line)) and mode[1] not in _FILE_MODES:
        raise BadFolder(f"{part.shown}: a link or a submodule, which are not read")
    elif line.startswith("new file mode "):
        part.adds = True
    elif line.startswith("deleted file mode "):
        part.deletes = True
    elif line.startswith("new mode "):
        part.changes_mode = True
    elif not line.startswith(_NOTES):
        raise BadFolder(f"{part.shown}: a line that is no part of a diff ({shown_path(line)})")


def _header(names: str) -> tuple[str, str]:
    """Return both names of git's first line; empty names if they differ by more than a prefix."""
    middle = len(names) // 2
    first, second = names[:middle], names[middle + 1 :]
    separator = names[middle : middle + 1]
    if quoted := re.fullmatch(r'("(?:[^"\\]|\\.)*") ("(?:[^"\\]|\\.)*")', names):
        first, second, separator = _name(quoted[1]), _name(quoted[2]), " "
    same = first == second or _tail(first) == _tail(second) != ""
    return (first, second) if same and separator == " " else ("", "")


def _name(text: str) -> str:
    """Return a name as it is in the folder: without a time behind a tab, and without git's quotes."""
    name = text.partition("\t")[0]
    if not re.fullmatch(r'"(?:[^"\\]|\\.)*"', name):
        return name
    try:
        return _ESCAPE.sub(_unescaped, name[1:-1].encode()).decode()
    except UnicodeError:
        raise BadFolder(f"{shown_path(name)}: a name in the diff that is not UTF-8") from None


def _unescaped(found: re.Match[bytes]) -> bytes:
    mark = found[1]
    return bytes([int(mark, 8) if len(mark) == 3 else _ESCAPED[mark[0]]])


def _hunk(lines: Sequence[str], place: int, shown: str) -> tuple[_Hunk, int]:
    """Return the hunk that begins at a place, and the place behind it; raises BadFolder for a cut hunk."""
    found = _HUNK.match(lines[place])
    assert found is not None
    count, new_count = int(found[2] or 1), int(found[3] or 1)
    old, new, place = list[str](), list[str](), place + 1
    sides: tuple[list[str], ...] = ()
    while place < len(lines):
        line, mark = lines[place], lines[place][:1]
        if mark == "\\":  # "\ No newline at end of file", about the line before
            for side in sides:
                side[-1] = side[-1].removesuffix("\n")
            sides, place = (), place + 1
            continue
        if len(old) >= count and len(new) >= new_count:
            break
        if mark in "\r\n":  # an empty line whose leading space an editor took away
            line = f" {line}"
        sides = {"+": (new,), "-": (old,)}.get(mark, (old, new))
        if line[0] not in " +-":
            break
        for side in sides:
            side.append(line[1:])
        place += 1
    if (len(old), len(new)) != (count, new_count):
        raise BadFolder(
            f"{shown}: the diff has other lines than it says ({shown_path(lines[place - 1].rstrip())})"
        )
    first = int(found[1])
    return _Hunk(first - 1 if count else first, old, new), place


def _patched(path: str, hunks: Sequence[_Hunk], content: bytes | _Text) -> _Text:
    """Return a text after the hunks of a unified diff; raises BadFolder if they do not fit."""
    old = content if isinstance(content, _Text) else text_of_file(content)
    if old is None or len(old) > _MOST_TEXT:
        reason = "no text" if old is None else f"longer than {_MOST_TEXT:,} characters"
        raise BadFolder(f"{shown_path(path)}: a diff of a file in prompt_files that is {reason}")
    lines = old.lines if isinstance(old, _Text) else _LINE.findall(old)
    made, place, size = list[str](), 0, len(old)
    # Only what a hunk touches is looked at: a diff may have thousands of parts about one file.
    for hunk in [*hunks, _Hunk(len(lines), [], [])]:
        end = hunk.begin + len(hunk.old)
        if not place <= hunk.begin <= len(lines) or lines[hunk.begin : end] != hunk.old:
            raise BadFolder(f"{shown_path(path)}: the diff does not fit the file in prompt_files")
        for several in (lines[place : hunk.begin], hunk.new):
            if several and made and not made[-1].endswith("\n"):
                raise BadFolder(
                    f"{shown_path(path)}: the diff does not fit the end of the file in prompt_files"
                )
            made += several
        if any(not line.endswith("\n") for line in hunk.new[:-1]):
            raise BadFolder(f"{shown_path(path)}: the diff does not fit the end of the file in prompt_files")
        size += sum(map(len, hunk.new)) - sum(map(len, hunk.old))
        place = end
    return _Text(made, size)


def _bytes(path: str, content: bytes | _Text) -> bytes:
    return encoded(path, "".join(content.lines)) if isinstance(content, _Text) else content
