"""Labels made in a page in a real Chromium, and what reads the file that they are saved to."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.tirjudge.endpoint_server import chat, serving
from tests.tirjudge.judge_command import command
from tests.tirjudge.judged_files import asking, edit, judge_to
from tests.tirjudge.report.conftest import HOSTILE
from tests.tirjudge.report.test_pages import count, ids, opened, serious, written
from tests.transcripts import COMPARE, ROW
from tirjudge_environments.tasks import read_task

pytestmark = pytest.mark.browser
T = TypeVar("T")
LONGER = "print('longer:', 'A' if len(response_a) > len(response_b) else 'B')"
SOURCES = "={cmd|' /C calc'!A0}", "<img src=x onerror=document.title='owned'>"


def apart(work: Callable[[], T]) -> T:
    """Work in a thread of its own: a browser keeps an event loop running in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()


def longer(path: Path, rows: list[dict[str, Any]], **options: Any) -> Path:
    """Judge pairs by which response is longer."""
    script = asking(LONGER, lambda shown: shown.partition("longer: ")[2][:1])
    return apart(lambda: judge_to(path, rows, script, **options))


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve pairs, in which the judge prefers A in those with an odd number, which have a tag."""
    rows = [
        {
            "id": f"row-{n}",
            "prompt": f"{n}. Which?",
            "responses": ["longer", "short"] if n % 2 else ["short", "longer"],
            "tags": ["odd"] if n % 2 else [],
        }
        for n in range(12)
    ]
    return longer(tmp_path_factory.mktemp("pairs") / "pairs.verdicts.jsonl", rows, order="given")


def saved(page: Any, button: str) -> tuple[str, str]:
    """Save a file by a button; return its suggested name and its content."""
    with page.expect_download() as download:
        page.locator(button).click()
    return download.value.suggested_filename, Path(download.value.path()).read_text(encoding="utf-8")


def label(page: Any, name: str) -> None:
    """Give the open row the label A, B, ... or tie in the row's letters, and go to the next row without one.

    The responses are shown in a drawn order, with letters by their places.
    """
    page.locator("#labeller .choices").wait_for()
    page.locator(f"#labeller .choice[data-label='{name}']").click()
    page.locator("#labeller .choice[aria-pressed=true]").wait_for()
    page.keyboard.press("n")
    # The next row is drawn once its texts are unpacked.
    page.locator("#labeller .choice[aria-pressed=true]").wait_for(state="hidden")


def numbers(page: Any) -> list[int]:
    return [int(one.partition("-")[2]) for one in ids(page)]


def run(*words: object) -> Any:
    done = apart(lambda: command(*words))
    assert done.exit_code == 0, done.output
    return done


@pytest.mark.slow
def test_ten_labels_become_a_file_that_score_judge_and_train_read(
    chromium: Any, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(chromium, written(tmp_path, pairs)) as page:
        page.locator("#label-rows").click()
        for n in range(10):
            page.wait_for_function(
                "id => document.querySelector('#row-title').textContent === id", arg=f"Row row-{n}"
            )
            # The judge is right about all rows but two, of which the person calls one a tie.
            label(page, "tie" if n == 9 else "A" if n % 2 or n == 4 else "B")
        assert page.locator("#labelled").inner_text() == "10 of 12 rows labelled"
        page.locator("#stop-labels").click()
        page.keyboard.press("Escape")
        said = "he judge is right on 8 of the 9 labelled rows that it decides"
        assert page.locator("#labelled").inner_text() == f"10 of 12 rows labelled; t{said}"
        # The row is closed by an event of its own, and a hidden element has no lines.
        page.locator("#trust-labels").wait_for()
        known = page.locator("#trust-labels").inner_text()
        assert known.splitlines()[1:] == [f"T{said}", "by 10 labels of this page, which Save labels keeps"]
        name, content = saved(page, "#save-labels")
        assert f"tirjudge score {pairs.name} --labels {name}" in page.locator("#saved").inner_text()
    assert name == "pairs.labels.jsonl"
    rows = [json.loads(line) for line in content.splitlines()]
    assert [row["label"] for row in rows] == ["B", "A", "B", "A", "A", "A", "B", "A", "B", "tie"]
    assert rows[1] == {
        "id": "row-1",
        "prompt": "1. Which?",
        "responses": ["longer", "short"],
        "label": "A",
        "tags": ["odd"],
    }
    labels = tmp_path / name
    labels.write_text(content)
    with opened(chromium, written(tmp_path, pairs, "--labels", labels)) as page:
        assert "88.9 %" in page.locator(".lead").inner_text().replace("\n", " ")
        assert page.locator("#filters input[value=wrong]").locator("..").inner_text().split() == [
            "wrong",
            "1",
        ]
    # Wilson's interval of 8 of 9, by statsmodels' proportion_confint(8, 9, method="wilson").
    scored = run("score", pairs, "--labels", labels)
    assert "accuracy 88.89 % [56.50, 98.01], protocol verdict, n = 9" in scored.stdout
    assert "2 rows have no label in the file of --labels" in scored.stderr
    monkeypatch.chdir(tmp_path)
    with serving() as server:
        server.script = lambda body: chat("<preference>A</preference>")
        words = ("--model", "any", "--base-url", server.url, "--no-tools")
        judged = run("judge", labels, *words)
    # A is right on the five rows that the person labelled A.
    assert "accuracy  55.6%" in judged.stdout
    assert "1 tie left out" in run("train", "--data", labels, "--plan").output


@pytest.mark.slow
def test_sources_order_and_verdicts_are_hidden_until_labelling_ends(
    chromium: Any, pairs: Path, tmp_path: Path
) -> None:
    path = tmp_path / "named.jsonl"
    path.write_text(pairs.read_text())

    def name(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            row.update(sources=["gpt", "llama"], label=0)

    edit(path, name)
    with opened(chromium, written(tmp_path, path)) as page:
        page.locator("#label-rows").click()
        page.locator("#labeller .choices").wait_for()
        hidden = page.locator("main").inner_text()
        assert "0. Which?" in hidden
        assert [word for word in ("gpt", "llama", "chosen", "longer:", "label\nA") if word in hidden] == []
        assert page.locator(".trust").is_hidden()
        assert page.locator("#numbers").is_hidden()
        page.keyboard.press("b")
        page.locator("#labeller .choice[aria-pressed=true]").wait_for()
        assert "Labelled B." in page.locator("#labeller").inner_text()
        told = page.locator("main").inner_text()
        assert [word for word in ("gpt", "llama", "chosen", "longer:") if word in told] == []
        page.keyboard.press("Backspace")
        page.locator("#labeller .choice[aria-pressed=true]").wait_for(state="detached")
        # The key names a place, and the label the response that is shown there.
        texts = page.locator("#row-body .response pre").all_inner_texts()
        page.keyboard.press("b")
        page.keyboard.press("Escape")
        assert set(page.locator("#list td.verdict").all_inner_texts()) == {"hidden"}
        assert page.locator("#list td.labelled").first.inner_text() == "B"
        assert page.locator("#filters input[value=wrong]").count() == 0
        assert serious(page) == []
        page.locator("#label-rows").click()
        assert page.locator(".trust").is_visible()
        labelled = page.locator("#list td.labelled").first.inner_text()
        assert ["short", "longer"]["AB".index(labelled)] == texts[1]
        page.locator("#list a.id").first.click()
        page.locator("#row-body .view").wait_for()
        note = page.locator("#row-body > .note").inner_text()
        assert f"Your label: {labelled}. While you labelled you saw" in note
        assert f"response {labelled} as B" in note


@pytest.mark.slow
def test_labels_and_notes_outlive_a_reload_and_nothing_else_is_restored(
    chromium: Any, pairs: Path, tmp_path: Path
) -> None:
    with opened(chromium, written(tmp_path, pairs)) as page:
        page.evaluate("location.hash = 'label'")
        page.locator("#note").fill("the second one, b\n")
        page.locator("#row-title").click()
        label(page, "A")
        page.reload()
        assert page.locator("#labelled").inner_text().startswith("1 of 12 rows labelled")
        # The second row is open, and verdicts are still hidden.
        page.locator("#labeller .choices").wait_for()
        assert page.locator("#row-body .view").count() == 0
        _, content = saved(page, "#save-labels")
        (row,) = map(json.loads, content.splitlines())
        assert (row["id"], row["label"], row["note"]) == ("row-0", "A", "the second one, b")
        # A busy browser was seen to reload the page without the label in its local store.
        page.evaluate("localStorage.clear()")
        page.reload()
        assert page.locator("#labelled").inner_text().startswith("1 of 12 rows labelled")
        label(page, "B")
        page.evaluate(
            """() => {
              const key = Object.keys(localStorage).find((one) => one.startsWith('tirjudge-labels'));
              const rows = [['row-1', '<img src=x>', 7], ['nobody', 'A', ''], 3, null];
              for (const store of [localStorage, sessionStorage]) store.setItem(key, JSON.stringify(rows));
            }"""
        )
        page.reload()
        assert page.locator("#labelled").inner_text() == "0 of 12 rows labelled"


@pytest.mark.slow
def test_a_hostile_file_is_labelled_and_saved_as_data(chromium: Any, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": "__proto__", "prompt": f"{HOSTILE}\ud800", "responses": [HOSTILE, "x"], "domain": HOSTILE},
        {"id": HOSTILE, "prompt": "?", "responses": ["y" * 9, HOSTILE], "tags": [HOSTILE, "=1+1"]},
        {"id": "=HYPERLINK(1)", "prompt": "\t=1+1", "responses": ["yy", "z"], "domain": "@SUM(1)"},
    ]
    path = longer(tmp_path / "$(touch owned).verdicts.jsonl", rows, order="given")

    def name(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            row["sources"] = [*SOURCES]

    edit(path, name)
    with opened(chromium, written(tmp_path, path)) as page:
        page.locator("#label-rows").click()
        for _ in rows:
            page.locator("#note").fill(HOSTILE)
            page.locator("#row-title").click()
            label(page, "A")
        page.keyboard.press("Escape")
        name_of_labels, content = saved(page, "#save-labels")
        page.locator("#label-rows").click()
        name_of_rows, table = saved(page, "#save-rows")
        assert page.title() == f"{path.name} – tirjudge report"
        assert page.locator("main img").count() == 0
    assert (name_of_labels, name_of_rows) == ("__touch_owned_.labels.jsonl", "__touch_owned_.shown.csv")
    labelled = [json.loads(line) for line in content.splitlines()]
    assert [row["id"] for row in labelled] == [row["id"] for row in rows]
    assert [row["prompt"] for row in labelled] == [row["prompt"] for row in rows]
    assert [[*row["responses"].items()] for row in labelled] == [
        [*zip(SOURCES, row["responses"], strict=True)] for row in rows
    ]
    assert {(row["label"], row["note"]) for row in labelled} == {("A", HOSTILE)}
    assert labelled[1]["tags"] == rows[1]["tags"]
    lines = list(csv.reader(io.StringIO(table.removeprefix("\ufeff"))))
    assert len(lines) == 4
    assert [cell for line in lines for cell in line if cell.strip().startswith(("=", "+", "-", "@"))] == []
    assert [line[1] for line in lines[1:]] == ["__proto__", HOSTILE, "'=HYPERLINK(1)"]
    labels = tmp_path / name_of_labels
    labels.write_text(content)
    # The longer response is A in two of the three rows; Wilson's interval by statsmodels.
    scored = run("score", path, "--labels", labels)
    assert "accuracy 66.67 % [20.77, 93.85], protocol verdict, n = 3" in scored.stdout


@pytest.mark.slow
def test_a_page_without_texts_says_that_it_cannot_be_labelled(
    chromium: Any, pairs: Path, tmp_path: Path
) -> None:
    for folder, words in (("none", (pairs, "--texts", "none")), ("untold", None)):
        (tmp_path / folder).mkdir()
        if words is None:
            rows = [{"id": "x", "prompt": "?", "responses": ["longer", "short"]}]
            words = (longer(tmp_path / "untold.jsonl", rows, order="given", texts=False),)
        with opened(chromium, written(tmp_path / folder, *words)) as page:
            assert page.locator("#label-rows").is_disabled()
            assert "so its rows cannot be labelled" in page.locator("#cannot-label").inner_text()


@pytest.mark.slow
def test_a_single_response_gets_a_grade_and_a_transcript_keeps_its_messages(
    chromium: Any, tmp_path: Path
) -> None:
    alone = {"id": "alone", "prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]}
    script = asking(COMPARE, lambda output: "A")
    path = apart(lambda: judge_to(tmp_path / "out.jsonl", [ROW], script, order="given"))
    rows = [alone | {"response": "fine", "reference": "r"}]
    scored = tmp_path / "single.jsonl"
    single = apart(lambda: judge_to(scored, rows, lambda context: "<score>8</score>", tools=False))
    with opened(chromium, written(tmp_path, path)) as page:
        page.locator("#label-rows").click()
        label(page, "B")
        (row,) = map(json.loads, saved(page, "#save-labels")[1].splitlines())
    assert row["label"] == "B"
    tasks = [read_task(one, default_id="") for one in (ROW, row)]
    assert tasks[0].candidates == tasks[1].candidates
    assert (tasks[0].prompt, tasks[0].tools) == (tasks[1].prompt, tasks[1].tools)
    with opened(chromium, written(tmp_path, single)) as page:
        page.locator("#label-rows").click()
        label(page, "10")
        (row,) = map(json.loads, saved(page, "#save-labels")[1].splitlines())
    assert row == alone | {"responses": ["fine"], "label": "10", "reference": "r"}


@pytest.mark.slow
def test_columns_sort_and_choices_filter_and_the_shown_rows_are_saved(
    chromium: Any, pairs: Path, tmp_path: Path
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(pairs.read_text())

    def vary(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            number = int(row["id"][4:])
            row.update(
                completion_tokens=[30, 7, 200, 9][number % 4], stop="verdict" if number else "malformed"
            )
            row["decided"] = None if number == 11 else number % 4 == 1

    edit(path, vary)
    with opened(chromium, written(tmp_path, path)) as page:
        count(page, "12 of 12 rows")
        assert page.locator("#list td.number").all_inner_texts() == [str(n) for n in range(1, 13)]
        heading = page.locator("#list th button.sort", has_text="tokens")
        heading.click()
        assert numbers(page) == [1, 5, 9, 3, 7, 11, 0, 4, 8, 2, 6, 10]
        heading.click()
        # Numbers and not texts, and rows of equal tokens in the order of the file.
        assert numbers(page) == [2, 6, 10, 0, 4, 8, 3, 7, 11, 1, 5, 9]
        assert page.locator("#list th[aria-sort=descending]").inner_text().startswith("tokens")
        page.locator("#choose-tag").select_option(label="odd (6)")
        count(page, "6 of 12 rows")
        assert numbers(page) == [3, 7, 11, 1, 5, 9]
        name, table = saved(page, "#save-rows")
        lines = list(csv.DictReader(io.StringIO(table.removeprefix("\ufeff"))))
        assert name == "rows.shown.csv"
        assert [line["row"] for line in lines] == [f"row-{n}" for n in (3, 7, 11, 1, 5, 9)]
        assert {(line["winner"], line["tokens"]) for line in lines} == {("A", "9"), ("A", "7")}
        assert [line["decided"] for line in lines] == ["no", "no", "", "yes", "yes", "yes"]
        page.locator("#choose-tag").select_option(label="all")
        page.locator("#choose-stop").select_option(label="malformed (1)")
        count(page, "1 of 12 rows")
        page.set_viewport_size({"width": 400, "height": 900})
        page.locator("#choose-stop").select_option(label="all")
        page.locator("#sort").select_option(label="row ↓")
        assert ids(page)[0] == "row-11"
        assert page.evaluate("document.documentElement.scrollWidth") == 400


@pytest.mark.slow
def test_a_tie_of_two_of_four_is_no_right_verdict_and_worth_a_half_in_the_accuracy(
    chromium: Any, tmp_path: Path
) -> None:
    """As the accuracy of `tirjudge score` with the saved labels: 1 / k for a tie of k."""
    given = {"apple": 9, "berry": 9, "cherry": 3, "date": 2}

    def scoring(context: Any) -> str:
        (found,) = [one for word, one in given.items() if word in context.prompt.messages[-1].content]
        return f"<score>{found}</score>"

    rows = [{"id": id, "prompt": f"{id}?", "responses": list(given)} for id in ("first", "second")]
    path = apart(
        lambda: judge_to(tmp_path / "four.jsonl", rows, scoring, format="tir-pointwise", tools=False)
    )
    for keys, right in (("AD", "0.5"), ("DD", "0"), ("AB", "1")):
        with opened(chromium, written(tmp_path, path)) as page:
            page.locator("#label-rows").click()
            for key in keys:
                label(page, key)
            page.locator("#stop-labels").click()
            page.keyboard.press("Escape")
            said = page.locator("#labelled").inner_text()
            assert said.endswith("the judge decides none of the 2 rows labelled with a letter")
            labels = tmp_path / "four.labels.jsonl"
            labels.write_text(saved(page, "#save-labels")[1])
        assert f"accuracy {50 * float(right):.2f} %" in run("score", path, "--labels", labels).stdout


@pytest.mark.slow
def test_labels_of_responses_with_files_are_saved_with_the_responses_alone(
    chromium: Any, tmp_path: Path
) -> None:
    """The page shows the files of a response below its text."""
    file = {"report.txt": {"sha256": "0" * 64, "bytes": 3}}
    given = {"id": "one", "prompt": "Which?", "responses": ["longer", "short"]}
    path = longer(tmp_path / "files.jsonl", [given], order="given")
    for sources, responses in (
        ([], ["longer", "short"]),
        (["gpt", "llama"], {"gpt": "longer", "llama": "short"}),
    ):
        edit(path, lambda rows, sources=sources: rows[0].update(sources=sources, files=[file, {}]))
        with opened(chromium, written(tmp_path, path)) as page:
            page.locator("#label-rows").click()
            page.locator("#labeller .choices").wait_for()
            page.locator("#row-body summary").first.click()
            assert "report.txt" in page.locator("#row-body").inner_text()
            label(page, "A")
            (row,) = map(json.loads, saved(page, "#save-labels")[1].splitlines())
        assert row["responses"] == responses


@pytest.mark.slow
def test_the_order_of_each_row_is_drawn_and_stays_the_same(
    chromium: Any, pairs: Path, tmp_path: Path
) -> None:
    def orders(page: Any) -> list[str]:
        return [page.evaluate("entry => shownOrder(entry).join('')", entry) for entry in range(12)]

    with opened(chromium, written(tmp_path, pairs)) as page:
        found = orders(page)
        page.reload()
        assert orders(page) == found
    assert set(found) == {"01", "10"}


@pytest.mark.slow
def test_texts_have_most_of_a_telephone_while_rows_are_labelled(
    chromium: Any, pairs: Path, tmp_path: Path
) -> None:
    with opened(chromium, written(tmp_path, pairs), viewport={"width": 400, "height": 900}) as page:
        page.locator("#label-rows").click()
        page.locator("#labeller .choices").wait_for()
        top = page.locator("#row-body").bounding_box()["y"]
        box = page.locator("#labeller").bounding_box()
        assert box["height"] + top < 250
        assert page.locator(".bar").is_hidden()
        assert page.evaluate("document.documentElement.scrollWidth") == 400
        page.locator("#stop-labels").click()
        assert page.locator(".bar").is_visible()
