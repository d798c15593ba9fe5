"""`tirjudge report` without a browser: numbers, sizes and bad input."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.tirjudge.benchmark_data import benchmark_file
from tests.tirjudge.judge_command import command
from tests.tirjudge.judged_files import asking, edit, judge_to
from tests.tirjudge.report.runs import finish, training_run
from tirjudge.cli import results
from tirjudge.evaluation.stored_outputs.reading import open_replay
from tirjudge.records.result_row import RecordedFile, read_result_rows
from tirjudge.report.judgments import comparisons, joined, read_run
from tirjudge.report.labelling import question
from tirjudge.report.page import training_page
from tirjudge.report.row_table import FLAGS
from tirjudge.report.training import read_training_run
from tirjudge.storage.durable_files import RunFolder
from tirjudge_environments.tasks import RowError, read_task


def report(*arguments: object) -> Result:
    return command("report", *arguments)


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six pairs in both orders, of which the judge is right about three, and two without a label."""
    rows: list[dict[str, Any]] = [
        {
            "id": f"row-{n}",
            "prompt": f"{n}. Which is longer?",
            "responses": ["longer", "short"],
            "label": n % 2,
        }
        for n in range(6)
    ]
    rows += [{"id": f"open-{n}", "prompt": "?", "responses": ["longer", "x"]} for n in range(2)]
    path = tmp_path_factory.mktemp("judged") / "out.jsonl"
    program = "print('longer:', 'A' if len(response_a) > len(response_b) else 'B')"
    return judge_to(
        path, rows, asking(program, lambda shown: shown.partition("longer: ")[2][:1]), order="both"
    )


def test_stored_outputs_of_another_project_have_a_page(tmp_path: Path) -> None:
    """JudgeBench's file of o1-mini: 65.71 % by net vote, and 31.43 % of the pairs flip with the order."""
    file = benchmark_file("judgebench/judge-arena-hard-o1-mini.jsonl")
    run = read_run(file, stored=open_replay(file))
    assert (run.summary["rows"], run.summary["truncated"]) == (350, False)
    assert run.summary["headline"]["value"] == pytest.approx(0.6571, abs=5e-5)
    positions = run.summary["positions"]
    assert sum(map(sum, positions["cells"])) == 350
    assert positions["figures"]["verdict flips"]["value"] == pytest.approx(0.3143, abs=5e-5)
    flipped = sum(bool(flags >> FLAGS.index("flipped") & 1) for flags in run.table.flags)
    # A tie in one order is no flip of a page's filter, which compares responses in first place.
    assert 0 < flipped <= round(0.3143 * 350)
    domains = next(one for one in run.summary["breakdowns"] if one["title"] == "domain")
    assert sum(group["n"] for group in domains["groups"]) == 350
    page = tmp_path / "page.html"
    command("report", file, "-o", page, code=0)
    assert b"65.7" in page.read_bytes()


def test_columns_of_any_file_have_a_page_and_those_of_a_result_file_do_not(tmp_path: Path) -> None:
    file, page = tmp_path / "rows.csv", tmp_path / "page.html"
    # Columns with names of a result file's mean nothing here.
    file.write_text("said,label,checker,views\n" + "A,A,x,1\nB,A,y,2\n" * 10)
    words = ["--column", "prediction=said", "--column", "label=label", "-o", str(page)]
    done = command("report", file, *words, code=0)
    assert b"50.0" in page.read_bytes()
    done = command("report", "examples/instructions.verdicts.jsonl", *words)
    assert (done.exit_code, "leave out the options" in done.stderr) == (2, True)


