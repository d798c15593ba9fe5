"""The documentation site: built without a warning, complete, and without anything from another host."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlparse

import pytest
from markdown_it import MarkdownIt

import tirjudge
import tirjudge_environments
import tirjudge_sandbox
import tirjudge_training
from tests.docs.blocks import PAGES, ROOT

pytestmark = pytest.mark.slow

LOADED = {"img": "src", "iframe": "src", "link": "href", "script": "src", "source": "src"}
"""Elements that make a browser load something, with the attribute that says what."""
COUNTED = {"h2", "h3", "li", "ol", "pre", "table", "td", "th", "tr", "ul"}
FORMATS = {
    name
    for name in tirjudge_environments.__all__
    if name.startswith(("J1", "JudgeLrm", "Tir", "RmR1", "Rationale"))
}
"""The papers' formats, which docs/judges.md describes by their names on the command line."""


class Elements(HTMLParser):
    """The elements of a page: counts inside the article, addresses that are loaded, links and ids."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()
        self._article = False
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self._article |= tag == "article"
        self.counts[tag] += self._article and tag in COUNTED
        self.ids.add(values.get("id") or "")
        if tag in LOADED and values.get("rel") != "canonical":
            self.loaded.append(values.get(LOADED[tag]) or "")
        if tag == "a" and values.get("href"):
            self.links.append(values["href"] or "")

    def handle_endtag(self, tag: str) -> None:
        self._article &= tag != "article"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Elements]:
    return {page: Elements(page) for page in site.rglob("*.html")}


def test_nothing_is_loaded_from_another_host(site: Path, pages: dict[Path, Elements]) -> None:
    assert len(pages) > 30
    loaded = {address for elements in pages.values() for address in elements.loaded}
    assert {address for address in loaded if urlparse(address).netloc} == set()
    styles = "".join(sheet.read_text(encoding="utf-8") for sheet in site.rglob("*.css"))
    assert not re.search(r"url\(['\"]?(https?:)?//", styles)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_read_as_on_github(page: Path, pages: dict[Path, Elements], site: Path) -> None:
    """Python's Markdown differs from GitHub's: a list needs an empty line before it, for example."""
    name = {"README.md": "index.html"}.get(page.name, f"{page.stem}.html")
    tokens = MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))
    wanted = Counter(token.tag for token in tokens if token.nesting == 1 and token.tag in COUNTED)
    wanted["pre"] = sum(token.type in ("fence", "code_block") for token in tokens)
    assert +pages[site / name].counts == +wanted


@pytest.mark.parametrize(
    "package",
    [tirjudge, tirjudge_environments, tirjudge_sandbox, tirjudge_training],
    ids=lambda one: one.__name__,
)
def test_the_reference_has_every_public_name(package: object, pages: dict[Path, Elements]) -> None:
    documented = {
        one for page, elements in pages.items() if page.parent.name == "reference" for one in elements.ids
    }
    names = set(package.__all__) - FORMATS - {"__version__"}  # type: ignore[attr-defined]
    assert {name for name in names if f"{package.__name__}.{name}" not in documented} == set()  # type: ignore[attr-defined]
