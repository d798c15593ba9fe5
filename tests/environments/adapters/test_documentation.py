"""The documentation page shows exactly the tested examples."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.environments.adapters.examples import FOLDER

PAGE = (FOLDER.parents[1] / "docs" / "embedding.md").read_text()


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: path.name)
def test_the_page_shows_every_example_unchanged(path: Path) -> None:
    assert f"```python\n{path.read_text()}```" in PAGE
    assert f"[{path.relative_to(FOLDER)}](../{path.relative_to(FOLDER.parents[1])})" in PAGE
