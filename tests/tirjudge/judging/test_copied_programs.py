"""Programs that check something else than the rows ask: named, and what they decided counted apart."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.judge_command import invoke
from tests.tirjudge.judged_files import asking, edit, judge_to
from tirjudge.judging.tally import Tally
from tirjudge.report.judgments import read_run
from tirjudge.report.row_table import FLAGS

COPIED = """import re
def check(r):
    return [len(re.findall(r"\\w+", r)) >= 25, "," not in r]
for name, r in zip("AB", responses):
    print(name, sum(check(r)), "of", len(check(r)))"""
LONG, SHORT = "word " * 30, "too short"
Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A labelled row that the copied program really decided, for response A, though nothing asks for it."""
    path = tmp_path_factory.mktemp("judged") / "one.jsonl"
    rows = [{"id": "x", "prompt": "Be kind.", "responses": [LONG, SHORT], "label": "B"}]
    judge_to(path, rows, asking(COPIED, lambda shown: "A" if "A 2 of 2" in shown else "B"), order="given")
    assert json.loads(path.read_text())["decided"] is True
    return path.read_text()


def run_of(path: Path, judged: str, rows: int, change: Change, others: int = 0) -> Path:
    """Write so many rows with prompts of their own, each changed, and others whose program has no values."""
    path.write_text(judged * (rows + others))

    def vary(found: list[dict[str, Any]]) -> None:
        for number, row in enumerate(found):
            row.update(id=f"row-{number}", sources=["old", "new"])
            row["prompt"][0]["content"] = f"Be kind to {'abcdefghijklmnopqrstuvwxyz'[number % 26] * 9}."
            if number < rows:
                change(row)
            else:
                for program in programs(row):
                    program["text"] = "print('A' if len(response_a) > len(response_b) else 'B')"

    edit(path, vary)
    return path


