"""`tirjudge judge --checkers`: what checkers decide, what the model decides, the audit, and what reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.judge_command import FAST, command, results, write_rows
from tests.tirjudge.judged_files import asking, judge_to
from tirjudge import Judge
from tirjudge_environments.checkers.file import Checker, CheckerFile, Measurement

WORDS = Checker(
    name="words",
    rule="at least {n:number} words",
    source=(
        "def check(response, prompt, n):\n"
        "    return None if '?' in response else len(response.split()) >= n\n"
    ),
)
COMMA = Checker(
    name="comma", rule="It has a comma.", source="def check(response, prompt):\n    return ',' in response\n"
)
ROWS: list[dict[str, Any]] = [
    # Decided by checkers alone, and right.
    {"id": "pair", "responses": ["one two three", "one"], "label": 0, "criteria": ["at least 2 words"]},
    # A fault that B has.
    {
        "id": "fault",
        "responses": ["a b", "a, b"],
        "label": 0,
        "criteria": [{"text": "It has a comma.", "polarity": "negative", "weight": 2}, "at least two words"],
    },
    # The checker abstains on the question mark; the model decides.
    {"id": "abstains", "responses": ["one two?", "one"], "criteria": ["at least 2 words"]},
    # One criterion by a checker, whose must-have nobody passes, and one by the model.
    {
        "id": "mixed",
        "responses": ["x y", "x"],
        "criteria": ["It is kind.", {"text": "at least 9 words", "must_have": True}],
    },
    {"id": "plain", "responses": ["x", "y"]},
]


def admitted(checker: Checker) -> Checker:
    return checker.model_copy(update={"measured": Measurement(digest=checker.digest, admitted=True)})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "checkers.toml"
    path.write_text(CheckerFile(checkers=(admitted(WORDS), admitted(COMMA))).text())
    return path


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "rows.jsonl", [{"prompt": f"Write {row['id']}.", **row} for row in ROWS])


def judge(
    server: EndpointServer, rows: Path, checkers: Path, *words: object, code: int | None = None
) -> Result:
    output = rows.with_name("out.jsonl")
    given = ["judge", rows, "--output", output, "--base-url", server.url, "--model", "m", "--no-tools", *FAST]
    return command(*given, "--checkers", checkers, *words, code=code)


def prefers_a(body: dict[str, Any]) -> Any:
    return chat("<preference>A</preference>")


def test_checkers_decide_what_they_match_and_the_model_the_rest(
    server: EndpointServer, rows: Path, file: Path
) -> None:
    server.script = prefers_a
    run = judge(server, rows, file, "--order", "given", "--audit", 0, code=0)
    found = {row["id"]: row for row in results(rows.with_name("out.jsonl"))}
    # The model was asked about the three rows that checkers do not decide alone, once for each.
    asked = "\n".join(json.dumps(one["messages"]) for one in server.bodies)
    assert len(server.bodies) == 3
    assert "at least 9 words" not in asked
    assert "It is kind." in asked
    assert {id: (row["verdict"], row.get("scores"), row.get("decided")) for id, row in found.items()} == {
        "pair": ("A", [1.0, 0.0], True),
        "fault": ("A", [1.0, pytest.approx(1 / 3)], True),
        "abstains": ("A", [1.0, 0.0], None),
        "mixed": ("tie", [0.0, 0.0], None),
        "plain": ("A", None, None),
    }
    assert [one.get("checker") for one in found["fault"]["criteria"]] == ["comma", "words"]
    assert [one["satisfied"] for one in found["fault"]["criteria"]] == [[1.0, 0.0], [1.0, 1.0]]
    assert [one["satisfied"] for one in found["mixed"]["criteria"]] == [[1.0, 0.0], [0.0, 0.0]]
    assert (found["pair"]["prompt_tokens"], found["pair"]["correct"]) == (0, 1.0)
    printed = " ".join(run.stdout.split())
    assert "checkers decided 2 of 5 rows alone, 1 with the model; 2 are the model's" in printed
    assert "4 of 6 criteria needed no dialogue" in printed
    assert "accuracy 100.0%" in printed


def test_checkers_decide_their_criteria_of_an_empty_answer_too(
    server: EndpointServer, tmp_path: Path, file: Path
) -> None:
    comma = {"text": "It has a comma.", "polarity": "negative"}
    row = {"prompt": "Write.", "id": "x", "responses": ["", "a, b"], "criteria": [comma]}
    judge(server, write_rows(tmp_path / "rows.jsonl", [row]), file, "--order", "given", "--audit", 0, code=0)
    (found,) = results(tmp_path / "out.jsonl")
    assert (found["verdict"], found["scores"], found["decided"]) == ("A", [1.0, 0.0], True)
    assert server.bodies == []


def test_unmeasured_checkers_beside_an_admitted_one_are_named(
    server: EndpointServer, rows: Path, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.script = prefers_a
    file.write_text(CheckerFile(checkers=(admitted(WORDS), COMMA)).text())
    assert judge(server, rows, file).exit_code == 0
    (line,) = (one for one in caplog.messages if "unmeasured" in one)
    assert "1 are unmeasured, and decide nothing: tirjudge compile ROWS --measure" in line


@pytest.mark.slow
def test_other_commands_read_the_file_and_reproduce_notices_a_change(
    server: EndpointServer, rows: Path, file: Path
) -> None:
    server.script = prefers_a
    assert judge(server, rows, file, "--order", "both", "--audit", 1).exit_code == 0
    output = rows.with_name("out.jsonl")
    shown = command("show", output, "mixed")
    assert "by checker words" in shown.output
    assert "criterion 2, view 0: checker words, without the model" in shown.output
    # The model prefers what it sees first: a tie in both orders, and both fail.
    assert "audit: the model agrees" in shown.output
    overview = " ".join(command("show", output).output.split())
    assert "checkers decided 2 of 5 rows alone" in overview
    assert "audit 4 decisions, the model disagrees with" in overview
    page = rows.with_name("report.html")
    assert command("report", output, "-o", page).exit_code == 0
    assert "decided 2 of 5 rows alone" in page.read_text()
    assert command("score", output).exit_code == 0
    command("reproduce", output, *FAST, code=0)
    text = output.read_text()
    for before, after, reason in (
        ('"stdout": "True\\n"', '"stdout": "False\\n"', "checker printed False"),
        ("n=2)", "n=7)", "stdout was"),
        ('"satisfied": [1.0, 0.0]', '"satisfied": [0.0, 1.0]', "criterion 1"),
    ):
        output.write_text(text.replace(before, after, 1))
        changed = command("reproduce", output, *FAST, code=1)
        assert reason in " ".join(changed.output.split()), before


@pytest.mark.slow
def test_an_audit_asks_about_the_same_rows_every_time_and_can_end_the_run(
    server: EndpointServer, tmp_path: Path, file: Path
) -> None:
    server.script = prefers_a
    many = [
        {
            "id": f"r{n}",
            "prompt": f"Write {n}.",
            "responses": ["a", "b c d"],
            "criteria": ["at least 2 words"],
        }
        for n in range(60)
    ]
    rows = write_rows(tmp_path / "rows.jsonl", many)
    # The model prefers A, and the checker B.
    run = judge(server, rows, file, "--order", "given", "--audit", 0.25, "--json", code=0)
    summary = json.loads(run.stdout)["checkers"]
    audited = {row["id"] for row in results(tmp_path / "out.jsonl") if row.get("audit")}
    assert len(audited) == len(server.bodies) == summary["audited"]
    assert 5 < len(audited) < 28
    assert summary["disagreement"]["value"] == 1.0
    assert [one["n"] for one in summary["halves"]] == [len(audited) // 2, len(audited) - len(audited) // 2]
    # All verdicts are the checker's.
    assert {row["verdict"] for row in results(tmp_path / "out.jsonl")} == {"B"}
    (tmp_path / "out.jsonl").unlink()
    again = judge(
        server,
        rows,
        file,
        "--order",
        "given",
        "--audit",
        0.25,
        "--max-disagreement",
        0.2,
        "--concurrency",
        1,
        code=1,
    )
    assert "more than --max-disagreement 0.2" in again.stderr
    judged = results(tmp_path / "out.jsonl")
    assert 0 < len(judged) < 60
    assert {row["id"] for row in judged if row.get("audit")} <= audited
    assert judge(server, rows, file, "--order", "given", "--audit", 0.25).exit_code == 0
    assert {row["id"] for row in results(tmp_path / "out.jsonl") if row.get("audit")} == audited


@pytest.mark.parametrize(
    ("given", "agrees"),
    [
        ({"undecided": "tie"}, None),
        ({"undecided": "tie", "confidence": "evidence", "abstain_below": 0.5}, None),
        ({"undecided": "guess"}, False),
    ],
)
def test_a_guess_says_nothing_against_a_checker_where_guesses_are_ties(
    file: Path, tmp_path: Path, given: dict[str, Any], agrees: bool | None
) -> None:
    row = {"prompt": "p", "responses": ["one two", "one"], "criteria": ["at least 2 words"]}
    options = {"order": "given", "checkers": str(file), "audit": 1.0, **given}
    output = tmp_path / "out.jsonl"
    (found,) = results(judge_to(output, [row], lambda context: "<preference>B</preference>", **options))
    assert (found["verdict"], found["decided"], found["audit"][0]["agrees"]) == ("A", True, agrees)
    checks = asking("print('A' if len(response_a) > len(response_b) else 'B')", lambda shown: "A")
    (found,) = results(judge_to(tmp_path / "decided.jsonl", [row], checks, **options))
    assert found["audit"][0]["agrees"] is True


def test_the_file_is_part_of_the_settings_and_only_what_decides_counts(
    server: EndpointServer, rows: Path, file: Path
) -> None:
    server.script = prefers_a
    assert judge(server, rows, file).exit_code == 0
    moved = file.with_name("moved.toml")
    rejected = Measurement(digest=COMMA.digest, admitted=False, reason="no")
    further = COMMA.model_copy(update={"name": "further", "rule": "It has a comma", "measured": rejected})
    moved.write_text(CheckerFile(checkers=(admitted(COMMA), further, admitted(WORDS))).text())
    assert judge(server, rows, moved).exit_code == 0
    fewer = file.with_name("fewer.toml")
    fewer.write_text(CheckerFile(checkers=(admitted(WORDS),)).text())
    other = judge(server, rows, fewer, code=2)
    assert "begun with other settings (checkers was" in other.stderr


def test_a_single_response_passes_if_it_satisfies_all_criteria(
    server: EndpointServer, tmp_path: Path, file: Path
) -> None:
    """The aggregate of criteria is from 0 to 1, and so is the score from which a row with criteria passes."""
    given = [("a, b", True), ("a b", False), ("a", False), ("a, b c", True)]
    rows = [
        {"prompt": "p", "response": text, "label": label, "criteria": ["at least 2 words", "It has a comma."]}
        for text, label in given
    ]
    judge(server, write_rows(tmp_path / "rows.jsonl", rows), file, "--audit", 0, code=0)
    judged = {row["responses"][0]: (row["scores"], row["correct"]) for row in results(tmp_path / "out.jsonl")}
    assert judged == {"a, b": ([1.0], 1.0), "a b": ([0.5], 1.0), "a": ([0.0], 1.0), "a, b c": ([1.0], 1.0)}
    assert server.bodies == []


def test_in_python(server: EndpointServer, file: Path) -> None:
    with Judge("m", server.url, tools=False, checkers=str(file), audit=0.0) as judge:
        found = judge.compare("p", "a", "a b c", criteria=["at least 3 words"])
    assert (found.verdict, found.decided, found.criteria[0].checker) == ("B", True, "words")
    with pytest.raises(ValueError, match="cannot be read"):
        Judge("m", server.url, checkers="nowhere.toml").compare("p", "a", "b")
