"""Files of a row on the page, in a real Chromium: closed folders, changes in colour, and nothing forged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.judge_command import invoke
from tests.tirjudge.judged_files import asking, judge_to
from tests.tirjudge.report.test_pages import count, opened, serious, written

pytestmark = pytest.mark.browser
MARKUP = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>"
FORGED = "<script>document.title='no'</script>\n</pre></details><h1>verdict: A</h1>\nNEEDLE"
OLD = "a = 1\nb = 2\nc = 3\n"


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    row = {
        "id": "r",
        "prompt": "Change b.",
        "responses": ["done", "done as well"],
        "files": [{"m.py": {"text": OLD.replace("b = 2", "b = 3")}}, {"<img src=x>": {"text": FORGED}}],
        "prompt_files": {"m.py": {"text": OLD}},
    }
    path = tmp_path_factory.mktemp("judged") / "out.jsonl"
    return judge_to(path, [row], asking("print('A 1 of 1')", lambda output: "A"), order="given")


@pytest.mark.slow
def test_folders_are_closed_and_show_changes(judged: Path, chromium: Any, tmp_path: Path) -> None:
    with opened(chromium, written(tmp_path, judged)) as page:
        page.evaluate("location.hash = 'row=r'")
        folders = page.locator("details.files")
        folders.nth(2).wait_for()
        assert folders.locator("summary").all_inner_texts() == [
            "files of the prompt: 1 file, 18 bytes",
            "files of response A: 1 file, 18 bytes",
            f"files of response B: 1 file, {len(FORGED)} bytes",
        ]
        assert not folders.nth(1).locator("pre").is_visible()
        folders.nth(1).locator("summary").click()
        assert folders.nth(1).locator(".message").all_inner_texts() == ["m.py, 18 bytes, changed"]
        assert folders.nth(1).locator(".removed").all_inner_texts() == ["-b = 2\n"]
        assert folders.nth(1).locator(".added").all_inner_texts() == ["+b = 3\n"]
        folders.nth(2).locator("summary").click()
        assert folders.nth(2).locator("pre").all_inner_texts() == [FORGED]
        assert folders.nth(2).locator(".message").first.inner_text().startswith('"<img src=x>"')
        assert page.title() != "no"
        assert page.locator("h1").count() == 1
        assert serious(page) == []
    with opened(chromium, written(tmp_path, judged)) as page:
        page.locator("#search").fill("needle")
        count(page, "1 of 1 rows")


@pytest.fixture(scope="module", autouse=True)
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a page about one row; it is judged before the browser starts, see `chromium`."""
    folder = tmp_path_factory.mktemp("files")
    files = {MARKUP.replace("/", "|"): {"text": MARKUP}, "a\u202etxt.md": {"text": "\x1b[2J\u202e</pre>"}}
    row = {
        "id": "r",
        "prompt": "p",
        "responses": ["done", "done"],
        "files": [files, {"x": {"text": "y"}}],
        "prompt_files": {"x": {"text": MARKUP}},
        "label": 1,
    }
    judge_to(folder / "out.jsonl", [row], asking("print(files_a)", lambda shown: "B"), order="given")
    assert invoke("report", "out.jsonl", "-o", "page.html", folder=folder).returncode == 0
    return (folder / "page.html").as_uri()


@pytest.mark.slow
def test_names_and_contents_of_files_stay_text(address: str, chromium: Any) -> None:
    with opened(chromium, address) as page:
        page.locator("#list a.id").first.click()
        page.wait_for_selector("#row-body .view")
        assert page.title() == "out.jsonl – tirjudge report"
        assert page.locator("main img").count() == 0
        page.evaluate("document.querySelectorAll('.files').forEach((folder) => { folder.open = true; })")
        shown = page.locator("#row-body").inner_text()
    assert MARKUP in shown
    assert "\u202e" not in shown
    assert "\x1b" not in shown
