"""Evidence of verdicts: which ones a program decided, in every place where verdicts are seen."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.judge_command import FAST, asking_as_tir, invoke, results, write_rows
from tests.tirjudge.judged_files import edit
from tirjudge import Judge
from tirjudge.judging.judge_model import undecided_verdicts
from tirjudge.judging.options import JudgeOptions
from tirjudge.models.resolve import ModelNote, embedded_model, read_note
from tirjudge.records.inspect_log import inspect_record
from tirjudge.records.result_row import read_result_rows
from tirjudge.report.row_table import FLAGS, row_flags
from tirjudge_sandbox import Execution, Limits, Program, Status
from tirjudge_sandbox.local import LocalSandbox

CHECKS = "for name, one in ('A', response_a), ('B', response_b): print(name, int(len(one) < 10), 'of 1')"
SUMMARY = "decided by a program 2 of 4 rows; 2 undecided, counted as guessed"


def checking(body: dict[str, Any]) -> dict[str, Any]:
    """Play a judge that counts where the question says so, and else guesses A without a program."""
    asked, last = body["messages"][0]["content"], body["messages"][-1]["content"]
    if "<score>" in asked:
        return chat("<score>7</score>")
    if "fewer than 10" not in asked:
        return chat("I like it. <preference>A</preference>")
    if len(body["messages"]) == 1:
        return chat(f"```python\n{CHECKS}\n```\n")
    return chat(f"<preference>{'A' if 'A 1 of 1' in last else 'B'}</preference>")


def table(folder: Path) -> str:
    """Two rows that a program decides, one of them labelled wrong, and two guesses, one of them wrong.

    The first column wins one decided row, and both guesses.
    """
    rows = [
        ("a", "Use fewer than 10 characters.", "short", "much too long", "A"),
        ("b", "Use fewer than 10 characters here.", "much too long", "short", "A"),
        ("c", "Be kind.", "yes", "no", "A"),
        ("d", "Be brief.", "yes", "no", "B"),
    ]
    lines = ["id,prompt,left,right,label", *(",".join(row) for row in rows)]
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    return "rows.csv"


COLUMNS = ("--column", "responses=left,right", "--order", "given")


@pytest.fixture
def judging(endpoint: EndpointServer) -> EndpointServer:
    endpoint.script = checking
    return endpoint


def judged(folder: Path, endpoint: EndpointServer, *arguments: str, code: int = 0) -> str:
    run = invoke("judge", table(folder), *COLUMNS, *asking_as_tir(endpoint), *arguments, folder=folder)
    assert run.returncode == code, run.stderr
    return run.stdout + run.stderr


def rows_of(folder: Path) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in results(folder / "rows.verdicts.jsonl")}


def test_the_summary_counts_decided_verdicts_and_who_won_them(
    tmp_path: Path, judging: EndpointServer
) -> None:
    printed = judged(tmp_path, judging)
    assert f"evidence  {SUMMARY}" in printed
    # Wilson's 95 % interval of 1 of 2: the judge follows the program, and one label is against it.
    assert "accuracy of decided rows 50.0% [9.5%, 90.5%], n = 2" in printed
    assert "accuracy of guesses 50.0% [9.5%, 90.5%], n = 2" in printed
    # Of all rows the first column wins three, of the decided rows one.
    assert "left 75.0%" in printed
    assert "decided   left 50.0%" in printed
    record = json.loads(
        invoke("judge", "rows.csv", *COLUMNS, *asking_as_tir(judging), "--json", folder=tmp_path).stdout
    )
    assert (record["evidence"]["decided"], record["evidence"]["undecided"]) == (2, 2)
    assert record["evidence"]["guess_accuracy"]["rate"] == 0.5
    assert record["who_won_decided"]["sources"][0]["win_rate"]["n"] == 2


def test_evidence_that_cannot_be_known_is_recorded_as_well(tmp_path: Path, judging: EndpointServer) -> None:
    """A verdict that rests on a tool, and a sandbox that fails in the second run."""

    def testing(body: dict[str, Any]) -> dict[str, Any]:
        cases = json.dumps({"cases": [{"stdin": "1", "expected": "1"}]})
        asks = len(body["messages"]) == 1
        return chat(f"```run_tests\n{cases}\n```\n" if asks else "<preference>A</preference>")

    judging.script = testing
    judged(tmp_path, judging, "--tool", "tests", "--undecided", "tie")
    for row in rows_of(tmp_path).values():
        assert (row["verdict"], row.get("decided"), row["views"][0]["evidence"]) == ("A", None, "tool")
    shown = invoke("show", "rows.verdicts.jsonl", "a", folder=tmp_path).stdout
    assert "evidence: the answer of a tool" in shown
    done = invoke("reproduce", "rows.verdicts.jsonl", "--json", *FAST, folder=tmp_path)
    assert json.loads(done.stdout)["verdicts_changed"] == 0

    class FailsOnceMore(LocalSandbox):
        runs = 0

        async def run(self, program: Program, limits: Limits = Limits()) -> Execution:
            self.runs += 1
            if self.runs > 1:
                return Execution(status=Status.SANDBOX_FAILED, detail="the worker is gone")
            return await super().run(program, limits)

    judging.script = checking
    sandbox = FailsOnceMore(capacity=1, preload=())
    with Judge("m", judging.url, order="given", sandbox=sandbox, untrained="tir") as judge:
        found = judge.compare("Use fewer than 10 characters.", "short", "much too long").row()
    assert (found.verdict, found.decided, found.views[0].evidence) == ("A", None, "unchecked")


def test_without_evidence_no_program_runs_twice(tmp_path: Path, judging: EndpointServer) -> None:
    assert "evidence" not in judged(tmp_path, judging, "--no-evidence")
    for row in rows_of(tmp_path).values():
        assert "decided" not in row
        assert all("evidence" not in view for view in row["views"])
        assert all("exchanged" not in one for view in row["views"] for one in view["segments"])


@pytest.mark.parametrize("option", ["--exact", "--no-bindings", "--no-tools"])
def test_a_judge_without_variables_records_none(option: str, tmp_path: Path, judging: EndpointServer) -> None:
    judging.script = lambda body: chat("<preference>A</preference>")
    assert "evidence" not in judged(tmp_path, judging, option)
    assert all("decided" not in row for row in rows_of(tmp_path).values())


def test_too_few_decided_rows_fail_the_command(tmp_path: Path, judging: EndpointServer) -> None:
    judged(tmp_path, judging, "--min-decided", "0.5")
    said = judged(tmp_path, judging, "--min-decided", "0.6", code=1)
    assert "programs decided 2 of 4 rows, 50.0%, below --min-decided 0.6" in said
    none = judged(tmp_path, judging, "--min-decided", "0.6", "--overwrite", "--no-evidence", code=1)
    assert "no row says whether a program decided it, below --min-decided 0.6" in none


def test_rows_of_which_nothing_is_known_are_counted_as_such(tmp_path: Path, judging: EndpointServer) -> None:
    """A run that began before there was evidence: two of its four rows lack it."""
    judged(tmp_path, judging, "--limit", "2", "--no-evidence")
    printed = judged(tmp_path, judging, "--limit", "3", "--min-decided", "0.1", code=1)
    line = "decided by a program 0 of 1 rows; 1 undecided, counted as guessed; unknown of 2 more rows"
    assert f"evidence  {line}" in printed
    assert "programs decided 0 of 3 rows, 0.0%, below --min-decided 0.1" in printed
    (record, *_) = json.loads(invoke("score", "rows.verdicts.jsonl", "--json", folder=tmp_path).stdout)
    assert [record["evidence"][name] for name in ("decided", "undecided", "unknown")] == [0, 1, 2]
    for command in ("score", "show"):
        assert f"evidence  {line}" in invoke(command, "rows.verdicts.jsonl", folder=tmp_path).stdout


def test_a_row_without_a_verdict_is_neither_decided_nor_an_opinion(
    tmp_path: Path, judging: EndpointServer
) -> None:
    """A pair of which one response has a score, and a run that leaves all rows open."""

    def scoring(body: dict[str, Any]) -> dict[str, Any]:
        return chat("<score>7</score>" if "short" in body["messages"][0]["content"] else "I cannot say.")

    judging.script = scoring
    rows = [{"id": "x", "prompt": "p", "responses": ["short", "long"]}]
    write_rows(tmp_path / "rows.jsonl", rows)
    judge = ("judge", "rows.jsonl", *asking_as_tir(judging), "--min-decided", "0.5")
    said = invoke(*judge, "--pointwise", folder=tmp_path).stderr
    assert "programs decided 0 of 1 rows, 0.0%, below --min-decided 0.5" in said
    assert "evidence" not in invoke("score", "rows.verdicts.jsonl", folder=tmp_path).stdout
    judging.script = checking
    held = ("--abstain-below", "1", "--confidence", "evidence", "--overwrite")
    said = invoke(*judge, *held, folder=tmp_path).stderr
    assert "programs decided 0 of 1 rows, 0.0%, below --min-decided 0.5" in said


def test_undecided_comparisons_are_ties_where_that_is_chosen(tmp_path: Path, judging: EndpointServer) -> None:
    printed = judged(tmp_path, judging, "--undecided", "tie")
    rows = rows_of(tmp_path)
    assert [rows[id]["verdict"] for id in "abcd"] == ["A", "B", "tie", "tie"]
    assert [rows[id]["correct"] for id in "abcd"] == [1.0, 0.0, 0.5, 0.5]
    assert [rows[id].get("guess") for id in "abcd"] == [None, None, "A", "A"]
    assert rows["c"]["views"][0]["verdict"]["choice"] == 0
    # One sentence about them, and no accuracy that measures ties: the labels are A and B, and both guesses A.
    assert "decided by a program 2 of 4 rows; 2 undecided, counted as ties\n" in printed
    assert "accuracy of guesses 50.0% [9.5%, 90.5%], n = 2 (guesses count as ties)" in printed
    assert "\nties " not in printed
    # The file says so itself, and every command counts it in the same way.
    done = invoke("reproduce", "rows.verdicts.jsonl", "--json", *FAST, folder=tmp_path)
    assert json.loads(done.stdout)["verdicts_changed"] == 0

    def change(found: list[dict[str, Any]]) -> None:
        by_id = {row["id"]: row for row in found}  # rows are in the order in which they were finished
        by_id["c"]["guess"], by_id["d"]["decided"] = "B", True

    edit(tmp_path / "rows.verdicts.jsonl", change)
    done = invoke("reproduce", "rows.verdicts.jsonl", "--json", *FAST, folder=tmp_path)
    assert json.loads(done.stdout)["verdicts_changed"] == 2
    assert "accuracy 50.00 %" in invoke("score", "rows.verdicts.jsonl", folder=tmp_path).stdout


def test_a_list_without_evidence_is_a_tie_of_all(tmp_path: Path, judging: EndpointServer) -> None:
    write_rows(
        tmp_path / "rows.jsonl", [{"id": "x", "prompt": "Which?", "responses": ["a", "b", "c"], "label": 0}]
    )
    judge = ("judge", "rows.jsonl", *asking_as_tir(judging), "--undecided", "tie", "--order", "given")
    assert invoke(*judge, folder=tmp_path).returncode == 0
    (row,) = results(tmp_path / "rows.verdicts.jsonl")
    assert (row["verdict"], row["guess"]) == ("tie", "A")
    assert row["correct"] == pytest.approx(1 / 3)
    assert "accuracy 33.33 %" in invoke("score", "rows.verdicts.jsonl", folder=tmp_path).stdout


def test_the_embedded_judge_ties_what_it_could_not_decide_and_an_adapted_one_does_not(tmp_path: Path) -> None:
    note = read_note(embedded_model())
    assert undecided_verdicts(JudgeOptions(), [note]) == "tie"
    assert undecided_verdicts(JudgeOptions(undecided="guess"), [note]) == "guess"
    assert undecided_verdicts(JudgeOptions(evidence=False), [note]) == "guess"
    assert undecided_verdicts(JudgeOptions(model="m", base_url="http://localhost"), [ModelNote()]) == "guess"
    # A note that training writes from the embedded judge's.
    from tirjudge_training.model_folder import _write_note

    _write_note(tmp_path, embedded_model(), {"prompts": "smol"})
    adapted = read_note(str(tmp_path))
    assert (adapted.shown_chars, adapted.undecided) == (note.shown_chars, "guess")


def test_rows_without_evidence_are_left_open_or_given_to_the_next_model(
    tmp_path: Path, judging: EndpointServer
) -> None:
    judged(tmp_path, judging, "--abstain-below", "1", "--confidence", "evidence")
    rows = rows_of(tmp_path)
    assert [rows[id]["stop"] for id in "abcd"] == ["verdict", "verdict", "abstained", "abstained"]
    assert rows["c"]["confidence"] == {"name": "evidence", "value": 0.0, "below": 1.0, "verdict": "A"}
    judging.asked.clear()
    more = ("--model", "hosted", "--escalate-below", "1", "--confidence", "evidence", "--overwrite")
    judged(tmp_path, judging, *more)
    asked = [body["messages"][0]["content"] for body in judging.bodies if body["model"] == "hosted"]
    assert len(asked) == 2
    assert all("fewer than 10" not in one for one in asked)
    said = judged(tmp_path, judging, "--abstain-below", "1", "--confidence", "evidence", "--no-tools", code=2)
    assert "--confidence evidence is about programs that are run again" in said


@pytest.mark.parametrize(
    "option",
    [
        "--no-evidence",
        "--exact",
        "--no-tools",
        "--format=judgelrm-pair",
        "--format=tir-pairwise --option=exact=true",
        "--format=tir-pairwise --option=bindings=false",
        "--format=tir-pairwise --option=evidence=off",
    ],
)
@pytest.mark.parametrize("needing", ["--undecided=tie", "--confidence=evidence"])
def test_options_about_evidence_are_refused_where_none_is_recorded(
    option: str, needing: str, tmp_path: Path, judging: EndpointServer
) -> None:
    rule = ("--abstain-below", "1") if "confidence" in needing else ()
    said = judged(tmp_path, judging, needing, *rule, *option.split(), code=2)
    assert said.startswith(f"tirjudge judge: {needing.replace('=', ' ')}")
    assert not judging.asked


def test_rows_are_shown_and_selected_by_their_evidence(tmp_path: Path, judging: EndpointServer) -> None:
    judged(tmp_path, judging, "--undecided", "tie")
    file = "rows.verdicts.jsonl"

    def ids(*options: str) -> list[str]:
        done = invoke("show", file, "--json", *options, folder=tmp_path)
        return sorted(json.loads(line)["id"] for line in done.stdout.splitlines())

    assert ids("--decided") == ["a", "b"]
    assert ids("--undecided") == ["c", "d"]
    assert ids() == ["a", "b", "c", "d"]
    brief = invoke("show", file, folder=tmp_path).stdout
    assert [line.split()[0] for line in brief.splitlines() if "  undecided" in line] == ["c", "d"]
    shown = invoke("show", file, "a", folder=tmp_path).stdout
    assert "decided by a program\n" in shown.replace(" \n", "\n")
    assert "evidence: the program tells the responses apart: its output changes with other responses" in shown
    shown = invoke("show", file, "c", folder=tmp_path).stdout
    assert "a tie, since no program decided it; the judge's guess was A" in shown
    assert "evidence: no program was run" in shown


def test_the_report_counts_and_filters(tmp_path: Path, judging: EndpointServer) -> None:
    pytest.importorskip("jinja2")
    judged(tmp_path, judging)
    assert invoke("report", "rows.verdicts.jsonl", folder=tmp_path).returncode == 0
    page = (tmp_path / "report.html").read_text()
    assert "<strong>2 of 4 rows</strong>" in page
    assert ">2 undecided, counted as guessed<" in page
    assert "of the decided rows, left 50.0%" in page
    found = json.loads(page.partition('id="rows-data">')[2].partition("</script>")[0])
    run = found["runs"][0]
    bits = {name: 1 << place for place, name in enumerate(found["flags"])}
    flags = dict(zip(run["ids"], run["flags"], strict=True))
    assert {id for id, flag in flags.items() if flag & bits["decided"]} == {"a", "b"}
    assert {id for id, flag in flags.items() if flag & bits["undecided"]} == {"c", "d"}


def test_filters_count_the_rows_that_the_summary_counts(tmp_path: Path, judging: EndpointServer) -> None:
    """Two rows have no verdict: their programs decided nothing, and neither did the model."""

    def mumbling(body: dict[str, Any]) -> dict[str, Any]:
        known = "fewer than 10" in body["messages"][0]["content"]
        return checking(body) if known else chat("I cannot say.")

    judging.script = mumbling
    printed = judged(tmp_path, judging)
    assert "decided by a program 2 of 2 rows" in printed
    selected = invoke("show", "rows.verdicts.jsonl", "--undecided", "--json", folder=tmp_path)
    assert (selected.returncode, selected.stdout) == (0, "")
    assert "undecided" not in invoke("show", "rows.verdicts.jsonl", folder=tmp_path).stdout
    rows = [row for row, _ in read_result_rows(tmp_path / "rows.verdicts.jsonl")]
    bits = {name: 1 << place for place, name in enumerate(FLAGS)}
    assert {row.id for row in rows if row_flags(row) & bits["decided"]} == {"a", "b"}
    assert not [row.id for row in rows if row_flags(row) & bits["undecided"]]


def test_exports_have_the_evidence(tmp_path: Path, judging: EndpointServer) -> None:
    judged(tmp_path, judging, "--undecided", "tie")
    path = tmp_path / "rows.verdicts.jsonl"
    scores = {one["id"]: one["scores"]["verdict"]["metadata"] for one in inspect_record(path)["samples"]}
    assert {id: one["decided"] for id, one in scores.items()} == {
        "a": True, "b": True, "c": False, "d": False
    }  # fmt: skip
    assert [scores[id]["guess"] for id in "ac"] == [None, "A"]
    done = invoke("score", path.name, "--as", "csv", folder=tmp_path)
    table = [line for line in csv.DictReader(done.stdout.splitlines()) if line["protocol"] == "evidence"]
    assert [(line["figure"], line["value"], line["n"]) for line in table] == [
        ("decided by a program", "50.00", "4"),
        ("accuracy of decided rows", "50.00", "2"),
        ("accuracy of guesses", "50.00", "2"),
    ]
    # Wilson's 95 % interval of 1 of 2, as in the summary.
    assert [table[1][name] for name in ("run", "unit", "low", "high")] == [path.name, "%", "9.45", "90.55"]
    judged(tmp_path, judging, "--no-evidence", "--overwrite")
    assert "evidence" not in invoke("score", path.name, "--as", "csv", folder=tmp_path).stdout


def test_stored_verdicts_are_scored_and_compared_with_their_evidence(
    tmp_path: Path, judging: EndpointServer
) -> None:
    judged(tmp_path, judging)
    done = invoke("score", "rows.verdicts.jsonl", folder=tmp_path)
    assert f"evidence  {SUMMARY}" in done.stdout
    assert "decided   left 50.0%" in done.stdout
    assert "decided   left 50.0%" in invoke("show", "rows.verdicts.jsonl", folder=tmp_path).stdout
    assert "accuracy of decided rows 50.0% [9.5%, 90.5%], n = 2" in done.stdout
    (record, *_) = json.loads(invoke("score", "rows.verdicts.jsonl", "--json", folder=tmp_path).stdout)
    assert (record["evidence"]["decided"], record["evidence"]["undecided"]) == (2, 2)
    (tmp_path / "other.jsonl").write_text((tmp_path / "rows.verdicts.jsonl").read_text())
    edit(
        tmp_path / "other.jsonl",
        lambda found: [row.update(decided=True, programs=1) for row in found] and None,
    )
    done = invoke("compare", "rows.verdicts.jsonl", "other.jsonl", folder=tmp_path)
    assert f"rows.verdicts.jsonl: {SUMMARY}" in done.stdout
    assert "other.jsonl: decided by a program 4 of 4 rows" in done.stdout


def test_thresholds_of_evidence_are_calibrated(tmp_path: Path, judging: EndpointServer) -> None:
    judged(tmp_path, judging)
    labels = [{"id": id, "annotators": [label]} for id, label in zip("abcd", "AAAB", strict=True)]
    write_rows(
        tmp_path / "people.jsonl", [{"id": one["id"], "label": one["annotators"][0]} for one in labels]
    )
    done = invoke(
        "score", "rows.verdicts.jsonl", "--calibrate", "people.jsonl", "--confidence", "evidence",
        folder=tmp_path,
    code=0)  # fmt: skip
    assert "confidence evidence: 1 for a verdict that programs decided" in done.stdout


def test_best_of_n_counts_the_evidence_of_its_judgments(tmp_path: Path, judging: EndpointServer) -> None:
    rows = [
        {"id": "a", "prompt": "Use fewer than 10 characters.", "responses": ["short", "much too long"]},
        {"id": "c", "prompt": "Be kind.", "responses": ["yes", "no"]},
    ]
    write_rows(tmp_path / "rows.jsonl", rows)
    command = ("bon", "rows.jsonl", *asking_as_tir(judging), "--pairwise")
    done = invoke(*command, folder=tmp_path, code=0)
    assert "evidence  decided by a program 1 of 2 rows; 1 undecided, counted as guessed" in done.stdout
    record = json.loads(invoke(*command, "--json", folder=tmp_path).stdout)
    assert (record["evidence"]["decided"], record["evidence"]["undecided"]) == (1, 1)


def test_python_has_the_evidence(judging: EndpointServer) -> None:
    rows = [
        {"prompt": "Use fewer than 10 characters.", "responses": ["short", "much too long"], "label": "A"},
        {"prompt": "Be kind.", "responses": ["yes", "no"], "label": "B"},
    ]
    sandbox = {"backend_options": {"capacity": 1, "preload": []}}
    options = {"order": "given", "untrained": "tir", **sandbox}
    with Judge("m", judging.url, **options) as judge:
        first = judge.compare("Use fewer than 10 characters.", "short", "much too long")
        guess = judge.compare("Be kind.", "yes", "no")
        both = judge.batch(rows)
    assert (first.decided, guess.decided) == (True, False)
    assert first.to_dict()["decided"] is True
    assert [view.evidence for view in first.views] == ["separates"]
    assert (both.tally.evidence.decided, both.tally.evidence.undecided) == (1, 1)
    with Judge("m", judging.url, undecided="tie", **options) as judge:
        tied = judge.compare("Be kind.", "yes", "no")
    assert (tied.verdict, tied.guess, tied.to_dict()["guess"]) == ("tie", (0,), "A")


def test_rewards_of_a_group_run_no_program_twice(judging: EndpointServer) -> None:
    class Counting(LocalSandbox):
        runs = 0

        async def run(self, program: Program, limits: Limits = Limits()) -> Execution:
            self.runs += 1
            return await super().run(program, limits)

    sandbox = Counting(capacity=1, preload=())
    with Judge("m", judging.url, order="given", sandbox=sandbox, untrained="tir") as judge:
        judge.compare("Use fewer than 10 characters.", "short", "much too long")
        assert sandbox.runs == 2
        rewards = judge.reward_group("Use fewer than 10 characters.", ["short", "much too long"])
        assert sandbox.runs - 2 == rewards.calls


def test_a_tie_of_empty_answers_makes_no_guess_a_tie(tmp_path: Path, judging: EndpointServer) -> None:
    rows = [
        {"id": number, "prompt": "Be kind.", "responses": texts, "label": 0}
        for number, texts in enumerate((["", ""], ["yes", "no"]))
    ]
    write_rows(tmp_path / "rows.jsonl", rows)
    printed = invoke("judge", "rows.jsonl", *asking_as_tir(judging), folder=tmp_path, code=0).stdout
    assert "2 undecided, 1 counted as ties" in printed
    assert "(guesses count as ties)" not in printed
