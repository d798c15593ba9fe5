"""The code blocks of README and docs: every command and every Python block, with its page and line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
LANGUAGES = {"console", "dockerfile", "json", "python", "sh", "text", "toml", "yaml"}
"""Commands are in `sh` blocks, or after `$ ` in `console` blocks; a block of no language could hide one."""

_FENCE = re.compile(r"^ {0,3}```([\w-]*)\n(.*?)^ {0,3}```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"\s+# .*$")


@dataclass(frozen=True)
class Block:
    """A fenced code block."""

    page: str
    """Name of the file."""
    line: int
    """Line of the first line of code."""
    language: str
    code: str

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(pages: tuple[Path, ...] = PAGES) -> Iterator[Block]:
    """Yield the code blocks of pages."""
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for match in _FENCE.finditer(text):
            yield Block(page.name, text.count("\n", 0, match.start()) + 2, match[1], match[2])


def commands(block: Block) -> Iterator[str]:
    """Yield the commands of a block, without comments; continued lines are joined and `&&` is a separator."""
    lines = block.code.replace("\\\n", " ").splitlines()
    if block.language == "console":
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    for line in lines if block.language in ("console", "sh") else ():
        for command in _COMMENT.sub("", line).split(" && "):
            yield " ".join(command.split())


def documented() -> dict[str, str]:
    """Return every command of the documentation with the first place where it is."""
    found: dict[str, str] = {}
    for block in blocks():
        for command in commands(block):
            found.setdefault(command, block.name)
    return found