def test_numbers_of_a_run(judged: Path) -> None:
    summary = read_run(judged).summary
    assert (summary["rows"], summary["headline"]["n"], summary["headline"]["value"]) == (8, 6, 0.5)
    # Wilson's interval of 3 of 6, by the formula of Wilson (1927).
    assert summary["headline"]["low"] == pytest.approx(0.1876, abs=1e-4)
    positions = summary["positions"]
    # Response A wins at both places in all eight rows.
    assert positions["cells"] == [[0, 8, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert positions["figures"]["consistency"]["value"] == 1.0
    costs = {row["name"]: row for row in summary["costs"]["table"]}
    assert (costs["programs"]["total"], costs["programs"]["median"]) == (16, 2)
    assert dict(summary["endings"]["programs"]) == {"ok": 16}


def evidence_of(decided: int, *, guesses: bool = False, sources: bool = False, labels: bool = False) -> Any:
    """Return a change after which programs decided so many rows for A, and the others are ties or guesses."""

    def change(rows: list[dict[str, Any]]) -> None:
        for number, row in enumerate(sorted(rows, key=lambda row: not row["id"].startswith("row"))):
            row["decided"] = number < decided
            row["sources"] = ["Old prompt", "New prompt"] if sources else []
            row["label"] = row["label"] if labels else None
            row["correct"] = None if row["label"] is None else float(row["label"] == 0)
            if number >= decided and not guesses:
                row.update(
                    verdict="tie", choice=None, guess="A", correct=0.5 if row["correct"] is not None else None
                )

    return change


@pytest.mark.parametrize(
    ("change", "sentence", "number"),
    [
        (
            evidence_of(3, sources=True),
            "Old prompt better in 3 of the 3 rows that a program decided; 5 undecided",
            None,
        ),
        (evidence_of(8, sources=True), "Old prompt better in 8 of the 8 rows that a program decided", 1.0),
        (evidence_of(0, sources=True), "0 of 8 rows decided by a program; 8 undecided", None),
        (evidence_of(3), "3 of 8 rows decided by a program; 5 undecided", None),
        # Three of the six labels are A.
        (
            evidence_of(6, labels=True),
            "Right in 3 of the 6 labelled rows that a program decided; 2 undecided",
            0.5,
        ),
        # Guesses count: three of six labels are A, whatever programs decided.
        (evidence_of(3, labels=True, guesses=True), "", 0.5),
        (
            lambda rows: [row.update(decided=None, label=None, correct=None) for row in rows],
            "8 of 8 rows have a verdict",
            None,
        ),
    ],
)
def test_the_headline_is_about_what_programs_decided(
    change: Any, sentence: str, number: float | None, judged: Path, tmp_path: Path
) -> None:
    path, page = tmp_path / "out.jsonl", tmp_path / "page.html"
    path.write_text(judged.read_text())
    edit(path, change)
    summary = read_run(path).summary
    assert summary["sentence"] == sentence
    headline = summary["headline"]
    assert (headline and headline["value"]) == (number and pytest.approx(number))
    assert report(path, "-o", page).exit_code == 0
    lead = page.read_text().partition('<section class="lead">')[2].partition("</section>")[0]
    assert f'<p class="sentence">{sentence}.' in lead or not sentence
    assert "Judged by scripted; results of 20" in lead
    assert "% verdicts" not in lead


def test_a_file_of_labels_is_part_of_the_report(judged: Path, tmp_path: Path) -> None:
    """Seven of eight rows are labelled; the judge always prefers A."""
    labels = tmp_path / "out.labels.jsonl"
    names = {**{f"row-{n}": "AABAAt"[n] for n in range(6)}, "open-0": "A"}
    labels.write_text(
        "".join(
            json.dumps({"id": id, "label": {"t": "tie"}.get(name, name)}) + "\n" for id, name in names.items()
        )
    )
    run = read_run(judged, labels=labels)
    assert (run.summary["headline"]["n"], run.summary["headline"]["value"]) == (6, pytest.approx(5 / 6))
    assert sum(flags & 1 for flags in run.table.flags) == 1
    page = tmp_path / "page.html"
    assert report(judged, "--labels", labels, "-o", page).exit_code == 0
    assert b"83.3" in page.read_bytes()
    done = report(judged, "--labels", labels, "--cluster", "id", "-o", page)
    assert (done.exit_code, "leave out the options" in done.output) == (2, True)
    done = report(judged, "--labels", tmp_path / "none.jsonl", "-o", page)
    assert (done.exit_code, "none.jsonl" in done.output) == (2, True)


def test_gained_and_lost_rows_are_those_that_the_filters_count(judged: Path, tmp_path: Path) -> None:
    after = tmp_path / "after.jsonl"
    after.write_text(judged.read_text())

    def tie(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            if row["id"] in ("row-0", "row-1", "row-2"):
                row.update(verdict="tie", choice=None, correct=0.5)
            if row["id"] == "row-3":
                row.update(verdict="B", choice=1, correct=1.0)
        rows[:] = [row for row in rows if row["id"] != "open-1"]

    edit(after, tie)
    page = tmp_path / "page.html"
    assert report(judged, after, "-o", page).exit_code == 0
    data = json.loads(page.read_text().partition('id="rows-data">')[2].partition("</script>")[0])
    gained, lost = data["changes"].count(1), data["changes"].count(-1)
    assert (gained, lost) == (2, 2)
    assert f"{gained} rows gained, {lost} lost" in page.read_text()


def test_an_empty_cell_is_no_verdict_and_one_row_is_no_plural(judged: Path, tmp_path: Path) -> None:
    file, page = tmp_path / "rows.csv", tmp_path / "page.html"
    file.write_text("said,label\nA,A\n,A\nB,A\n")
    words = ["--column", "prediction=said", "--column", "label=label"]
    assert report(file, *words, "-o", page).exit_code == 0
    text = page.read_text()
    data = json.loads(text.partition('id="rows-data">')[2].partition("</script>")[0])
    assert data["runs"][0]["verdicts"]["values"] == ["A", "no verdict", "B"]
    assert "malformed" not in text.partition("<script>")[0]
    path = tmp_path / "out.jsonl"
    path.write_text(judged.read_text())
    edit(path, lambda rows: rows[1].update(id=rows[0]["id"]))
    assert report(path, "-o", page).exit_code == 0
    assert "1 row with an id that occurred before" in page.read_text()


def trusted(run: Any) -> dict[str, Any]:
    return {one["name"]: one for one in run.summary["trust"]}


def test_a_page_advises_only_what_works(judged: Path, tmp_path: Path) -> None:
    path = tmp_path / "$x rows.jsonl"
    shutil.copy(judged, path)

    def forget(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            row["label"] = row["correct"] = None
            del row["decided"]

    edit(path, forget)
    found = trusted(read_run(path))
    assert found["labels"]["asks_for_labels"] is True
    assert found["decided by a program"]["value"] == "unknown"
    assert trusted(read_run(path, texts="none"))["labels"]["asks_for_labels"] is False

    def leave_out_texts(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            del row["prompt"], row["responses"]

    edit(path, leave_out_texts)
    found = trusted(read_run(path))
    assert found["labels"]["asks_for_labels"] is False


def test_a_page_of_verdicts_without_dialogues_says_nothing_about_programs(tmp_path: Path) -> None:
    file = tmp_path / "annotations.json"
    pair = {"generator_1": "gpt4", "generator_2": "m", "output_1": "one", "output_2": "two"}
    rows = [pair | {"instruction": f"{number}?", "preference": 1.0 + number % 2} for number in range(40)]
    file.write_text(json.dumps(rows))
    found = trusted(read_run(file, stored=open_replay(file)))
    assert "decided by a program" not in found
    assert found["labels"]["asks_for_labels"] is False


def test_texts_and_sizes(judged: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    sizes = {}
    for texts in ("all", "wrong", "none"):
        run = report(judged, "-o", page, "--texts", texts)
        assert run.exit_code == 0, run.output
        kept = "without" if texts == "none" else "with"
        assert re.search(rf"\(8 rows, {kept} texts\)", run.stdout)
        assert run.stdout.startswith("open file:///")
        chunks = re.findall(r'id="texts-\d+-\d+">([^<]*)<', page.read_text())
        rows = [row for chunk in chunks for row in json.loads(gzip.decompress(base64.b64decode(chunk)))]
        sizes[texts] = len(rows)
    assert sizes == {"all": 8, "wrong": 3, "none": 0}


def test_the_policy_names_the_only_script_and_style(judged: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    report(judged, "-o", page)
    html = page.read_text()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    assert policy is not None
    assert "default-src &#39;none&#39;" in policy[1]
    for element in ("script", "style"):
        (content,) = re.findall(rf"<{element}>(.*?)</{element}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{element}-src &#39;sha256-{digest}&#39;" in policy[1]
    assert not re.search(r'(?:src|href)="(?!#)', html)


def test_rows_are_in_the_order_of_a_parquet_file(judged: Path, tmp_path: Path) -> None:
    """Such rows have items and no lines, and were finished in another order."""
    path = tmp_path / "out.jsonl"
    path.write_text(judged.read_text())

    def move(rows: list[dict[str, Any]]) -> None:
        for row, number in zip(rows, (10, 9, 11, 2, 100, 1, 3, 20), strict=True):
            row.update(id=str(number), where=f"owner/rows[test], item {number}")

    edit(path, move)
    data = joined([read_run(path)])
    ids = data["runs"][0]["ids"]
    assert [ids[number] for number in data["order"]] == ["1", "2", "3", "9", "10", "11", "20", "100"]


def test_a_training_run_is_read(tmp_path: Path) -> None:
    found = read_training_run(training_run(tmp_path / "run"))
    measured, rl = sorted(found.summary["stages"], key=lambda stage: stage["name"])
    assert (measured["name"], rl["name"], rl["finished"], rl["steps"]) == ("heldout-base", "rl", False, 4)
    assert (rl["seconds"], rl["tokens_per_second"], rl["checkpoints"]) == (360.0, 10.0, [2, 4])
    assert [event["kind"] for event in found.summary["events"]] == ["resumed", "stopped"]
    tables = found.summary["measured"]["tables"]
    assert tables["format"]["tir-pairwise"]["base"]["value"] == 0.8
    assert tables["family"]["contains, tir-pairwise"]["base"]["n"] == 20


def test_hostile_metrics_make_a_page_of_a_bounded_size(tmp_path: Path) -> None:
    """Metrics come from people's folders: integers of any size, and a name for every number."""
    run = training_run(tmp_path / "run")
    rows = [
        {"step": step, "reward/huge": 10**400} | {f"reward/{step}-{n}": n for n in range(300)}
        for step in range(300)
    ]
    rows[0] |= {"reward/" + "x" * 1_000_000: 1, "reward": 0.5}
    (run / "rl" / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (run / "heldout-base" / "done.json").write_text(
        json.dumps({"tir-pairwise": {"accuracy": {"n": 10**400, "rate": 0.5, "low": 0.1, "high": 0.9}}})
    )
    found = read_training_run(run)
    (chart,) = found.charts["stages"][0]["charts"]
    assert chart["series"]["reward"][0] == 0.5
    assert "reward/huge" not in chart["series"]
    assert found.summary["measured"]["tables"]["format"]["tir-pairwise"]["base"]["value"] is None
    assert len(training_page([found]).html) < 1_000_000


def test_a_torn_last_row_is_left_out_and_said(judged: Path, tmp_path: Path) -> None:
    path, page = tmp_path / "torn.jsonl", tmp_path / "page.html"
    path.write_bytes(judged.read_bytes()[:-20])
    assert report(path, "-o", page).exit_code == 0
    assert read_run(path).summary["rows"] == 7
    assert "ends in the middle of a row" in page.read_text()


@pytest.mark.slow
def test_a_page_is_renewed_while_a_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, page = training_run(tmp_path / "run"), tmp_path / "page.html"
    monkeypatch.setattr(results, "RENEWED", 1)
    refreshes = '<meta http-equiv="refresh" content="1">'
    with RunFolder(run), ThreadPoolExecutor(1) as thread:
        followed = thread.submit(report, run, "--follow", "-o", page)
        while not page.exists():
            time.sleep(0.05)
        assert refreshes in page.read_text()
        assert "Training: rl, step 4 of 10, 9 min left." in page.read_text()
        metrics = run / "rl" / "metrics.jsonl"
        metrics.write_text(metrics.read_text() + '{"step": 4, "seconds/step": 90.0}\n')
        while "step 5 of 10" not in page.read_text():
            time.sleep(0.05)
        assert not followed.done()
        # The next stage has begun, and has no metrics yet.
        (run / "second").mkdir()
        (run / "second" / "config.toml").write_text("")
        while "Training: second, in its first step." not in page.read_text():
            time.sleep(0.05)
        finish(run)
        # The process that trains ends.
        (run / ".lock").unlink()
        done = followed.result()
    assert done.exit_code == 0, done.output
    assert refreshes not in page.read_text()
    assert report(run, run, "-o", page).exit_code == 2
    assert "--follow belongs to run folders" in report(page, "--follow", "-o", tmp_path / "x.html").output


def test_a_labelled_row_names_its_files_so_that_no_judge_takes_it_for_one_without(judged: Path) -> None:
    row, _ = next(read_result_rows(judged))
    file = {"a.diff": RecordedFile(sha256="ab", bytes=3)}
    asked = question(row.model_copy(update={"files": [file, {}]}))
    assert asked["files"] == [{"a.diff": {"sha256": "ab", "bytes": 3}}, {}]
    fields = {"id": "1", "prompt": "p", "responses": ["longer", "short"], "label": "A", **asked}
    with pytest.raises(RowError, match=r"files of response A: a\.diff"):
        read_task(fields, default_id="")
    assert "files" not in question(row)


def test_two_runs_of_other_rows_are_refused_in_one_line(tmp_path: Path) -> None:
    runs = []
    for id in "ab":
        row = {"id": id, "prompt": "p", "responses": ["x", "y"], "label": "A"}
        out = judge_to(tmp_path / f"{id}.jsonl", [row], lambda _: "<preference>A</preference>")
        runs.append(read_run(out))
    with pytest.raises(
        ValueError, match=r"^a\.jsonl and b\.jsonl cannot be compared: the runs have no row in common$"
    ):
        comparisons(runs)
