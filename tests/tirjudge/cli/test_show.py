"""`tirjudge show`: rows of a result file as a user reads them, whatever the candidates contain."""

from __future__ import annotations

import json
import resource
import subprocess
import unicodedata
from pathlib import Path

import pytest
from click.testing import Result

from tests.rows import every
from tests.served_command import TIRJUDGE
from tests.tirjudge.judge_command import command
from tests.tirjudge.judged_files import asking, judge_to
from tirjudge.storage.result_file import settings_path
from tirjudge_environments import Context

HOSTILE = "\x1b[2J\x1b]0;title\x07 \x9b31m \u202e \r [red]b[/red]"
LONGER = "print('longer:', 'A' if len(response_a) > len(response_b) else 'B')"


def show(*arguments: object, code: int | None = None) -> Result:
    return command("show", *arguments, code=code, COLUMNS="120")


def believing(output: str) -> str:
    return output.partition("longer: ")[2][:1]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs in both orders: the longer response wins, the second row is labelled wrong, one is hostile."""
    rows = [
        {"id": "right", "prompt": "Which is longer?", "responses": ["long one", "short"], "label": 0},
        {"id": "wrong", "prompt": "Which is longer?", "responses": ["s", "longer"], "label": 0},
        {
            "id": "hostile\x1b[2J",
            "prompt": f"{HOSTILE}\ud800",
            "responses": [HOSTILE, "tiny"],
            "domain": HOSTILE,
        },
    ]
    path = tmp_path_factory.mktemp("judged") / "out.jsonl"
    return judge_to(path, rows, asking(f"{LONGER}\nprint(response_a)", believing), order="both")


def test_a_row_shows_responses_dialogues_programs_outputs_and_reward(judged: Path) -> None:
    run = show(judged, "right", code=0)
    lines = [line.rstrip() for line in run.stdout.splitlines()]
    assert lines[0].startswith("row right: A 2/2, the label is A: right")
    (headings,) = (line for line in lines if line.startswith("response A"))
    assert "response A (chosen, label):" in headings
    assert headings.endswith("response B:")
    texts = lines[lines.index(headings) + 1]
    assert texts.strip().split("  ")[0] == "long one"
    assert texts.index("short") == headings.index("response B") + 4
    for part in ("    Which is", LONGER, "    longer: A", "reward 1 (correct 1, format 1, tool 1)"):
        assert any(part.strip() in line for line in lines), part
    assert "wrong" not in run.stdout


def test_letters_of_a_reversed_order_are_mapped_back(judged: Path) -> None:
    given, reversed_order = show(judged, "right").stdout.split("view BA")
    assert "the judge sees the responses in the order of the row" in given
    assert "verdict: response A\n" in given.replace(" \n", "\n")
    assert "its A is response B, its B is response A" in reversed_order
    assert "response_a is response B" in reversed_order
    assert "longer: B" in reversed_order
    assert "verdict: response A, which this dialogue calls B" in reversed_order


def test_rows_are_selected(judged: Path, tmp_path: Path) -> None:
    def ids(*arguments: object) -> list[str]:
        run = show(judged, "--json", *arguments, code=0)
        return sorted(json.loads(line)["id"] for line in run.stdout.splitlines())

    everything = ["hostile\x1b[2J", "right", "wrong"]
    assert ids() == everything
    assert ids("--wrong") == ["wrong"]
    assert ids("--flipped") == ids("--failed") == ids("--program-failed") == []
    assert ids("--random", 3) == everything
    assert ids("--random", 1, "--seed", 5) == ids("--random", 1, "--seed", 5)
    assert {tuple(ids("--random", 1, "--seed", seed)) for seed in range(20)} == {(id,) for id in everything}
    assert len(ids("--limit", 2)) == 2
    assert ids("--wrong", "--limit", 1, "wrong", "right") == ["wrong"]


def test_flipped_and_failed_rows(tmp_path: Path) -> None:
    def turn(context: Context) -> str:
        text = context.prompt.messages[-1].content
        if "biased" in text:
            return "<preference>A</preference>"
        if "crash" in text and not context.segments:
            return "```python\n1/0\n```\n"
        return "no idea"

    rows = [{"id": id, "prompt": id, "responses": ["x", "y"]} for id in ("biased", "crash", "mute")]
    path = judge_to(tmp_path / "out.jsonl", rows, turn, order="both")
    failure = {"where": "rows:9", "id": "gone", "reason": "generator_down: \x1b[2Jno answer"}
    (tmp_path / "out.jsonl.failed.jsonl").write_text(json.dumps(failure) + "\n")
    brief = {
        option: show(path, "--brief", option).stdout
        for option in ("--flipped", "--failed", "--program-failed")
    }
    assert [line.split()[0] for line in brief["--flipped"].splitlines()] == ["biased"]
    assert sorted(line.split()[0] for line in brief["--failed"].splitlines()) == ["crash", "mute", "rows:9:"]
    assert "rows:9: no result: generator_down: \\x1b[2Jno answer" in brief["--failed"]
    assert [line.split()[0] for line in brief["--program-failed"].splitlines()] == ["crash"]
    assert "error: ZeroDivisionError: division by zero <- 1/0" in brief["--program-failed"]
    assert "no result" in show(path, "gone").stdout


def test_without_a_selection_each_row_is_one_line(judged: Path) -> None:
    *rows, number, decided, accuracy = show(judged).stdout.splitlines()
    lines = sorted(rows)
    assert len(lines) == 3
    assert decided == "evidence  decided by a program 0 of 3 rows; 3 undecided, counted as guessed"
    assert accuracy.startswith("evidence  accuracy of guesses 50.0%")
    assert number.startswith("accuracy 50.00 %, protocol verdict, n = 2 in 1 cluster (no interval: fewer")
    assert lines[1].split()[:4] == ["right", "A", "2/2", "right"]
    assert lines[2].split()[:4] == ["wrong", "B", "2/2", "wrong"]
    assert [
        line for line in lines if "  longer: " not in line or not line.endswith(" <- print(response_a)")
    ] == []


def test_the_line_of_a_row_has_the_check_and_the_counts_of_both_responses(tmp_path: Path) -> None:
    """The program defines a check and prints a count for each letter, as those of the embedded judge do."""
    path = tmp_path / "rows.verdicts.jsonl"
    path.write_text((Path(__file__).parents[3] / "examples/instructions.verdicts.jsonl").read_text())
    (line,) = [one for one in show(path).stdout.splitlines() if one.startswith("tides")]
    assert "A 0 of 1 · B 1 of 1 <- [len(re.findall(" in line


@pytest.mark.parametrize("arguments", [(), ("--limit", "3"), ("--json",)])
def test_hostile_text_reaches_no_terminal(judged: Path, arguments: tuple[str, ...]) -> None:
    run = show(judged, *arguments, code=0)
    text = run.stdout
    assert "2J" in text
    assert {mark for mark in text if unicodedata.category(mark) in ("Cc", "Cf", "Cs")} == {"\n"}
    assert not any(mark in text for mark in "│┃─━╭┌|")


def test_hostile_text_is_shown_as_it_is(judged: Path) -> None:
    text = show(judged, "hostile\x1b[2J").stdout
    assert "\\x1b[2J\\x1b]0;title\\x07 \\x9b31m \\u202e \\r [red]b[/red]\\ud800" in text


def test_no_line_of_a_text_can_pass_for_one_of_ours(tmp_path: Path) -> None:
    """A response that shows the end of a dialogue of its own would deceive whoever reads the row."""

    def ours(text: str) -> list[str]:
        folder = {"view AB.txt": {"text": text}}
        row = {"id": "1", "prompt": text, "responses": [text], "reference": text, "criteria": [text]}
        row |= {"files": [folder], "prompt_files": folder}
        path = judge_to(tmp_path / f"{len(text)}.jsonl", [row], lambda _: f"{text}\n<score>7</score>")
        return [line for line in show(path, "1").stdout.splitlines() if line[:1].strip()]

    assert "prompt, user:" in ours("Hi.")
    forged = "Hi.\n\nview AB:\nverdict: response B\nreward 1 (correct 1)\nrow 2: B, the label is B: right"
    assert ours(forged) == ours("Hi.")


def test_texts_can_be_left_out(tmp_path: Path) -> None:
    rows = [{"id": "x", "prompt": "a secret prompt", "responses": ["first secret", "second"]}]
    path = judge_to(tmp_path / "out.jsonl", rows, lambda _: "<preference>A</preference>", texts=False)
    assert "secret" not in path.read_text()
    assert "The prompt and the responses are not in the file." in show(path, "x").stdout
    with_texts = judge_to(tmp_path / "more.jsonl", rows, lambda _: "<preference>A</preference>")
    (row,) = map(json.loads, with_texts.read_text().splitlines())
    assert row["prompt"] == [{"role": "user", "content": "a secret prompt"}]
    assert row["responses"] == ["first secret", "second"]


def test_a_torn_file_is_shown_without_its_last_row(judged: Path, tmp_path: Path) -> None:
    path = tmp_path / "torn.jsonl"
    path.write_bytes(judged.read_bytes()[:-20])
    torn = show(path)
    *rows, number, _, _ = torn.stdout.splitlines()
    assert (torn.exit_code, len(rows)) == (0, 2)
    assert number.startswith("accuracy")
    assert "ends in the middle of a row" in torn.stderr


def test_a_benchmark_whose_first_row_is_not_finished_has_no_rows(tmp_path: Path) -> None:
    """`tirjudge eval` writes the settings before the first row."""
    path = tmp_path / "out.jsonl"
    path.touch()
    settings_path(path).write_text(json.dumps({"settings": {"benchmark": "judgebench"}}))
    run = show(path)
    assert (run.exit_code, run.stdout.strip()) == (0, "")
    assert "has 0 rows; --failed shows rows without a result" in run.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", every(2, [["show", "/dev/zero"], ["judge", "/dev/zero", "--model", "x"]]))
def test_a_file_without_an_end_of_line_is_refused_before_it_fills_memory(command: list[str]) -> None:
    run = subprocess.run(
        [TIRJUDGE, *command],
        capture_output=True,
        text=True,
        timeout=100,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30)),
    )
    assert (run.returncode, run.stdout) == (2, ""), run.stderr
    assert "/dev/zero:1: a line may have 256 MiB" in run.stderr


def test_of_a_giant_response_the_beginning_is_shown(tmp_path: Path) -> None:
    rows = [{"id": "giant", "prompt": "Which?", "responses": ["word " * 2_000_000, "short"], "label": 0}]
    path = judge_to(tmp_path / "out.jsonl", rows, asking("print('longer: A')", believing))
    run = show(path, "giant")
    assert "[9,950,000 more characters, which --json prints]" in " ".join(run.stdout.split())
    assert len(run.stdout) < 1_000_000
