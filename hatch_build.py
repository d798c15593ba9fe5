"""The description on PyPI: README without links to files of the repository, which do not exist there."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE = re.compile(r"(?<!!)\[([^]]+)\]\((?![a-z]+:)[^)\s]+\)")


def description(readme: str) -> str:
    """Replace relative links by their texts, outside of code blocks."""
    parts = re.split(r"(^```.*?^```$)", readme, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _RELATIVE.sub(r"\1", part) for part in parts)


class CustomMetadataHook(MetadataHookInterface):
    """Adds the description to the metadata when a wheel or an sdist is built."""

    def update(self, metadata: dict[str, Any]) -> None:
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": description(readme)}
