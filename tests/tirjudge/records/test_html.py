"""What a notebook shows of a verdict, a dialogue and a batch: the texts as text, whatever they contain."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tirjudge import Judge
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.records.html import MOST_ROWS
from tirjudge_environments import By, Context
from tirjudge_environments.checkers.file import Checker, CheckerFile, Measurement

HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=alert(1)>&amp; \x1b[2J \u202e $x$"
PROGRAM = f"print(len(response_a), len(response_b))  # {HOSTILE[:34]}"


class Seen(HTMLParser):
    """The tags, the attributes and the text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attributes}

    def handle_data(self, data: str) -> None:
        self.text += data


def script(context: Context) -> str:
    if any(one.by is By.SANDBOX for one in context.segments):
        return f"Longer. {HOSTILE} <preference>A</preference>"
    return f"I count.\n```python\n{PROGRAM}\n```\n"


def harmless(shown: Any) -> Seen:
    html = shown._repr_html_()
    seen = Seen(html)
    known = "div p strong em pre details summary table thead tbody tr th td"
    assert {tag for tag in seen.tags if f" {tag} " not in f" {known} "} == set()
    assert seen.attributes <= {"class", "style"}
    assert "\x1b" not in html
    assert "\u202e" not in html
    # Nothing between two dollars is typeset.
    assert 'class="tirjudge tex2jax_ignore mathjax_ignore"' in html
    return seen


@pytest.fixture(scope="module")
def results() -> Any:
    rows = [{"id": HOSTILE, "prompt": HOSTILE, "responses": [HOSTILE, "b"], "label": 1}]
    rows += [{"id": f"row-{n}", "prompt": "p", "responses": ["aa", "b"]} for n in range(MOST_ROWS)]
    rows += [{"prompt": "no responses"}]
    options: dict[str, Any] = {"backend_options": {"preload": []}, "order": "given", "untrained": "tir"}
    with Judge(generator=ScriptedGenerator(script), **options) as judge:
        return judge.batch(rows)


def test_a_verdict_shows_texts_programs_and_outputs(results: Any) -> None:
    text = harmless(results[0]).text
    for shown in ("· wrong", "<script>alert(1)</script>", "\\x1b[2J \\u202e $x$", PROGRAM, "75 1"):
        assert shown in text, shown
    assert "response A (chosen)" in text
    assert "verdict: response A" in text


def test_a_dialogue_shows_the_order_and_the_words_of_the_judge(results: Any) -> None:
    text = harmless(results[0].views[0]).text
    assert "view AB: the judge sees the responses in the order of the row" in text
    assert "I count." in text
    assert "verdict A" in text


def test_a_criterion_that_a_checker_decided_is_no_dialogue_of_the_judge_and_shows_its_audit(
    tmp_path: Path,
) -> None:
    checker = Checker(
        name="comma",
        rule="It has a comma.",
        source="def check(response, prompt):\n    return ',' in response\n",
    )
    measured = Measurement(digest=checker.digest, admitted=True)
    path = tmp_path / "checkers.toml"
    path.write_text(CheckerFile(checkers=(checker.model_copy(update={"measured": measured}),)).text())
    options: dict[str, Any] = {"backend_options": {"preload": []}, "order": "given", "tools": False}
    generator = ScriptedGenerator(lambda context: "<preference>A</preference>")
    with Judge(generator=generator, checkers=str(path), audit=1.0, **options) as judge:
        verdict = judge.compare("p", "a", "a, b", criteria=["It has a comma.", "It is kind."])
    text = harmless(verdict).text
    assert "criterion 1, view 1: checker comma, without the model" in text
    assert "audit: the model disagrees: A satisfied, B not satisfied" in text
    assert text.count("the judge sees") == text.count("criterion 2, view AB") == 1


def test_a_batch_is_a_table_that_names_what_failed_and_ends(results: Any) -> None:
    seen = harmless(results)
    assert "52 rows, 51 with a verdict, 1 failed" in seen.text
    assert "row-48" in seen.text
    assert "row-49" not in seen.text
    assert "and 2 more rows" in seen.text
    failed = type(results)(results.rows[-2:])
    assert "no responses" in harmless(failed).text
