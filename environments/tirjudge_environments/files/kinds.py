"""Kinds of files: what a listing says about a file beyond its size, read in Python and within bounds.

Files are hostile, so no library for a binary format opens one here: this module reads the structure of
databases, archives, images and Parquet itself. Files with a summary have no kind if they are damaged; PDF,
gzip and the like are recognised by their first bytes alone.
"""

from __future__ import annotations

import csv
import io
import json
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

_HEAD = 1 << 16
"""Bytes of a table or a patch in which its columns or its first files are looked for."""
_WHOLE = 1 << 18
"""Bytes of the largest JSON document that is parsed."""
_NAMES, _LONGEST_NAME = 12, 40
"""Names of columns, keys, tables and entries that are shown, and characters of a name."""
_PAGES = 20_000
"""Pages of a database that are looked at."""
_ENTRIES = 1000
"""Entries of a schema that are read."""
_PLAIN = re.compile(r"[\w.@+-][\w./@+ -]{0,39}", re.ASCII)
_LONGEST = 600
"""Characters of a summary."""

_MARKS = (
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


def kind_of(path: str, content: bytes) -> str:
    """Return the kind of a file and a summary of what it holds, in one line; empty for other files.

    Names from the file are in it, as JSON unless they are plain. The line has at most 600 characters.
    """
    suffix = path.rpartition(".")[2].casefold()
    try:
        described = _binary(content)
        if not described and (read := _TEXTS.get(suffix)):
            described = read(content)
    except Exception:  # damaged files raise anything
        return ""
    return described[:_LONGEST]


def is_notebook(path: str) -> bool:
    """Return True for the path of a notebook, whose cells a listing shows."""
    return path.casefold().endswith(".ipynb")


def cells_of(content: bytes) -> str | None:
    """Return the cells of a notebook as a text, without outputs; None for anything else."""
    try:
        notebook = _parsed(content)
        return "\n".join(
            f"[{cell['cell_type']} cell]\n{_source(cell)}" for cell in notebook["cells"][: 2 * _NAMES]
        )
    except Exception:
        return None


def _binary(content: bytes) -> str:
    if content.startswith(b"SQLite format 3\0"):
        return _database(content)
    if content.startswith(b"PAR1"):
        return _parquet(content)
    if content.startswith(b"PK\x03\x04"):
        return _archive(content)
    if size := _image(content):
        return "{} image, {} x {} pixels".format(*size)
    return next((name for mark, name in _MARKS if content.startswith(mark)), "")


def _named(names: Sequence[Any]) -> str:
    """Return the first of some names in one line, each within bounds and as JSON unless it is plain."""
    shown = [text if _PLAIN.fullmatch(text := str(name)) else _quoted(text) for name in names[:_NAMES]]
    return ", ".join([*shown, *(["..."] if len(names) > _NAMES else [])])


def _quoted(text: str) -> str:
    # Without the sign that begins a tag: a name may be escaped or compressed in the file, so that a judge who
    # quotes it would not be known to quote.
    return json.dumps(text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}...").replace(
        "<", "\\u003c"
    )


def counted(count: int, what: str) -> str:
    """Return a count with its word, such as `1 file` and `2,000 files`."""
    return f"{count:,} {what}{'s' * (count != 1)}"


def _lines(content: bytes) -> int:
    return content.count(b"\n") + (not content.endswith(b"\n") and bool(content))


def _table(content: bytes) -> str:
    head = content[:_HEAD].decode("utf-8-sig", "strict" if len(content) <= _HEAD else "replace")
    first = head.partition("\n")[0]
    mark = max(",;\t|", key=first.count)
    names = next(csv.reader(io.StringIO(head), delimiter=mark))
    return f"table, {counted(len(names), 'column')} ({_named(names)}), {counted(_lines(content), 'line')}"


def _parsed(content: bytes) -> Any:
    if len(content) > _WHOLE:
        raise ValueError("too large")
    return json.loads(content)


def _document(content: bytes) -> str:
    found = _parsed(content)
    if isinstance(found, dict):
        return f"JSON object, {counted(len(found), 'key')} ({_named(list(found))})"
    if not isinstance(found, list):
        return f"JSON, {type(found).__name__}"
    keys = list(found[0]) if found and isinstance(found[0], dict) else []
    return f"JSON list, {counted(len(found), 'item')}" + (f" (keys {_named(keys)})" if keys else "")


def _json_lines(content: bytes) -> str:
    first = content[:_HEAD].partition(b"\n")[0]
    found = json.loads(first)
    keys = f" (keys {_named(list(found))})" if isinstance(found, dict) else ""
    return f"JSON lines, {counted(_lines(content), 'line')}{keys}"


def _source(cell: Any) -> str:
    source = cell.get("source", "")
    return source if isinstance(source, str) else "".join(map(str, source))


