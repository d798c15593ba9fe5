"""`tirjudge eval --bundle` and `--check`: claims are computed again, and hostile bundles are refused."""

from __future__ import annotations

import hashlib
import io
import json
import random
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from tests.tirjudge.judged_files import FAST, asking, edit, judge_to, programs
from tirjudge.cli import app
from tirjudge.evaluation.bundles.bundle import write_bundle

LONGER = "print('longer:', 'A' if len(response_a) > len(response_b) else 'B')"
ROWS = [
    {"id": f"r{n}", "prompt": f"Q{n}", "responses": ["x" * (n + 1), "yy"], "label": int(n < 2), "domain": "d"}
    for n in range(4)
]
Members = dict[str, bytes]


def evaluate(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["eval", *map(str, arguments), *FAST])


def findings(bundle: Path, *arguments: object, code: int = 1) -> list[str]:
    """Return the lines that say what does not hold."""
    done = evaluate("--check", bundle, *arguments)
    assert done.exit_code == code, done.output
    assert done.stderr.count("\n") == 1
    return done.stdout.splitlines()


def refused(bundle: Path) -> str:
    done = evaluate("--check", bundle)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.output
    return done.stderr.strip().removeprefix("tirjudge eval: ")


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    script = asking(LONGER, lambda output: output.partition("longer: ")[2][:1] or "B")
    return judge_to(tmp_path_factory.mktemp("judged") / "run.jsonl", ROWS, script, order="both")


@pytest.fixture(scope="module")
def packed(judged: Path) -> Members:
    place = judged.with_name("run.zip")
    done = evaluate("--replay", judged, "--protocol", "both-orders", "--protocol", "tir", "--bundle", place)
    assert done.exit_code == 0, done.output
    assert f"{place}: 4 rows, 2 protocols" in done.stdout
    with zipfile.ZipFile(place) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write(place: Path, members: Members) -> Path:
    """Write a bundle whose manifest has the hashes of its members, as a careful forger does."""
    manifest = json.loads(members["manifest.json"])
    manifest["sha256"] = {
        name: hashlib.sha256(content).hexdigest()
        for name, content in members.items()
        if name != "manifest.json"
    }
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {**members, "manifest.json": json.dumps(manifest).encode()}.items():
            archive.writestr(name, content)
    return place


def changed(members: Members, name: str, change: Callable[[list[dict[str, Any]]], object]) -> Members:
    rows = [json.loads(line) for line in members[name].splitlines()]
    change(rows)
    return {**members, name: b"".join(json.dumps(row).encode() + b"\n" for row in rows)}


def rescored(members: Members, change: Callable[[dict[str, Any]], object]) -> Members:
    manifest = json.loads(members["manifest.json"])
    change(manifest)
    return {**members, "manifest.json": json.dumps(manifest).encode()}


def test_equal_results_give_equal_bytes_and_everything_holds(judged: Path, tmp_path: Path) -> None:
    shuffled = tmp_path / "run.jsonl"
    shuffled.write_bytes(judged.read_bytes())
    edit(shuffled, lambda rows: random.Random(1).shuffle(rows))
    edit(shuffled, lambda rows: [row.update(where="/home/somebody/rows.jsonl:1") for row in rows] and None)
    (tmp_path / "run.jsonl.settings.json").write_bytes(
        judged.with_name("run.jsonl.settings.json").read_bytes()
    )
    places = [tmp_path / "a.zip", tmp_path / "b.zip"]
    for source, place in zip((judged, shuffled), places, strict=True):
        assert evaluate("--replay", source, "--bundle", place).exit_code == 0
    assert places[0].read_bytes() == places[1].read_bytes()
    assert b"somebody" not in zipfile.ZipFile(places[1]).read("verdicts.jsonl")
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    assert findings(places[0], "--data", tmp_path / "rows.jsonl", code=0) == []
    record = json.loads(evaluate("--check", places[0], "--json").stdout)
    assert (record["holds"], record["rows"], record["verdicts"], record["programs"]) == (True, 4, 8, 8)


