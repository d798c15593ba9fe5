"""The documentation page links every tested example."""

from __future__ import annotations

from tests.environments.adapters.examples import FOLDER

PAGE = (FOLDER.parents[1] / "docs" / "embedding.md").read_text()


def test_the_page_links_every_example() -> None:
    examples = [path for path in FOLDER.rglob("*.py") if path.name != "__init__.py"]
    assert examples
    assert [
        path.name
        for path in examples
        if f"[{path.name}](../{path.relative_to(FOLDER.parents[1])})" not in PAGE
    ] == []
