"""Bundles: a result file with its rows' hashes, its settings and its scores, packed into one file.

A bundle is a zip archive of three members with fixed names. Equal results give equal bytes.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tirjudge.judging.result_rows import RecordedRow, is_truncated, read_result_rows
from tirjudge.storage.result_file import IdIndex, recorded_settings
from tirjudge.storage.run_folder import JsonObject, complete_file, encode_line
from tirjudge_environments.registry import first_fault

MANIFEST, ROWS, VERDICTS = "manifest.json", "rows.jsonl", "verdicts.jsonl"
MEMBERS = (MANIFEST, ROWS, VERDICTS)
_KIND: Literal["tirjudge bundle"] = "tirjudge bundle"
_LARGEST = {MANIFEST: 1 << 24, ROWS: 1 << 30, VERDICTS: 1 << 32}
"""Bytes that a member may have, unpacked."""
_DENSEST = 200
"""Bytes that one packed byte may become in a member of more than `_SMALL` bytes; text has 3 to 30."""
_SMALL = 1 << 24
_BLOCK = 1 << 20
_OLDEST = (1980, 1, 1, 0, 0, 0)
"""The first time that a zip archive can hold, which all members have."""
_LEFT_OUT = ("where",)
"""Columns of a result row that say where it was judged: they may name folders of that machine."""
_DIGEST = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class NotABundle(ValueError):
    """A file that is no bundle, or one that must not be unpacked; the message is one line."""


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", hide_input_in_errors=True)


class Manifest(_Strict):
    """The member of a bundle that describes the others."""

    kind: Literal["tirjudge bundle"] = _KIND
    version: Literal[1] = 1
    versions: dict[str, str]
    """Versions of tirjudge, Python and the packages that scoring depends on."""
    settings: dict[str, Any]
    """The settings of the run, as `RESULTS.settings.json` has them; empty if there is none."""
    benchmark: str
    seed: Annotated[int, Field(ge=0, lt=2**63)]
    """Seed of the bootstrap."""
    rows: Annotated[int, Field(ge=0, lt=2**31)]
    scores: list[dict[str, Any]]
    """The protocols with their numbers, as `tirjudge eval --json` prints them."""
    sha256: dict[str, _DIGEST]
    """Hash of each other member."""


class RowRecord(_Strict):
    """The identity of a row: a line of `rows.jsonl`."""

    id: str
    domain: str
    tags: list[str]
    label: Annotated[int, Field(ge=0, lt=2**31)] | None
    digest: str
    """The hash that a run resumes by; see `tirjudge.storage.result_file.digest`."""
    sha256: _DIGEST | None
    """Hash of prompt, responses, label, reference and criteria; None if the run recorded no texts."""


@dataclass(frozen=True, slots=True)
class Unpacked:
    """A bundle, whose verdicts are a result file in a folder of the caller."""

    manifest: Manifest
    rows: tuple[RowRecord, ...]
    verdicts: Path
    changed: tuple[str, ...]
    """Members whose hash is not that of the manifest."""


def write_bundle(place: Path, results: Path, scores: Sequence[Mapping[str, Any]], *, seed: int) -> int:
    """Pack a result file and its scores; return the number of rows.

    Rows are sorted on the disk, so that memory does not grow with their number. Raises ValueError, in one
    line, for a file that is no result file, is still being written, or is too large to be checked; OSError.
    """
    results.stat()
    if is_truncated(results):
        raise ValueError(f"{results} ends in the middle of a row: only a complete run can be bundled")
    if place.exists() and place.samefile(results):
        raise ValueError(f"{place} is the input: choose another --bundle")
    with closing(IdIndex()) as verdicts, closing(IdIndex()) as rows:
        count, sizes = _index(results, verdicts, rows)
        with complete_file(place) as file, zipfile.ZipFile(file, "w") as archive:
            sha256 = {
                name: _write_member(archive, name, lines.texts(), sizes[name])
                for name, lines in ((ROWS, rows), (VERDICTS, verdicts))
            }
            manifest = _described(results, scores, seed, count, sha256)
            text = json.dumps(manifest.model_dump(), indent=2, allow_nan=False, sort_keys=True) + "\n"
            _write_member(archive, MANIFEST, [text], len(text))
    return count


def read_bundle(place: Path, folder: Path) -> Unpacked:
    """Unpack a bundle of somebody else into an empty folder; no name in it is used as a path.

    Raises NotABundle for anything else than three members of reasonable size, and for a manifest or rows of
    another shape; OSError for a file that cannot be read.
    """
    try:
        with zipfile.ZipFile(place) as archive:
            _check_members(place, archive)
            found = {}
            for name in MEMBERS:
                found[name] = hashlib.sha256()
                with (folder / name).open("wb") as target:
                    for block in _blocks(place, archive, name):
                        found[name].update(block)
                        target.write(block)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise NotABundle(f"{place} is no bundle: {error}") from None
    manifest = _manifest(place, (folder / MANIFEST).read_bytes())
    changed = [name for name in (ROWS, VERDICTS) if manifest.sha256.get(name) != found[name].hexdigest()]
    rows = tuple(_rows(place, folder / ROWS))
    return Unpacked(manifest, rows, folder / VERDICTS, tuple(changed))


def _index(results: Path, verdicts: IdIndex, rows: IdIndex) -> tuple[int, dict[str, int]]:
    """Fill in the lines of both members, by id; return the number of rows and the bytes of each member."""
    count, sizes = 0, {ROWS: 0, VERDICTS: 0}
    for row, fields in read_result_rows(results):
        if rows.get(row.id) is not None:
            raise ValueError(f"{results}: two rows have the id {row.id!r}")
        kept = {name: value for name, value in fields.items() if name not in _LEFT_OUT}
        identity = _identity(row, str(fields.get("digest", ""))).model_dump()
        for name, lines, record in ((VERDICTS, verdicts, kept), (ROWS, rows, identity)):
            line = encode_line(record)
            sizes[name] += len(line)
            lines[row.id] = line.decode()
        count += 1
    for name, size in sizes.items():
        if size > _LARGEST[name]:
            raise ValueError(f"{results}: {name} would have {size} bytes, more than {_LARGEST[name]}")
    return count, sizes


def _described(
    results: Path, scores: Sequence[Mapping[str, Any]], seed: int, rows: int, sha256: dict[str, str]
) -> Manifest:
    settings = recorded_settings(results) or {}
    return Manifest(
        versions={
            "tirjudge": version("tirjudge"),
            "python": platform.python_version(),
            "numpy": version("numpy"),
            "pydantic": version("pydantic"),
        },
        settings=settings,
        benchmark=str(settings.get("benchmark") or ""),
        seed=seed,
        rows=rows,
        scores=[_rounded(dict(one)) for one in scores],
        sha256=sha256,
    )


def _write_member(archive: zipfile.ZipFile, name: str, texts: Iterable[str], size: int) -> str:
    """Write a member of `size` bytes, and return its hash."""
    sha256, entry = hashlib.sha256(), zipfile.ZipInfo(name, _OLDEST)
    entry.create_system = 3
    entry.external_attr = 0o644 << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    # Decides whether the member's header has room for a size of more than 4 GiB.
    entry.file_size = size
    with archive.open(entry, "w") as member:
        for text in texts:
            content = text.encode()
            sha256.update(content)
            member.write(content)
    return sha256.hexdigest()


def content_hash(row: RecordedRow) -> str | None:
    """Return the hash of a row's prompt, responses, label, reference and criteria; None without texts."""
    if row.prompt is None or row.responses is None:
        return None
    turns = [[one.role, one.content] for one in row.prompt]
    criteria = [[one.text, one.weight, one.polarity, one.must_have] for one in row.criteria]
    # Escaped, so that texts with lone surrogates have a hash too.
    text = json.dumps([turns, row.responses, row.label, row.reference, criteria])
    return hashlib.sha256(text.encode()).hexdigest()