GROWTH = """
import json, sys
from pathlib import Path
from tirjudge.evaluation.bundles.bundle import write_bundle

def peak():
    (line,) = (one for one in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in one)
    return int(line.split()[1]) << 10

row, folder, peaks = json.loads(Path(sys.argv[1]).read_text().splitlines()[0]), Path(sys.argv[2]), []
for count in (20, 600):
    with (folder / "big.jsonl").open("w") as file:
        for number in range(count, 0, -1):
            prompt = [{"role": "user", "content": f"{number} " * 5000}]
            file.write(json.dumps(row | {"id": f"r{number}", "prompt": prompt}) + "\\n")
    assert write_bundle(folder / "big.zip", folder / "big.jsonl", [], seed=0) == count
    peaks.append(peak())
print(peaks[1] - peaks[0], (folder / "big.jsonl").stat().st_size)
"""


def test_memory_does_not_grow_with_the_rows(judged: Path, tmp_path: Path) -> None:
    """30 times as many rows, in a process of its own; one copy of them would take all of their size."""
    done = subprocess.run(
        [sys.executable, "-c", GROWTH, judged, tmp_path], capture_output=True, text=True, check=True
    )
    growth, size = map(int, done.stdout.split())
    assert size > 12 << 20
    assert growth < 6 << 20
    with zipfile.ZipFile(tmp_path / "big.zip") as archive:
        ids = [json.loads(line)["id"] for line in archive.read("rows.jsonl").splitlines()]
    assert ids == sorted(f"r{number}" for number in range(1, 601))


def test_two_rows_with_the_same_id_are_not_packed(judged: Path, tmp_path: Path) -> None:
    twice = tmp_path / "run.jsonl"
    twice.write_bytes(judged.read_bytes() + judged.read_bytes().splitlines(keepends=True)[0])
    with pytest.raises(ValueError, match=r"run\.jsonl: two rows have the id 'r\d'$"):
        write_bundle(tmp_path / "run.zip", twice, [], seed=0)
    assert not list(tmp_path.glob("*.zip*"))
    assert not list(tmp_path.glob(".*"))


def test_three_planted_falsifications_are_found(packed: Members, tmp_path: Path) -> None:
    """A changed verdict, a changed program output and a changed score, each with consistent hashes."""

    def verdict(rows: list[dict[str, Any]]) -> None:
        rows[0]["views"][0]["verdict"]["choice"] = 0

    def output(rows: list[dict[str, Any]]) -> None:
        program = programs(rows[3])[1]
        shown = next(one for one in rows[3]["views"][1]["segments"] if one["kind"] == "output")
        before, after = "longer: B", "longer: A"
        program["stdout"] = program["stdout"].replace(before, after)
        shown["text"] = shown["text"].replace(before, after)
        rows[3]["views"][1]["segments"][-1]["text"] = "So <preference>A</preference>"
        rows[3]["views"][1]["verdict"]["choice"] = 1
        rows[3] |= {"verdict": "tie", "choice": None, "correct": 0.5}

    def score(manifest: dict[str, Any]) -> None:
        manifest["scores"][0]["figures"]["accuracy"]["value"] = 1.0

    forged = changed(packed, "verdicts.jsonl", verdict)
    assert findings(write(tmp_path / "verdict.zip", forged))[:2] == [
        "verdict r0, view AB: the file says A, and the dialogue says B",
        "verdict r0: the file says verdict B, and its views together say tie",
    ]
    forged = changed(packed, "verdicts.jsonl", output)
    (line, *others) = findings(write(tmp_path / "output.zip", forged))
    assert line.startswith("program r3, view BA, program 1: different: stdout was 'longer: A\\n' and is now")
    assert all(other.startswith("score ") for other in others)
    forged = rescored(packed, score)
    accuracy = json.loads(packed["manifest.json"])["scores"][0]["figures"]["accuracy"]["value"]
    assert accuracy == 0.75
    assert findings(write(tmp_path / "score.zip", forged)) == [
        "score both-orders, accuracy: value is 1.0 in the bundle and 0.75 by its verdicts"
    ]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda rows: rows.pop(), ["row r3: it is in verdicts.jsonl and not in rows.jsonl"]),
        (
            lambda rows: rows[1].update(label=0),
            ["row r1: its label is 0 in rows.jsonl and 1 in verdicts.jsonl"],
        ),
        (
            lambda rows: rows[2].update(sha256="0" * 64),
            ["row r2: its content does not have the recorded hash"],
        ),
    ],
)
def test_rows_that_are_not_those_of_the_verdicts(
    change: Any, expected: list[str], packed: Members, tmp_path: Path
) -> None:
    found = findings(write(tmp_path / "forged.zip", changed(packed, "rows.jsonl", change)))
    assert set(expected) <= set(found)


