"""A report over many rows: page size, build time, peak memory, and the time until Chromium shows it.

    OMP_NUM_THREADS=1 python -m benchmarks.report_size                # 10,000 rows
    OMP_NUM_THREADS=1 python -m benchmarks.report_size --rows 1000 --screenshot report.png

A scripted judge judges 24 pairs in both orders, with programs in the sandbox. The rows of the measured
file are copies of these, as the result writer wrote them, each with an id, a length and words of its own.
First paint, memory of the page's JavaScript, and the time of a search over all texts are Chromium's.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.command import TIRJUDGE
from tests.tirjudge.judged_files import asking, judge_to
from tests.tirjudge.report.conftest import CHROMIUM_OPTIONS

PROGRAM = """import re
for name, response in zip("AB", (response_a, response_b)):
    words = re.findall(r"\\w+", response)
    print(name, len(words), "words,", len(set(words)), "distinct")
print("longer:", "A" if len(response_a) > len(response_b) else "B")"""
WORDS = ("judge", "runs", "programs", "before", "it", "gives", "a", "verdict", "that", "anyone", "checks")
DOMAINS = ("instruction following", "mathematics", "code", "reasoning")


def judged(path: Path, rows: int, seed: int) -> None:
    """Write a result file of `rows` rows."""
    draw = random.Random(seed)

    def text(words: int) -> str:
        return " ".join(draw.choices(WORDS, k=words)).capitalize() + "."

    asked = [
        {
            "id": f"seed-{n}",
            "prompt": "Which answer is more complete?",
            "responses": [text(60 + 4 * n), text(150 - 4 * n)],
            # The judge prefers the longer response, and so do five of six labels.
            "label": int((60 + 4 * n > 150 - 4 * n) == (7 * n % 24 < 4)),
            "domain": DOMAINS[n % len(DOMAINS)],
            "tags": ["long" if n % 3 else "short"],
        }
        for n in range(24)
    ]
    script = asking(PROGRAM, lambda shown: shown.partition("longer: ")[2][:1])
    judge_to(path, asked, script, order="both")
    kept = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    with path.open("w", encoding="utf-8") as file:
        for number in range(rows):
            row = kept[draw.randrange(len(kept))] | {
                "id": f"row-{number:05d}",
                "where": f"rows.jsonl:{number + 1}",
            }
            row["responses"] = [f"{text(draw.randrange(10, 120))} {one}" for one in row["responses"]]
            row["seconds"] = round(draw.lognormvariate(2, 0.5), 3)
            row["completion_tokens"] = int(draw.lognormvariate(5, 0.4))
            file.write(json.dumps(row) + "\n")


def built(source: Path, page: Path, texts: str) -> tuple[float, float, int]:
    """Build a page; return its seconds, its CPU seconds and its peak memory in MiB."""
    started = time.monotonic()
    process = subprocess.Popen(
        [TIRJUDGE, "report", str(source), "-o", str(page), "--texts", texts], stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"tirjudge report ended with {process.returncode}")
    seconds = time.monotonic() - started
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss // 1024


def shown(page: Path, screenshot: Path | None) -> dict[str, Any]:
    """Open a page in Chromium; return its timings in milliseconds and its memory in MiB."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or "/usr/bin/chromium"
    options = [*CHROMIUM_OPTIONS, "--enable-precise-memory-info"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=options)
        tab = browser.new_page(viewport={"width": 1280, "height": 800})
        tab.goto(page.as_uri())
        tab.wait_for_selector("#list a.id")
        paint = tab.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        loaded = tab.evaluate("performance.timing.loadEventEnd - performance.timing.navigationStart")
        memory = tab.evaluate("performance.memory.usedJSHeapSize / 2 ** 20")
        if screenshot is not None:
            tab.screenshot(path=str(screenshot))
        started = time.monotonic()
        tab.locator("#search").fill("row-00007")
        tab.wait_for_function("() => document.querySelector('#count').textContent.startsWith('1 of')")
        searched = 1000 * (time.monotonic() - started)
        tab.locator("#search").fill("")
        tab.wait_for_function("() => document.querySelector('#next-page').disabled === false")
        acts = {
            "sort": "document.querySelector('button.sort[data-key=row]').click()",
            "filter": "document.querySelector('#filters input[value=wrong]').click()",
            "label": "document.querySelector('#labeller .choice').click()",
        }
        timed = "(() => { const begun = performance.now(); %s; return performance.now() - begun; })()"
        acted = {}
        for name, act in acts.items():
            if name == "label":
                if tab.locator("#label-rows").is_disabled():
                    break
                tab.locator("#label-rows").click()
                tab.locator("#labeller .choices").wait_for()
            acted[name] = tab.evaluate(timed % act)
        browser.close()
    return {"paint": paint, "loaded": loaded, "memory": memory, "searched": searched, "acted": acted}


def main(arguments: list[str] | None = None) -> int:
    """Measure the page without texts and with all; return 1 if the former is larger than 5 MB."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--screenshot", type=Path, help="write the top of the page as a PNG file")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        source, page = Path(folder) / "example.verdicts.jsonl", Path(folder) / "report.html"
        judged(source, options.rows, options.seed)
        print(f"{options.rows} rows, {source.stat().st_size / 1e6:.1f} MB of results, seed {options.seed}")
        sizes = {}
        for texts in ("none", "all"):
            seconds, cpu, memory = built(source, page, texts)
            sizes[texts] = page.stat().st_size
            found = shown(page, options.screenshot if texts == "all" else None)
            print(
                f"--texts {texts}: {sizes[texts] / 1e6:.2f} MB, "
                f"built in {seconds:.1f} s ({cpu:.1f} CPU s) with {memory} MiB; "
                f"first paint {found['paint']:.0f} ms, loaded {found['loaded']:.0f} ms, "
                f"JavaScript {found['memory']:.0f} MiB, id found {found['searched']:.0f} ms, "
                + ", ".join(f"{act} {spent:.0f} ms" for act, spent in found["acted"].items())
            )
    return int(sizes["none"] > 5e6)


if __name__ == "__main__":
    sys.exit(main())
