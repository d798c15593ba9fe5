"""`tirjudge compile`: from a judge's programs, or a model, to checkers that decide new rows without it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from examples.miniature import TRAINED
from tests.rows import every
from tests.tirjudge.endpoint_server import EndpointServer, chat, failure
from tests.tirjudge.judge_command import FAST, command, results, write_rows
from tirjudge import compile_checkers
from tirjudge_environments.checkers.file import Checker, CheckerFile

pytestmark = pytest.mark.usefixtures("few_answers")
FIVE_WORDS = "def check(response, prompt):\n    return len(response.split()) >= 5\n"
NUMBERS = ("four", "5", "6", "seven", "8")


def invoke(*words: object, code: int | None = None) -> Result:
    return command(*words, *FAST, code=code)


def pairs(count: int, *, criteria: bool = True, label: bool = True) -> list[dict[str, Any]]:
    rows = []
    for number in range(count):
        least = 4 + number % 5
        long, short = "word " * (least + number % 3), "word " * (least - 1 - number % 3)
        row: dict[str, Any] = {"id": f"p{number}", "prompt": f"Write about {number}."}
        row["responses"] = [long.strip(), short.strip()] if number % 2 else [short.strip(), long.strip()]
        rows.append(row)
        if criteria:
            row["criteria"] = [f"It has at least {NUMBERS[number % 5]} words."]
        if label:
            row["label"] = "A" if number % 2 else "B"
    return rows


def counted(count: int) -> list[dict[str, Any]]:
    """Return single responses of one to nine words, of which those of at least five are right."""
    sizes = [number % 9 + 1 for number in range(count)]
    return [
        {"id": f"s{n}", "prompt": f"Say {n}.", "response": "word " * size, "label": size >= 5}
        for n, size in enumerate(sizes)
    ]


def programs(body: dict[str, Any]) -> dict[str, Any]:
    """Play a judge that writes a check for each row, whose counts decide."""
    found = re.findall(r"at least (\w+) words", body["messages"][0]["content"])
    least = 4 + NUMBERS.index(found[-1])
    return chat(
        f"```python\nimport re\ndef check(r):\n    return [len(re.findall(r'\\w+', r)) >= {least}]\n```"
    )


@pytest.mark.parametrize("against", every(2, ["labels", "verdicts"]))
def test_programs_of_a_result_file_become_a_checker_that_replaces_the_model(
    server: EndpointServer, tmp_path: Path, against: str
) -> None:
    server.script = programs
    rows = write_rows(tmp_path / "rows.jsonl", pairs(30, label=against == "labels"))
    judged, file = tmp_path / "judged.jsonl", tmp_path / "checkers.toml"
    model = ("--base-url", server.url, "--model", "m")
    assert invoke("judge", rows, "--output", judged, "--order", "given", *model).exit_code == 0
    asked = len(server.bodies)
    run = invoke("compile", judged, "-o", file, code=0)
    (checker,) = CheckerFile.read(file).admitted
    assert checker.rule == "It has at least {n:number} words."
    assert checker.author == "program of m"
    assert "re.findall('\\\\w+', r)) >= n" in checker.source
    measured = checker.measured
    assert measured is not None
    assert (measured.against, measured.agreement, measured.abstained) == (against, 1.0, 0)
    assert 10 < measured.n == measured.prompts < 30
    assert f"with {against}, n = {measured.n} rows" in " ".join(run.stdout.split())
    assert len(server.bodies) == asked

    # A number that no row had, and no model.
    new = {
        "prompt": "New.",
        "responses": ["one " * 19, "one " * 20],
        "criteria": ["It has at least 20 words."],
    }
    output = tmp_path / "new.jsonl"
    words = ("--output", output, *model, "--checkers", file, "--audit", 0)
    assert invoke("judge", write_rows(tmp_path / "new-rows.jsonl", [new]), *words).exit_code == 0
    assert [(row["verdict"], row["decided"]) for row in results(output)] == [("B", True)]
    assert len(server.bodies) == asked


@pytest.mark.slow
def test_an_edited_checker_decides_after_it_was_measured_again(
    server: EndpointServer, tmp_path: Path
) -> None:
    server.script = programs
    rows = write_rows(tmp_path / "rows.jsonl", pairs(30))
    judged, file = tmp_path / "judged.jsonl", tmp_path / "checkers.toml"
    words = ("--base-url", server.url, "--model", "m", "--order", "given")
    assert invoke("judge", rows, "--output", judged, *words).exit_code == 0
    assert invoke("compile", judged, "-o", file).exit_code == 0
    for after, code in ((">= n)", 0), (">= n + 1)", 1), (">= n - 0)", 0)):
        edited = tmp_path / "edited.toml"
        edited.write_text(file.read_text().replace(">= n)", after))
        unmeasured = CheckerFile.read(edited).admitted == ()
        assert unmeasured == (after != ">= n)")
        run = invoke("compile", rows, "--measure", edited)
        assert run.exit_code == code, run.output
        assert len(CheckerFile.read(edited).admitted) == 1 - code
    refused = invoke("compile", judged, "-o", file)
    assert (refused.exit_code, "exists: choose another --output" in refused.stderr) == (2, True)


def author(body: dict[str, Any]) -> Any:
    """Play a model that lists the rules of a prompt, and writes a checker with words around it."""
    text = body["messages"][0]["content"]
    if "List the rules" in text:
        found = re.search(r"(It has at least \w+ words\.)", text)
        return chat(f"- {found[1]}\n- It is not in the prompt." if found else "NONE")
    rule = re.search(r"-{8}\n(.*)\n-{8}", text)
    assert rule
    if "commas" in rule[1]:
        return chat("NONE")
    return chat(
        "Here it is.\nRULE: It has at least {n:number} words.\n"
        "```python\ndef check(response, prompt, n):\n    return len(response.split()) >= n\n```\nDone."
    )


@pytest.mark.slow
def test_a_model_writes_checkers_once_for_each_pattern(server: EndpointServer, tmp_path: Path) -> None:
    server.script = author
    rows = pairs(30)
    rows += [row | {"id": f"c{n}", "criteria": ["It has no commas."]} for n, row in enumerate(pairs(30))]
    file = tmp_path / "checkers.toml"
    model = ("--base-url", server.url, "--model", "writer")
    run = invoke("compile", write_rows(tmp_path / "rows.jsonl", rows), "-o", file, *model, code=0)
    # Two rules that no known pattern matches: one checker, and one answer without any.
    assert len(server.bodies) == 2
    (checker,) = CheckerFile.read(file).checkers
    assert (checker.author, checker.rule) == ("writer", "It has at least {n:number} words.")
    assert "unwritten 1 rules" in run.stdout
    server.script = lambda body: failure(401, "no key")
    refused = invoke("compile", tmp_path / "rows.jsonl", "-o", tmp_path / "other.toml", *model)
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (2, 1)


def test_a_local_model_is_asked_for_checkers(tmp_path: Path) -> None:
    """The tiny model writes none, which is said."""
    given = [row | {"criteria": ["It has no commas."]} for row in pairs(30)]
    rows = write_rows(tmp_path / "rows.jsonl", given)
    run = invoke(
        "compile", rows, "-o", tmp_path / "c.toml", "--model", TRAINED, "--max-tokens", 8, "--json", code=1
    )
    assert json.loads(run.stdout)["unwritten"] == 1


@pytest.mark.slow
def test_rules_of_a_file_hold_for_rows_without_criteria_also_when_they_are_judged(
    server: EndpointServer, tmp_path: Path
) -> None:
    server.script = author
    rules = tmp_path / "rules.txt"
    rules.write_text("It has at least 5 words.\n\n")
    file = tmp_path / "checkers.toml"
    model = ("--base-url", server.url, "--model", "w")
    given = write_rows(tmp_path / "r.jsonl", counted(36))
    invoke("compile", given, "--rules", rules, "-o", file, *model, code=0)
    assert CheckerFile.read(file).rules == ("It has at least 5 words.",)
    asked = len(server.bodies)
    output = tmp_path / "out.jsonl"
    invoke("judge", given, "--output", output, "--checkers", file, "--audit", 0, *model, code=0)
    assert {row["correct"] for row in results(output)} == {1.0}
    assert (len(results(output)), len(server.bodies)) == (36, asked)


WRITTEN = """# Rules of the support team
version = 1  # do not change