def test_another_prompt_is_found_by_the_rows_of_the_benchmark(judged: Path, tmp_path: Path) -> None:
    """The whole run was judged on an easier row and without another: only the true rows show it."""
    given = tmp_path / "rows.jsonl"
    harder = [{**row, "prompt": "harder"} if row["id"] == "r0" else row for row in ROWS]
    more = [*harder, {"id": "r9", "prompt": "p", "responses": ["a", "b"], "label": 0}]
    given.write_text("".join(json.dumps(row) + "\n" for row in more))
    place = tmp_path / "run.zip"
    assert evaluate("--replay", judged, "--bundle", place).exit_code == 0
    assert findings(place, "--data", given) == [
        f"row r0: its prompt, responses or label are not those of {given}",
        f"row {given}: 1 of its 5 rows are not judged: 'r9'",
    ]


def test_a_row_with_criteria_and_a_reference_holds(tmp_path: Path) -> None:
    criteria = [{"text": "It is long.", "weight": 2.0}, {"text": "It is late.", "polarity": "negative"}]
    row = {**ROWS[0], "reference": "xyz", "criteria": criteria}
    run = judge_to(tmp_path / "run.jsonl", [row], lambda _: "<preference>A</preference>", order="both")
    place, given = tmp_path / "run.zip", tmp_path / "rows.jsonl"
    given.write_text(json.dumps(row) + "\n")
    assert evaluate("--replay", run, "--bundle", place).exit_code == 0
    assert findings(place, "--data", given, code=0) == []
    with zipfile.ZipFile(place) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    forged = changed(members, "verdicts.jsonl", lambda rows: rows[0].update(reference="other"))
    assert "row r0: its content does not have the recorded hash" in findings(write(place, forged))


def test_a_run_without_texts_needs_the_rows(tmp_path: Path) -> None:
    script = asking(LONGER, lambda output: output.partition("longer: ")[2][:1] or "B")
    run = judge_to(tmp_path / "run.jsonl", ROWS[:1], script, texts=False)
    place, given = tmp_path / "run.zip", tmp_path / "rows.jsonl"
    given.write_text(json.dumps(ROWS[0]) + "\n")
    assert evaluate("--replay", run, "--bundle", place).exit_code == 0
    assert findings(place)[0].endswith("failed: the prompt and the responses are not in the file")
    assert findings(place, "--data", given, code=0) == []


def test_hostile_text_is_escaped(packed: Members, tmp_path: Path) -> None:
    def hostile(rows: list[dict[str, Any]]) -> None:
        rows[0]["id"] = "\x1b[2J\nowned"

    for line in findings(write(tmp_path / "forged.zip", changed(packed, "verdicts.jsonl", hostile))):
        assert "\x1b" not in line
        assert not line.startswith("owned")


