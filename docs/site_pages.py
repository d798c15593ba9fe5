"""The pages of the site that are not in docs/: an mkdocs hook.

README, CONTRIBUTING, CHANGELOG and the notebook become pages, and so does every file or folder of the
repository that a page links to. Links are rewritten, so that the Markdown files work in the repository and on
the site.
"""

import json
import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from griffe import Attribute, ExprSubscript, ExprTuple, Extension
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page


class PlainTypes(Extension):
    """Shows options without what the command line is built from: `Annotated[str, Option(...)]` is `str`."""

    def on_attribute_instance(self, *, attr: Attribute, **_: Any) -> None:
        annotation = attr.annotation
        if isinstance(annotation, ExprSubscript) and annotation.canonical_name == "Annotated":
            several = annotation.slice
            attr.annotation = several.elements[0] if isinstance(several, ExprTuple) else several


ROOT = Path(__file__).parents[1]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/RESULTS.md": "measurements.md",
    "docs/judging-ten-rows.ipynb": "judging-ten-rows.md",
}
"""Path in the repository to page of the site."""
ORIGINS = {page: path for path, page in PAGES.items()}

_CODE = re.compile(r"(^ {0,3}```.*?^ {0,3}```$|(`+)(?!`).+?(?<!`)\2(?!`))", re.MULTILINE | re.DOTALL)
_PICTURES = (".png", ".svg")
_LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from files outside of docs/, and those that these link to."""
    waiting = [*PAGES, *(f"docs/{file.src_uri}" for file in files.documentation_pages())]
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        page = page_of(path)
        if files.get_file_from_path(page) is None:
            files.append(File.generated(config, page, content=content_of(path)))
        text = files.get_file_from_path(page).content_string  # type: ignore[union-attr]
        for target in targets(text, path):
            if target not in seen:
                seen.add(target)
                waiting.append(target)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of a page to pages of the site."""
    here = page.file.src_uri
    path = ORIGINS.get(here) or (
        here.removeprefix("source/").removesuffix(".md") if is_source(here) else f"docs/{here}"
    )

    def rewritten(link: str) -> str:
        target, mark, anchor = link.partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return link
        there = page_of(posixpath.normpath(posixpath.join(posixpath.dirname(path), target)))
        return posixpath.relpath(there, posixpath.dirname(here)) + mark + anchor

    return outside_code(markdown, lambda text: _LINK.sub(lambda found: rewritten(found[1]), text))


def is_source(page: str) -> bool:
    return page.startswith("source/")


def page_of(path: str) -> str:
    """Return the page of the site that shows a path of the repository."""
    if path in PAGES:
        return PAGES[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else f"source/{path}.md"


def targets(markdown: str, path: str) -> set[str]:
    """Return the paths of the repository that a file links to, except pictures, which mkdocs copies."""
    found: set[str] = set()
    outside_code(markdown, lambda text: found.update(_LINK.findall(text)) or text)
    links = {link.partition("#")[0] for link in found if not re.match(r"[a-z]+:|#", link)}
    paths = {posixpath.normpath(posixpath.join(posixpath.dirname(path), link)) for link in links}
    return {one for one in paths if (ROOT / one).exists() and not one.endswith(_PICTURES)}


def outside_code(markdown: str, change: Callable[[str], str]) -> str:
    """Change the parts of a text that are neither a code block nor inline code."""
    parts = _CODE.split(markdown)
    # Every match adds its two groups to the list: the code and its quotes.
    return "".join(
        change(text) + (code or "") for text, code in zip(parts[::3], [*parts[1::3], ""], strict=True)
    )


def content_of(path: str) -> str:
    """Return a page in Markdown that shows a file or a folder of the repository."""
    place = ROOT / path
    if place.suffix == ".ipynb":
        return notebook(json.loads(place.read_text(encoding="utf-8")))
    if path in PAGES:
        return place.read_text(encoding="utf-8")
    head = f"---\nsearch:\n  exclude: true\n---\n# {path}\n\n"
    if place.is_dir():
        files = [one for one in sorted(place.rglob("*")) if one.is_file() and "__pycache__" not in one.parts]
        return head + "".join(f"## {one.relative_to(place)}\n\n{shown(one)}" for one in files)
    if place.suffix == ".md":
        return head + place.read_text(encoding="utf-8").partition("\n")[2]
    return head + shown(place)


def shown(file: Path) -> str:
    """Return a file as a code block."""
    language = {".py": "python", ".toml": "toml", ".jsonl": "json", ".md": "markdown"}.get(
        file.suffix, "text"
    )
    return f"````{language}\n{file.read_text(encoding='utf-8').strip()}\n````\n\n"


def notebook(document: dict) -> str:
    """Return a notebook in Markdown: its texts, its code and the texts that the code printed."""
    parts = []
    for cell in document["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            printed = output.get("text") or output.get("data", {}).get("text/plain", ())
            parts.append(f"```text\n{''.join(printed).rstrip()}\n```")
    return "\n\n".join(parts) + "\n"