def programs(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [one for view in row["views"] for one in view["segments"] if one["kind"] == "program"]


def tally(path: Path) -> Tally:
    return Tally.of([json.loads(line) for line in path.read_text().splitlines()])


def asks(text: str) -> Change:
    return lambda row: row["prompt"][0].update(content=row["prompt"][0]["content"] + text)


def writes(program: str) -> Change:
    return lambda row: [one.update(text=program) for one in programs(row)]


def test_what_a_copied_program_decided_is_counted_apart_in_every_command(tmp_path: Path, judged: str) -> None:
    """Nine rows of twelve; the label of all rows is against the verdict."""
    path = run_of(tmp_path / "rows.jsonl", judged, 9, lambda row: None, others=3)
    evidence = tally(path).evidence
    (copied,) = evidence.copied.found()
    assert (copied.rows, len(copied.decided), evidence.decided, evidence.known) == (9, 9, 3, 12)
    assert (len(evidence.decided_credits), evidence.decided_credits.total) == (3, 0)
    said = "one program ran in 9 of 12 rows, which hold no 25; it decided 9 rows, counted apart: return [len("
    counts = "decided by a program 3 of 12 rows; 9 decided by a copied program"
    for command in ("show", "score"):
        printed = invoke(command, path.name, folder=tmp_path).stdout
        assert f"warning   {said}" in printed
        assert f"evidence  {counts}" in printed
        assert "decided   old 100.0% [43.9%, 100.0%] of 3 rows" in printed
    assert invoke("report", path.name, folder=tmp_path).returncode == 0
    page = (tmp_path / "report.html").read_text()
    assert said.partition(": return")[0].capitalize() in page
    assert "3 of 12 rows" in page


def test_rows_are_shown_and_selected_as_the_summary_counts_them(tmp_path: Path, judged: str) -> None:
    path = run_of(tmp_path / "rows.jsonl", judged, 9, lambda row: None, others=3)

    def shown(*words: str) -> str:
        return invoke("show", path.name, *words, folder=tmp_path).stdout.replace(" \n", "\n")

    marked = [line.split()[0] for line in shown().splitlines() if "  copied program" in line]
    assert marked == [f"row-{number}" for number in range(9)]
    assert "\ndecided by a copied program, which counts apart\n" in shown("row-0")
    assert "\ndecided by a program\n" in shown("row-9")
    decided = [json.loads(line)["id"] for line in shown("--decided", "--json").splitlines()]
    assert decided == ["row-9", "row-10", "row-11"]
    table = read_run(path).table
    records = json.loads(gzip.decompress(base64.b64decode(*table.chunks)))
    for number, flag, said in (
        (0, "counted apart", "decided by a copied program, which counts apart"),
        (9, "decided", "decided by a program"),
    ):
        assert table.flags[number] & (1 << FLAGS.index(flag))
        assert ["decided", said] in records[number]["facts"]


@pytest.mark.parametrize(
    "change",
    [
        asks(" Use at least 25 words."),
        asks(" Use at least twenty-five words."),
        asks(" Use more than 24 words."),
        lambda row: row.update(reference="It has 25 words."),
        lambda row: row.update(
            criteria=[
                {"text": "At least 25 words.", "weight": 1.0, "polarity": "positive", "must_have": False}
                | {"satisfied": [1.0, 0.0], "scores": None, "satisfied_from": None, "stop": "verdict"}
            ]
        ),
        lambda row: row.update(files=[{"25.txt": file(b"x")}, {}]),
        lambda row: row.update(prompt_files={"a.txt": file(b"Use 25 words")}, files=[{}, {}]),
        writes('print("A" if len(response_a) > len(response_b) else "tie")'),
        writes('for n, r in ("A", response_a), ("B", response_b): print(f"Score {n}", round(len(r) / 7, 2))'),
        writes('print("A", int("kind" in response_a), "of 1\\nB 0 of 1")'),
        # The model wrote nothing: a checker decided.
        lambda row: (
            row["views"][0].update(criterion=0),
            row.update(
                criteria=[
                    {"text": "Kind.", "weight": 1.0, "polarity": "positive", "must_have": False}
                    | {"satisfied": [1.0, 0.0], "scores": None, "satisfied_from": None, "stop": "verdict"}
                    | {"checker": "kind"}
                ]
            ),
        ),
    ],
)
def test_a_program_whose_values_the_row_holds_is_no_copied_one(
    change: Change, tmp_path: Path, judged: str
) -> None:
    path = run_of(tmp_path / "rows.jsonl", judged, 12, change)
    evidence = tally(path).evidence
    assert evidence.copied.found() == []
    assert evidence.decided == 12


def file(content: bytes) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


@pytest.mark.parametrize(
    ("rows", "others", "prompts", "is_copied"),
    [(7, 0, 7, False), (8, 0, 8, True), (8, 24, 8, True), (8, 25, 8, False), (20, 0, 7, False)],
)
def test_a_copied_program_serves_eight_prompts_and_a_quarter_of_the_rows(
    rows: int, others: int, prompts: int, is_copied: bool, tmp_path: Path, judged: str
) -> None:
    def ask(row: dict[str, Any]) -> None:
        number = int(row["id"].partition("-")[2]) % prompts
        row["prompt"][0]["content"] = f"Be kind to {'abcdefghij'[number] * 5}."

    path = run_of(tmp_path / "rows.jsonl", judged, rows, ask, others)
    assert bool(tally(path).evidence.copied.found()) is is_copied


@pytest.mark.parametrize(
    ("program", "named"),
    [
        ('print("A" if "basil" in response_a.lower() else "B")', "'basil'"),
        ('print("A" if re.search(r"(?i)\\bbasil\\b[a-z]*", response_a) else "B")', "'basil'"),
        ('WORDS = ["basil", "thyme"]\nprint(sum(w in response_a for w in WORDS))', "'basil', 'thyme'"),
        ('print("A" if re.search(r"\\d{10}", response_a) else "B")', "10"),
        ('least = 40\nprint("A" if len(response_a) > least else "B")', "40"),
        ('print(f"A {int(len(response_a) > 40):03d} of 1")', "40"),
    ],
)
def test_values_are_numbers_and_words_wherever_a_program_has_them(
    program: str, named: str, tmp_path: Path, judged: str
) -> None:
    path = run_of(tmp_path / "rows.jsonl", judged, 9, writes(program))
    (warning,) = [one for one in tally(path).evidence.warnings() if "one program" in one]
    assert f"which hold no {named}; it decided" in warning


def test_a_run_without_programs_and_one_that_names_the_first_response_are_called_so(
    tmp_path: Path, judged: str
) -> None:
    def silent(row: dict[str, Any]) -> None:
        number = int(row["id"].partition("-")[2])
        row.update(programs=0, decided=False, verdict="tie", choice=None, guess="A", correct=0.5)
        row["views"][0]["segments"] = []
        if number < 2:
            row["views"][0]["verdict"]["choice"] = 1

    path = run_of(tmp_path / "rows.jsonl", judged, 24, silent)
    evidence = tally(path).evidence
    assert list(evidence.warnings()) == [
        "no row ran a program: the judge only read the responses",
        "22 of 24 verdicts name the response shown first (--order both shows each row in both orders)",
    ]
    # The label is B: the guess A is wrong in all rows, and worth nothing.
    assert list(evidence.lines()) == [
        "decided by a program 0 of 24 rows; 24 undecided, counted as ties",
        "accuracy of guesses 0.0% [0.0%, 13.8%], n = 24 (guesses count as ties)",
    ]
    even = run_of(tmp_path / "even.jsonl", judged, 24, lambda row: None)
    edit(
        even,
        lambda rows: [row["views"][0]["verdict"].update(choice=n % 2) for n, row in enumerate(rows)] and None,
    )
    assert not [one for one in tally(even).evidence.warnings() if "shown first" in one]
