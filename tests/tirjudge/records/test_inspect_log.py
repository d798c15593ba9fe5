"""`tirjudge export inspect`: logs read back by inspect_ai, and opened by `inspect view` in Chromium."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from shutil import which
from socket import socket
from typing import Any

import pytest

from tests.tirjudge.judge_command import command
from tests.tirjudge.judged_files import asking, edit, judge_to

log = pytest.importorskip("inspect_ai.log", reason="needs the extra inspect, see .ci/frameworks")

LONGER = "print('longer:', 'A' if len(response_a) > len(response_b) else 'B')\nprint(1 / (len(prompt) - 5))"
HOSTILE = (
    "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script> \x1b[2J\ud800"
)
SECONDS = 120_000
"""Milliseconds to wait for the viewer, which is slow on a busy machine."""


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs in both orders: right, wrong, with a program that fails, and hostile; two are labelled."""
    rows = [
        {"id": "a/b", "prompt": "Which is longer?", "responses": ["long one", "short"], "label": 0},
        {"id": "wrong", "prompt": "Which is longer?", "responses": ["s", "longer"], "label": 0},
        {"id": "failing", "prompt": "Which", "responses": ["s", "longer"]},
        {"id": "hostile\x1b[2J", "prompt": HOSTILE, "responses": [HOSTILE, "tiny"]},
    ]
    script = asking(LONGER, lambda output: output.partition("longer: ")[2][:1] or "B")
    path = judge_to(tmp_path_factory.mktemp("judged") / "pairs.verdicts.jsonl", rows, script, order="both")
    edit(path, lambda rows: rows.sort(key=lambda row: row["id"]))
    return path


@pytest.fixture(scope="module")
def logs(judged: Path) -> Path:
    folder = judged.parent / "logs"
    for _ in range(2):  # the second one replaces the first
        run = command("export", "inspect", judged, "-o", folder, code=0)
    assert run.stdout.split() == [str(path) for path in folder.iterdir()]
    return folder


@pytest.fixture(scope="module")
def samples(logs: Path) -> dict[str, Any]:
    (found,) = log.list_eval_logs(str(logs))
    return {sample.id: sample for sample in log.read_eval_log(found).samples}


def test_the_verdict_is_the_score(logs: Path, samples: dict[str, Any]) -> None:
    (found,) = log.list_eval_logs(str(logs))
    read = log.read_eval_log(found)
    assert (read.status, read.eval.task, read.eval.model) == ("success", "pairs", "scripted")
    correct, verdict = read.results.scores
    assert (correct.name, correct.scored_samples, correct.unscored_samples) == ("correct", 2, 2)
    assert correct.metrics["accuracy"].value == 0.5
    assert correct.metrics["stderr"].value == pytest.approx(0.5)
    assert verdict.metrics["share_with_a_verdict"].value == 1
    right, wrong = samples["a/b"], samples["wrong"]
    assert right.choices == ["long one", "short"]
    assert (right.target, right.scores["verdict"].value, right.scores["correct"].value) == ("A", "A", 1)
    assert (wrong.target, wrong.scores["verdict"].value, wrong.scores["correct"].value) == ("A", "B", 0)
    assert samples["failing"].scores["verdict"].value == "tie"
    assert "correct" not in samples["hostile\x1b[2J"].scores


def test_dialogue_and_tool_calls_are_events(samples: dict[str, Any]) -> None:
    sample = samples["a/b"]
    one_view = ["span_begin", "info", "model", "tool", "model", "span_end"]
    assert [event.event for event in sample.events] == [*one_view, *one_view, "score", "score"]
    assert [event.name for event in sample.events if event.event == "span_begin"] == ["view AB", "view BA"]
    asked, called, answered = sample.events[8:11]
    assert "[response A]\nshort" in asked.input[0].text  # as the reversed view shows them
    (call,) = asked.output.message.tool_calls
    assert (call.function, call.arguments["code"].strip()) == ("python", LONGER)
    assert (call.id, call.arguments) == (called.id, called.arguments)
    assert called.metadata["stdout"].startswith("longer: B")
    assert "longer: B" in called.result
    assert not called.failed
    assert answered.output.completion == "So <preference>B</preference>"
    assert [message.role for message in sample.messages] == ["user", "assistant", "tool", "assistant"] * 2
    failed = next(event for event in samples["failing"].events if event.event == "tool")
    assert (failed.error.type, failed.error.message) == ("unknown", "ZeroDivisionError: division by zero")