HUGE = "9" * 5000


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        (b"{", "manifest.json is no JSON"),
        (b"[" * 100_000, "manifest.json is no JSON"),
        (b'{"rows": NaN}', "NaN is no number of JSON"),
        (b'{"rows": 1e999}', "1e999 is no number of JSON"),
        (f'{{"rows": {HUGE}}}'.encode(), "manifest.json is no JSON"),
        (b"{}", "manifest.json: versions: Field required"),
        (b'{"version": 2}', "manifest.json: version: Input should be 1"),
    ],
)
def test_a_manifest_of_another_shape_is_refused(
    manifest: bytes, reason: str, packed: Members, tmp_path: Path
) -> None:
    place = tmp_path / "forged.zip"
    with zipfile.ZipFile(place, "w") as archive:
        for name, content in {**packed, "manifest.json": manifest}.items():
            archive.writestr(name, content)
    assert reason in refused(place)


@pytest.mark.parametrize(
    ("name", "line", "reason"),
    [
        ("verdicts.jsonl", b"{}\n", "verdicts.jsonl:5: not a row of a result file"),
        ("verdicts.jsonl", b'{"id": ' + HUGE.encode() + b"}\n", "verdicts.jsonl:5: not JSON"),
        ("rows.jsonl", b'{"id": "x"}\n', "rows.jsonl:5: domain: Field required"),
        ("rows.jsonl", b"null\n", "rows.jsonl:5: "),
    ],
)
def test_rows_of_another_shape_are_refused(
    name: str, line: bytes, reason: str, packed: Members, tmp_path: Path
) -> None:
    place = write(tmp_path / "forged.zip", {**packed, name: packed[name] + line})
    assert reason in refused(place)
    assert "tirjudge-bundle-" not in refused(place)


def test_archives_that_must_not_be_unpacked_are_refused(packed: Members, tmp_path: Path) -> None:
    place = tmp_path / "forged.zip"
    place.write_bytes(b"PK\x03\x04 no archive")
    assert "is no bundle: " in refused(place)
    write(place, packed)
    place.write_bytes(place.read_bytes()[:-40])
    assert "is no bundle: " in refused(place)
    write(place, {**packed, "../../evil": b"x"})
    assert "is no bundle: it has " in refused(place)
    assert not (tmp_path.parent.parent / "evil").exists()
    with zipfile.ZipFile(write(place, packed), "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("rows.jsonl", packed["rows.jsonl"])
    assert "is no bundle: it has " in refused(place)
    write(place, {**packed, "rows.jsonl": bytes(1 << 25)})
    assert "rows.jsonl would grow from " in refused(place)
    # A bomb whose directory states a small size: the archive's own checksum or size gives it away.
    data = bytearray(write(place, {**packed, "rows.jsonl": bytes(1 << 25)}).read_bytes())
    stated = struct.pack("<I", 1 << 25)
    place.write_bytes(bytes(data).replace(stated, struct.pack("<I", 100)))
    assert "is no bundle: " in refused(place)
    buffer = io.BytesIO(write(place, packed).read_bytes())
    encrypted = bytearray(buffer.getvalue())
    encrypted[encrypted.index(b"PK\x01\x02") + 8] |= 1
    place.write_bytes(encrypted)
    assert "is no bundle: " in refused(place)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ("--check", "{0}", "--replay", "{0}"),
            "--check BUNDLE stands alone; --data gives the rows to compare with",
        ),
        (("--check", "nothing.zip"), "nothing.zip: No such file or directory"),
        (("--replay", "{0}", "--bundle", "{0}"), "{0} is the input: choose another --bundle"),
        (
            ("--compare", "{0}", "{0}", "--bundle", "x.zip"),
            "--bundle packs one scored run: leave out --compare",
        ),
        (
            ("--replay", "{1}", "--column", "prediction=p", "--bundle", "x.zip"),
            "--bundle packs one result file of tirjudge judge or eval",
        ),
    ],
)
def test_what_cannot_be_packed_gets_one_line(
    words: tuple[str, ...], line: str, judged: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text('{"id": 1, "p": "A", "label": "A"}\n')
    done = evaluate(*(word.format(judged, other) for word in words))
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.output
    assert done.stderr.startswith(f"tirjudge eval: {line.format(judged)}")