def _notebook(content: bytes) -> str:
    cells = _parsed(content)["cells"]
    kinds = Counter(str(cell["cell_type"]) for cell in cells)
    outputs = sum(len(cell.get("outputs", ())) for cell in cells)
    shown = (f"{count:,} {_named([kind])}" for kind, count in kinds.most_common(4))
    return f"notebook, {counted(len(cells), 'cell')} ({', '.join(shown)}), {counted(outputs, 'output')}"


def _patch(content: bytes) -> str:
    names, added, removed = list[str](), 0, 0
    for line in content[: 4 * _HEAD].decode("utf-8", "replace").split("\n"):
        if line.startswith("+++ "):
            names.append(line[4:].partition("\t")[0])
        elif line.startswith("+"):
            added += 1
        elif line.startswith("-") and not line.startswith("--- "):
            removed += 1
    if not names:
        return ""
    about = "" if len(content) <= 4 * _HEAD else "more than "
    return f"patch of {counted(len(names), 'file')} ({_named(names)}), {about}+{added:,} -{removed:,} lines"


_TEXTS: dict[str, Callable[[bytes], str]] = {
    **dict.fromkeys(("csv", "tsv", "tab"), _table),
    "json": _document,
    **dict.fromkeys(("jsonl", "ndjson"), _json_lines),
    "ipynb": _notebook,
    **dict.fromkeys(("diff", "patch"), _patch),
}


def _image(content: bytes) -> tuple[str, int, int] | None:
    """Return format, width and height of an image."""
    if content.startswith(b"\x89PNG\r\n\x1a\n") and content[12:16] == b"IHDR":
        return "PNG", *struct.unpack_from(">II", content, 16)
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "GIF", *struct.unpack_from("<HH", content, 6)
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return _webp(content)
    return _jpeg(content) if content.startswith(b"\xff\xd8\xff") else None


def _webp(content: bytes) -> tuple[str, int, int] | None:
    # RFC 9649, sections 2.5 to 2.7.
    kind = content[12:16]
    if kind == b"VP8X":
        width, height = (int.from_bytes(content[place : place + 3], "little") + 1 for place in (24, 27))
        return "WebP", width, height
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", content, 21)
        return "WebP", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 " and content[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", content, 26)
        return "WebP", width & 0x3FFF, height & 0x3FFF
    return None


def _jpeg(content: bytes) -> tuple[str, int, int] | None:
    place = 2
    for _ in range(1000):
        mark, kind, size = struct.unpack_from(">BBH", content, place)
        if mark != 0xFF:
            return None
        # SOF0 to SOF15 without DHT, JPG and DAC (ITU-T T.81, Table B.1).
        if 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", content, place + 5)
            return "JPEG", width, height
        place += 2 + size
    return None


def _archive(content: bytes) -> str:
    end = content.rindex(b"PK\5\6")
    count, _, place = struct.unpack_from("<HII", content, end + 10)
    names = list[str]()
    for _ in range(min(count, _NAMES + 1)):
        sizes = struct.unpack_from("<HHH", content, place + 28)
        if content[place : place + 4] != b"PK\1\2":
            return ""
        names.append(content[place + 46 : place + 46 + sizes[0]].decode("utf-8", "replace"))
        place += 46 + sum(sizes)
    return f"zip, {count:,} {'entry' if count == 1 else 'entries'} ({_named(names)})"


class _Database:
    """The pages of a database of SQLite, see https://www.sqlite.org/fileformat2.html."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        size = int.from_bytes(content[16:18], "big")
        self._size = 65536 if size == 1 else size
        if self._size < 512:
            raise ValueError("no page size")
        self._encoding = {2: "utf-16-le", 3: "utf-16-be"}.get(content[59], "utf-8")
        self._left = _PAGES

    def schema(self) -> Iterator[tuple[str, str, int]]:
        """Yield kind, name and first page of the schema's entries. Raises ValueError at a damaged page."""
        for page in self._leaves(1):
            head = 100 if page == 1 else 0
            start = (page - 1) * self._size
            (count,) = struct.unpack_from(">H", self._content, start + head + 3)
            for place in struct.unpack_from(f">{count}H", self._content, start + head + 8)[:_ENTRIES]:
                values = self._record(start + place)
                yield str(values[0]), str(values[1]), int(values[3])

    def rows(self, root: int) -> int:
        """Return the number of rows of a table."""
        return sum(
            struct.unpack_from(">H", self._content, (page - 1) * self._size + 3)[0]
            for page in self._leaves(root)
        )

    def _leaves(self, root: int) -> Iterator[int]:
        """Yield the leaves of a table's tree. Raises ValueError for a tree that is damaged or too large."""
        waiting, seen = [root], set[int]()
        self._look_at(1)
        while waiting:
            page = waiting.pop()
            if page < 1 or page in seen:
                raise ValueError("a page twice")
            seen.add(page)
            start = (page - 1) * self._size
            head = start + (100 if page == 1 else 0)
            if self._content[head] == 0x0D:
                yield page
                continue
            if self._content[head] != 0x05:
                raise ValueError("no page of a table")
            (count,) = struct.unpack_from(">H", self._content, head + 3)
            self._look_at(count + 1)
            (last,) = struct.unpack_from(">I", self._content, head + 8)
            places = struct.unpack_from(f">{count}H", self._content, head + 12)
            children = [struct.unpack_from(">I", self._content, start + one)[0] for one in places]
            waiting += [last, *reversed(children)]

    def _look_at(self, pages: int) -> None:
        """Raise ValueError once more pages than the bound are looked at, before they are."""
        self._left -= pages
        if self._left < 0:
            raise ValueError("too many pages")

    def _record(self, place: int) -> list[str | int]:
        """Return kind, name, table and first page of the entry of the schema at a place."""
        _, place = self._number(place)
        _, place = self._number(place)
        size, first = self._number(place)
        value = place + size
        values: list[str | int] = []
        for _ in range(4):
            code, first = self._number(first)
            length = (code - 13) // 2 if code >= 13 else (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)[code]
            content = self._content[value : value + min(length, 1000)]
            constant = code - 8 if code in (8, 9) else int.from_bytes(content, "big", signed=True)
            values.append(content.decode(self._encoding, "replace") if code >= 13 else constant)
            value += length
        return values

    def _number(self, place: int) -> tuple[int, int]:
        """Return the integer of variable length at a place, and where it ends."""
        number = 0
        for count in range(9):
            byte = self._content[place + count]
            if count == 8:
                return number << 8 | byte, place + 9
            number = number << 7 | byte & 0x7F
            if byte < 0x80:
                break
        return number, place + count + 1