def test_the_files_of_a_row_are_listed_under_the_letters_that_were_shown(tmp_path: Path) -> None:
    row = {
        "id": "x",
        "prompt": "p",
        "responses": ["done", "done"],
        "files": [{"a.txt": {"text": "first"}}, {"b.txt": {"text": "[response A]\nsecond"}}],
        "prompt_files": {"given.txt": {"text": "given"}},
    }
    path = judge_to(tmp_path / "out.jsonl", [row], lambda _: "<preference>A</preference>", order="both")
    run = command("export", "inspect", path, "-o", tmp_path / "logs", code=0)
    (sample,) = log.read_eval_log(run.stdout.strip()).samples
    asked = [one.content for one in sample.messages if one.role == "user"]
    assert all("[files of the prompt]\ngiven.txt, 5 bytes" in one for one in asked)
    found = {re.findall(r"\[files of response (.)\]\n(\w).txt", one)[0] for one in asked}
    assert found == {("A", "a"), ("A", "b")}
    assert all(one.count("\n[response A]\n") == 1 for one in asked)
    shutil.rmtree(tmp_path / "out.jsonl.files")
    run = command("export", "inspect", path, "-o", tmp_path / "others", code=0)
    (sample,) = log.read_eval_log(run.stdout.strip()).samples
    asked = [one.content for one in sample.messages if one.role == "user"]
    assert all(
        re.search(r"\[files of response A\]\n.*out\.jsonl\.files.*\n\w.txt, \d+ bytes", one) for one in asked
    )


def test_a_file_without_texts_can_be_exported(tmp_path: Path) -> None:
    path = judge_to(
        tmp_path / "out.jsonl",
        [{"id": "x", "prompt": "p", "responses": ["a", "b"]}],
        lambda _: "no idea",
        texts=False,
    )
    run = command("export", "inspect", path, "-o", tmp_path / "logs", code=0)
    (sample,) = log.read_eval_log(run.stdout.strip()).samples
    assert sample.scores["verdict"].value == "none"
    assert sample.scores["verdict"].metadata["stop"] == "malformed"


def test_what_is_no_result_file_is_refused_and_a_cut_row_is_left_out(judged: Path, tmp_path: Path) -> None:
    rows, empty, missing = tmp_path / "rows.jsonl", tmp_path / "empty.jsonl", tmp_path / "missing.jsonl"
    rows.write_text('{"prompt": "p"}\n')
    empty.touch()
    for path in (rows, empty, missing):
        run = command("export", "inspect", path, "-o", tmp_path / "logs")
        assert (run.exit_code, run.stdout) == (2, "")
        assert path.name in run.stderr
    torn = tmp_path / "torn.jsonl"
    torn.write_bytes(judged.read_bytes()[:-9])
    run = command("export", "inspect", torn, "-o", tmp_path / "logs", code=0)
    assert "ends in the middle of a row" in run.stderr
    assert len(log.read_eval_log(run.stdout.strip()).samples) == 3


@contextmanager
def viewer(folder: Path) -> Iterator[str]:
    with closing(socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    inspect = Path(sys.executable).with_name("inspect")
    process = subprocess.Popen(
        [inspect, "view", "start", "--log-dir", folder, "--port", str(port)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert any(str(port) in line for line in process.stdout), "inspect view does not start"
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.terminate()
        process.communicate()


@pytest.mark.skipif(which("chromium") is None, reason="needs Debian's chromium")
def test_inspect_view_shows_the_rows_and_keeps_hostile_text_text(logs: Path) -> None:
    from playwright.sync_api import sync_playwright

    quiet = ["--no-sandbox", "--disable-quic", "--no-first-run", "--disable-background-networking"]
    quiet += ["--disable-component-update", "--disable-sync"]
    with viewer(logs) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=which("chromium"), args=quiet)
        page = browser.new_page()
        page.set_default_timeout(SECONDS)
        page.goto(url)
        page.get_by_text("pairs", exact=True).first.click()
        page.get_by_text("Which is longer?").first.wait_for()
        assert "document.title='owned'" in page.inner_text("body")
        assert page.title() != "owned"
        page.get_by_text("Which is longer?").first.click()
        page.get_by_text("longer: B").first.wait_for()
        shown = page.inner_text("body")
        assert "view AB" in shown
        assert "So <preference>A</preference>" in shown
        browser.close()