def _rounded(value: Any) -> Any:
    """Round numbers to twelve digits: the last ones of a sum depend on the order of the rows."""
    if isinstance(value, float):
        return float(f"{value:.12g}")
    if isinstance(value, Mapping):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list) else value


def _identity(row: RecordedRow, digest: str) -> RowRecord:
    return RowRecord(
        id=row.id,
        domain=row.domain,
        tags=row.tags,
        label=row.label,
        digest=digest,
        sha256=content_hash(row),
    )


def _check_members(place: Path, archive: zipfile.ZipFile) -> None:
    names = [entry.filename for entry in archive.infolist()]
    if sorted(names) != sorted(MEMBERS):
        listed = ", ".join(map(repr, names[:5])) or "nothing"
        raise NotABundle(f"{place} is no bundle: it has {listed} and not {', '.join(MEMBERS)}")
    for entry in archive.infolist():
        name, size = entry.filename, entry.file_size
        if size > _LARGEST[name]:
            raise NotABundle(f"{place}: {name} has {size} bytes, more than {_LARGEST[name]}")
        if size > _SMALL and size > _DENSEST * entry.compress_size:
            raise NotABundle(f"{place}: {name} would grow from {entry.compress_size} to {size} bytes")


def _blocks(place: Path, archive: zipfile.ZipFile, name: str) -> Iterator[bytes]:
    """Yield a member's content; the size that the archive states for it is not believed."""
    total = 0
    with archive.open(name) as member:
        while block := member.read(_BLOCK):
            total += len(block)
            if total > _LARGEST[name]:
                raise NotABundle(f"{place}: {name} has more than {_LARGEST[name]} bytes")
            yield block


def _manifest(place: Path, text: bytes) -> Manifest:
    try:
        return Manifest.model_validate(_plain_json(text))
    except ValidationError as error:
        raise NotABundle(f"{place}: {MANIFEST}: {first_fault(error)}") from None
    except (ValueError, RecursionError) as error:
        raise NotABundle(f"{place}: {MANIFEST} is no JSON: {error}") from None


def _rows(place: Path, file: Path) -> Iterable[RowRecord]:
    known = set()
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                row = RowRecord.model_validate(_plain_json(line))
            except ValidationError as error:
                raise NotABundle(f"{place}: {ROWS}:{number}: {first_fault(error)}") from None
            except (ValueError, RecursionError) as error:
                raise NotABundle(f"{place}: {ROWS}:{number} is no JSON: {error}") from None
            if row.id in known:
                raise NotABundle(f"{place}: {ROWS}:{number}: two rows have the id {row.id!r}")
            known.add(row.id)
            yield row


def _plain_json(text: bytes) -> JsonObject:
    """Return JSON without NaN and infinity, and without numbers that Python reads as infinity."""

    def refuse(name: str) -> Any:
        raise ValueError(f"{name} is no number of JSON")

    def number(digits: str) -> float:
        value = float(digits)
        return value if abs(value) <= sys.float_info.max else refuse(digits[:20])

    value: JsonObject = json.loads(text, parse_constant=refuse, parse_float=number)
    return value