[[checkers]]
name = "words"  # Anna
rule = "It has at least 5 words."
source = '''
# counts words
def check(response, prompt):
    return len(response.split()) >= 5
'''

# from here on: tone
[[checkers]]
source = "def check(response, prompt): return True"
rule = "Be kind."
name = "kind"

[checkers.measured]
digest = "0123456789abcdef"
# of May
admitted = true
low = 0.8
# the end
"""


@pytest.mark.slow
def test_a_measured_file_keeps_a_persons_comments_and_order(tmp_path: Path) -> None:
    rows = [row | {"criteria": ["It has at least 5 words."]} for row in counted(40)]
    given = write_rows(tmp_path / "rows.jsonl", rows)
    file = tmp_path / "checkers.toml"
    file.write_text(WRITTEN)
    run = invoke("compile", given, "--measure", file, code=0)
    text, found = file.read_text(), CheckerFile.read(file)
    assert [one.is_measured for one in found.checkers] == [True, True]
    assert [one.name for one in found.admitted] == ["words"]
    assert "low = 0.8\n" not in text
    places = [
        text.find(line) for line in WRITTEN.splitlines() if "#" in line or line.startswith(("name", "rule"))
    ]
    assert places == sorted(places)
    assert min(places) == 0
    # A comment about the next checker stays before it.
    assert "# from here on: tone\n[[checkers]]" in text
    assert "rejected  kind: no row measures it" in run.stdout


def test_the_summary_says_where_candidates_were_sought_and_which_rules_have_none(tmp_path: Path) -> None:
    given = write_rows(tmp_path / "rows.jsonl", pairs(8))
    run = invoke("compile", given, "-o", tmp_path / "checkers.toml", code=1)
    sought = re.search(r"sought    0 candidates on (\d) of 8 prompts; the other prompts measure", run.stdout)
    assert sought
    assert 0 < int(sought[1]) < 8
    assert run.stdout.count("no candidate: It has at least") == 5
    assert "..." not in run.stdout


def test_hostile_programs_of_a_result_file_run_in_the_sandbox_alone(tmp_path: Path) -> None:
    """A program may not do anything where it is split, chosen or measured."""
    marker = tmp_path / "marker"
    program = (
        "import os\ndef check(r):\n    "
        f"return [os.system('touch {marker}') == 0 or open({str(marker)!r}, 'w') is not None]\n"
    )
    passage = {"kind": "program", "text": program, "status": "ok", "exit_code": 0, "seed": 0}
    rows = [
        {
            "id": f"r{n}",
            "format": "pointwise",
            "verdict": None,
            "scores": [1.0],
            "stop": "verdict",
            "rating": True,
            "prompt": [{"role": "user", "content": f"p {n}"}],
            "responses": ["\x1b[31mred"],
            "model": "\x1b[31mred\x07",
            "criteria": [
                {
                    "text": "\x1b[31mIt is red.",
                    "weight": 1.0,
                    "polarity": "positive",
                    "must_have": False,
                    "satisfied": [1.0],
                    "scores": [10.0],
                    "satisfied_from": 6.0,
                    "stop": "verdict",
                }
            ],
            "views": [
                {
                    "view": "0",
                    "criterion": 0,
                    "order": [0],
                    "verdict": {"choice": None, "tie": False, "scores": {"0": 10.0}},
                    "stop": "verdict",
                    "segments": [passage],
                }
            ],
        }
        for n in range(30)
    ]
    run = invoke(
        "compile", write_rows(tmp_path / "rows.jsonl", rows), "-o", tmp_path / "checkers.toml", code=1
    )
    assert not marker.exists()
    assert "\x1b" not in run.output
    assert "\x1b" not in (tmp_path / "checkers.toml").read_text()
    (checker,) = CheckerFile.read(tmp_path / "checkers.toml").checkers
    assert checker.measured is not None
    assert json.dumps(checker.measured.reason)


def test_of_two_checkers_with_the_same_rule_one_is_admitted() -> None:
    rules = ("It has at least 5 words.", " It has at least 5 words.\n", "It has at least 5 words!")
    several = [Checker(name=f"c{n}", rule=rule, source=FIVE_WORDS) for n, rule in enumerate(rules)]
    options: dict[str, Any] = {"rules": rules[:1], "backend_options": {"preload": []}}
    found = compile_checkers(counted(36), measure=CheckerFile(checkers=tuple(several)), **options)
    assert [one.name for one in found.file.admitted] == ["c0"]
    reasons = [one.measured.reason for one in found.file.checkers if one.measured]
    assert reasons[1] == "the checker c0 has the same rule"


def test_rules_that_no_file_may_have_are_refused_before_the_model_is_asked(
    server: EndpointServer, tmp_path: Path
) -> None:
    server.script = author
    rows = write_rows(tmp_path / "rows.jsonl", pairs(6, criteria=False))
    model = ("--base-url", server.url, "--model", "w")
    for text, reason in (
        ("\n".join(f"rule {n}" for n in range(101)), "at most 100"),
        ("It has no commas.\n" + "x" * 2001, "rules.1: String should have at most 2000 characters"),
    ):
        rules = tmp_path / "rules.txt"
        rules.write_text(text)
        run = invoke("compile", rows, "--rules", rules, "-o", tmp_path / "checkers.toml", *model)
        assert (run.exit_code, len(run.stderr.splitlines())) == (2, 1)
        assert reason in run.stderr
        assert "rules.txt" in run.stderr
        with pytest.raises(ValueError, match="rules"):
            compile_checkers(pairs(6), rules=text.splitlines(), model="w", base_url=server.url)
    with pytest.raises(ValueError, match="rules must be a list of texts"):
        compile_checkers(pairs(6), rules="It has no commas.", model="w", base_url=server.url)
    assert server.bodies == []


@pytest.mark.slow
def test_rules_that_a_model_lists_are_taken_from_the_prompt_and_replace_no_earlier_ones(
    server: EndpointServer, tmp_path: Path
) -> None:
    server.script = author
    rows = pairs(30, criteria=False)
    for number, row in enumerate(rows):
        row["prompt"] += f" It has at least {NUMBERS[number % 5]} words."
    given, listed = write_rows(tmp_path / "r.jsonl", rows), tmp_path / "checkers.rows.jsonl"
    listed.write_text("mine\n")
    words = ("-o", tmp_path / "checkers.toml", "--base-url", server.url, "--model", "w")
    run = invoke("compile", given, *words)
    assert (run.exit_code, len(run.stderr.splitlines())) == (2, 1)
    assert "checkers.rows.jsonl exists: choose another --output, or give --overwrite" in run.stderr
    assert (listed.read_text(), server.bodies) == ("mine\n", [])
    run = invoke("compile", given, *words, "--overwrite", code=0)
    assert len(CheckerFile.read(tmp_path / "checkers.toml").admitted) == 1
    assert {row["id"]: row["criteria"] for row in results(listed)} == {
        row["id"]: [f"It has at least {NUMBERS[n % 5]} words."] for n, row in enumerate(rows)
    }


def test_in_python() -> None:
    rows, rule = counted(36), "It has at least 5 words."
    file = CheckerFile(checkers=(Checker(name="words", rule=rule, source=FIVE_WORDS),))
    found = compile_checkers(rows, rules=[rule], measure=file, backend_options={"preload": []})
    assert [one.name for one in found.file.admitted] == ["words"]
    assert found.file.rules == (rule,)
    # Without `rules`, the rules of the measured file are used, and kept.
    again = compile_checkers(rows, measure=found.file, backend_options={"preload": []})
    assert again.file == found.file
    with pytest.raises(ValueError, match="no row has rules"):
        compile_checkers(rows)
    with pytest.raises(ValueError, match="min_agreement"):
        compile_checkers(rows, min_agreement=2)
