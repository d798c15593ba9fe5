"""Judged files of the report tests, and one Chromium for each of their modules."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.judged_files import asking, judge_to

REQUIRED = "TIRJUDGE_BROWSER"
"""With the value `required`, as in CI, a missing Chromium fails the tests instead of skipping them."""
CHROMIUM_OPTIONS = (
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
HOSTILE = "</script><img src=x onerror=document.title='owned'><!-- {{ 7*7 }} \x1b[2J \u202e\u2028"
ROWS = 120


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 labelled pairs in both orders: 40 right, 40 wrong and hostile, 40 where the order decides."""
    folder = tmp_path_factory.mktemp("judged")
    rows = [
        {"id": "right", "prompt": "Which is longer?", "responses": ["long one", "short"], "label": 0},
        {
            "id": HOSTILE,
            "prompt": f"{HOSTILE}\ud800",
            "responses": [HOSTILE, "tiny needle"],
            "label": 1,
            "domain": HOSTILE,
            "tags": [HOSTILE],
        },
        {"id": "flips", "prompt": "Equal?", "responses": ["same", "size"], "label": 0},
    ]
    program = "print('longer:', 'B' if len(response_b) > len(response_a) else 'A', response_a)"
    path = folder / "out.jsonl"
    judge_to(path, rows, asking(program, lambda shown: shown.partition("longer: ")[2][:1]), order="both")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines.sort(key=lambda row: [one["id"] for one in rows].index(row["id"]))
    copies = [
        line | {"id": f"{line['id']} {n}", "where": f"rows.jsonl:{3 * n + place}"}
        for n in range(ROWS // 3)
        for place, line in enumerate(lines, 1)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in copies))
    return path


@pytest.fixture(scope="module")
def chromium(judged: Path) -> Iterator[Any]:
    """A browser, started after the rows were judged: it keeps an event loop of its own running."""
    path = "/usr/bin/chromium" if Path("/usr/bin/chromium").exists() else shutil.which("chromium")
    if path is None:
        reason = "needs Chromium: apt-get install -y --no-install-recommends chromium"
        if os.environ.get(REQUIRED) == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(CHROMIUM_OPTIONS))
        yield browser
        browser.close()
