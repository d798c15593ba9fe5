"""A local mirror of the hub with small datasets in the schema of the real ones, for the real `datasets`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Part = tuple[str, str]
"""(configuration, split)."""


class Hub:
    """A folder of datasets as `owner/name`, each with the card front matter that the library reads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, dataset: str, parts: Mapping[Part, Iterable[Mapping[str, Any]]]) -> None:
        place = self.folder / dataset
        (place / "data").mkdir(parents=True)
        splits: dict[str, list[tuple[str, str]]] = {}
        for (configuration, split), rows in parts.items():
            file = f"data/{configuration}-{split}.jsonl"
            (place / file).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
            splits.setdefault(configuration, []).append((split, file))
        head = ["---", "configs:"]
        for configuration, files in splits.items():
            head += [f"- config_name: {configuration}", "  data_files:"]
            head += [f"  - split: {split}\n    path: {file}" for split, file in files]
        (place / "README.md").write_text("\n".join([*head, "---", ""]), encoding="utf-8")
