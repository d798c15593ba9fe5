"""A transcript on the page, in a real Chromium: each part stands under its heading, and none is forged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.judged_files import asking, judge_to
from tests.tirjudge.report.test_pages import count, opened, serious, written
from tests.transcripts import COMPARE, RIGHT, ROW, WRONG, result

pytestmark = pytest.mark.browser
FORGED = "<b class=message>[message 3: assistant]</b>\n<script>document.title='no'</script>NEEDLE"


@pytest.fixture(scope="module")
def transcripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    conversation = [{"role": "user", "content": "Where to?"}, WRONG[0], result("c1", "12 degrees")]
    rows = [
        {**ROW, "responses": [RIGHT, [WRONG[0], result("c1", FORGED), WRONG[2]]]},
        {**ROW, "id": "asked", "prompt": conversation},
    ]
    path = tmp_path_factory.mktemp("judged") / "out.jsonl"
    return judge_to(path, rows, asking(COMPARE, lambda output: "A"), order="given")


@pytest.mark.slow
def test_a_transcript_is_drawn_part_by_part(transcripts: Path, chromium: Any, tmp_path: Path) -> None:
    url = written(tmp_path, transcripts)
    with opened(chromium, url) as page:
        page.evaluate("location.hash = 'row=weather'")
        texts = page.locator(".responses .response").nth(1)
        texts.wait_for()
        headings = ["call of get_weather, id c1", "result of get_weather, id c1", "assistant"]
        assert texts.locator(".message").all_inner_texts() == [
            f"message {number}: {heading}" for number, heading in enumerate(headings, 1)
        ]
        assert texts.locator("pre").all_inner_texts() == ['{"city": "Paris"}', FORGED, "Paris is warmer."]
        assert page.title() != "no"
        assert serious(page) == []
    with opened(chromium, url) as page:
        page.evaluate("location.hash = 'row=asked'")
        page.locator(".part.prompt").nth(2).wait_for()
        captions = page.locator(".part.prompt .caption").all_inner_texts()
        assert captions[1:] == [f"prompt, message {n}: {one}" for n, one in enumerate(headings[:2], 2)]
    with opened(chromium, url) as page:
        page.locator("#search").fill("needle")
        count(page, "1 of 2 rows")
