"""A report of hostile workspaces, opened in a real browser."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tirjudge.judge_command import invoke
from tests.tirjudge.judged_files import asking, judge_to
from tests.tirjudge.report.test_pages import opened

MARKUP = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>"


@pytest.fixture(scope="module")
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