def _database(content: bytes) -> str:
    database = _Database(content)
    shown: list[str] = []
    others: Counter[str] = Counter()
    schema = database.schema()
    for kind, name, root in islice(schema, _ENTRIES):
        if kind != "table" or name.startswith("sqlite_"):
            others.update([kind] if kind in ("index", "view", "trigger") else [])
            continue
        try:
            rows = counted(database.rows(root), "row")
        except Exception:
            rows = "rows not counted"
        shown.append(f"{_named([name])} {rows}")
    more = ", ..." if len(shown) > _NAMES else ""
    further = "".join(f", {counted(count, kind)}" for kind, count in sorted(others.items()))
    tables = f" ({', '.join(shown[:_NAMES])}{more})" if shown else ""
    about = "more than " if next(schema, None) else ""
    return f"SQLite database, {about}{counted(len(shown), 'table')}{tables}{further}"


class _Thrift:
    """A reader of Thrift's compact protocol, in which Parquet writes its metadata."""

    def __init__(self, content: bytes) -> None:
        self._content, self._place = content, 0
        self._left = 100_000

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Return the fields of a structure by their numbers."""
        fields: dict[int, Any] = {}
        number = 0
        while (head := self._byte()) != 0:
            number = number + (head >> 4) if head >> 4 else self._integer()
            fields[number] = self._value(head & 15, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or depth > 20:
            raise ValueError("too large")
        match kind:
            case 1 | 2:
                return kind == 1
            case 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._integer()
            case 7:
                return self._bytes(8)
            case 8:
                return self._bytes(self._unsigned())
            case 9 | 10:
                head = self._byte()
                count = head >> 4 if head >> 4 != 15 else self._unsigned()
                # Booleans in lists are bytes.
                kind = 3 if head & 15 in (1, 2) else head & 15
                return [self._value(kind, depth + 1) for _ in range(min(count, self._left + 1))]
            case 12:
                return self.struct(depth + 1)
        raise ValueError("no such type")

    def _byte(self) -> int:
        self._place += 1
        return self._content[self._place - 1]

    def _bytes(self, size: int) -> bytes:
        self._place += size
        return self._content[self._place - size : self._place]

    def _unsigned(self) -> int:
        number = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        return number

    def _integer(self) -> int:
        number = self._unsigned()
        return number >> 1 ^ -(number & 1)


def _parquet(content: bytes) -> str:
    if content[-4:] != b"PAR1":
        return ""
    (size,) = struct.unpack_from("<I", content, len(content) - 8)
    if size > len(content) - 12 or size > _WHOLE:
        return "Parquet"
    fields = _Thrift(content[-8 - size : -8]).struct()
    # FileMetaData: 2 is the schema, whose first element is the root, and 3 the number of rows.
    root, *elements = fields[2]
    names, place = list[str](), 0
    for _ in range(root.get(5, 0)):
        names.append(elements[place][4].decode("utf-8", "replace"))
        place += _nested(elements, place)
    return f"Parquet, {counted(len(names), 'column')} ({_named(names)}), {counted(int(fields[3]), 'row')}"


def _nested(elements: Sequence[dict[int, Any]], place: int) -> int:
    """Return how many elements of the schema describe one column."""
    left, taken = 1, 0
    while left:
        left += elements[place + taken].get(5, 0) - 1
        taken += 1
    return taken
