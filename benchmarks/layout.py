"""Layout metrics: file counts, file lengths, root modules and docstring openings of the product code.

python -m benchmarks.layout             # this checkout
python -m benchmarks.layout ../old      # another one, for a comparison
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import statistics
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

PACKAGES = {
    "tirjudge_sandbox": "sandbox/tirjudge_sandbox",
    "tirjudge_environments": "environments/tirjudge_environments",
    "tirjudge": "tirjudge",
    "tirjudge_training": "training/tirjudge_training",
}
PLUGIN_FOLDERS = (
    "formats",
    "benchmarks",
    "protocols",
    "sources",
    "stored_outputs",
    "losses",
    "instruction_checks",
    "adapters",
    "weight_sync",
    "stages",
)
"""Folders whose files are plug-in members, which may be short."""
RIDDLES = re.compile(r"(Of|What|How|Whether|Where|That|Whoever|By|As)\b")
"""Openings that leave the subject of a docstring unnamed."""
PRONOUN_CHAINS = re.compile(r"\b(one that|those that|of them|such a one)\b", re.IGNORECASE)
"""Pronouns in place of a noun."""
SHORT, LONG, LIMIT = 60, 250, 400


def product_files(root: Path) -> Iterator[Path]:
    """Yield the Python files of the four packages, without tests and benchmarks."""
    for folder in PACKAGES.values():
        yield from sorted((root / folder).rglob("*.py"))


def docstrings(module: ast.Module) -> Iterator[str]:
    """Yield the docstrings of a module, its classes and its functions."""
    for node in ast.walk(module):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text


def may_be_short(path: Path) -> bool:
    """Return True for a package's `__init__`, an interface, or a plug-in member."""
    return path.name in ("__init__.py", "base.py") or path.parent.name in PLUGIN_FOLDERS


def metrics(root: Path) -> dict[str, object]:
    """Return the numbers behind CONTRIBUTING's layout rules, by name."""
    files = list(product_files(root))
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    modules = {path: count for path, count in lines.items() if path.name != "__init__.py"}
    texts = [text for path in files for text in docstrings(ast.parse(path.read_text(encoding="utf-8")))]
    short = sorted(
        str(path.relative_to(root))
        for path, count in modules.items()
        if count < SHORT and not may_be_short(path)
    )
    roots = {
        package: len([path for path in (root / folder).glob("*.py") if path.name != "__init__.py"])
        for package, folder in PACKAGES.items()
    }
    comments = sum(
        line.lstrip().startswith("#") for path in files for line in path.read_text("utf-8").splitlines()
    )
    return {
        "files": len(files),
        "lines": sum(lines.values()),
        "modules": len(modules),
        "median lines": statistics.median(modules.values()),
        "90th percentile": statistics.quantiles(modules.values(), n=10)[-1],
        "longest": max(modules.values()),
        f"over {LONG} lines": sum(count > LONG for count in modules.values()),
        f"over {LIMIT} lines": sum(count > LIMIT for count in modules.values()),
        f"under {SHORT} lines": sum(count < SHORT for count in modules.values()),
        f"under {SHORT} lines, no plug-in, base or __init__": len(short),
        "modules at the roots": roots,
        "docstrings": len(texts),
        "docstrings with an unnamed subject": sum(bool(RIDDLES.match(text)) for text in texts),
        "docstrings with a chain of pronouns": sum(bool(PRONOUN_CHAINS.search(text)) for text in texts),
        "their openings": dict(Counter(RIDDLES.findall("\n".join(text.split()[0] for text in texts)))),
        "comment lines, percent": round(100 * comments / sum(lines.values()), 1),
        "short files": short,
    }


def main() -> None:
    """Print the metrics of a checkout."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parent.parent)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    found = metrics(arguments.root)
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    for name, value in found.items():
        if isinstance(value, list):
            print(f"{name}:", *(f"  {item}" for item in value), sep="\n")
        else:
            print(f"{name:<50} {value}")


if __name__ == "__main__":
    main()
