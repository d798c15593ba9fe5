"""Links, paths and module names in README, CONTRIBUTING and docs exist."""

import fnmatch
import re
from collections.abc import Iterator
from pathlib import Path

from benchmarks.sandbox_latency.__main__ import SUITE as SANDBOX
from benchmarks.training_step.__main__ import SUITE as TRAINING
from tests.rows import each_row

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/RESULTS.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
FOLDERS = (
    ".ci",
    "benchmarks",
    "docs",
    "environments",
    "examples",
    "sandbox",
    "tests",
    "tirjudge",
    "training",
)
PACKAGES = {
    "benchmarks": ROOT,
    "tests": ROOT,
    "tirjudge": ROOT,
    "tirjudge_environments": ROOT / "environments",
    "tirjudge_sandbox": ROOT / "sandbox",
    "tirjudge_training": ROOT / "training",
}
GROUPS = set(re.findall(r"`(tirjudge\.\w+)`", (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")))
"""Entry-point groups, which look like modules."""
COMPARISONS = [*SANDBOX.names, *TRAINING.names]
"""Names of comparisons with peers, which look like paths."""

_FENCE = re.compile(r"^ {0,3}```[\w-]*\n.*?^ {0,3}```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(`+)(.+?)\1", re.DOTALL)
_REMOVED = re.compile(r"`[^`\n]+` at commit [0-9a-f]{8}\b")
"""A command that was removed after its measurement, with the last commit that has it."""
_PATH = re.compile(rf"(?<![\w./~-])(?:{'|'.join(map(re.escape, FOLDERS))})/[\w./*-]+")
_MODULE = re.compile(rf"(?<![\w./\"'-])(?:{'|'.join(PACKAGES)})(?:\.\w+)+")
_IMPORT = re.compile(
    rf"^from ((?:{'|'.join(PACKAGES)})(?:\.\w+)*) import (?:\(([^)]*)\)|(.*))$", re.MULTILINE
)


def links(text: str) -> Iterator[str]:
    """Yield the targets of links outside of code."""
    prose = _INLINE.sub("", _FENCE.sub("", text))
    yield from re.findall(r"\]\(([^)\s]+)\)", prose)


def code(text: str) -> str:
    """Return inline code and code blocks, one after the other, without commands of earlier commits."""
    text = _REMOVED.sub("", text)
    blocks = [match.group() for match in _FENCE.finditer(text)]
    return "\n".join([*blocks, *(match[2] for match in _INLINE.finditer(_FENCE.sub("", text)))])


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub names them, and those of the reference's objects."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return set(re.findall(r"^::: (\S+)", text, re.MULTILINE)) | {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings
    }


def missing_name(dotted: str) -> str:
    """Return the part of a dotted name that does not exist; empty if all of it does.

    Modules are found by their files and members by their names in the source, so no extra is needed.
    """
    top, *rest = dotted.split(".")
    place = PACKAGES[top] / top
    for number, name in enumerate(rest):
        if (place / name).is_dir():
            place /= name
            continue
        module = place / f"{name}.py"
        member = rest[number + 1 : number + 2] if module.exists() else [name]
        source = (module if module.exists() else place / "__init__.py").read_text(encoding="utf-8")
        return next((one for one in member if not re.search(rf"\b{one}\b", source)), "")
    return ""


@each_row("page", PAGES)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    broken = []
    for link in links(page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


@each_row("page", PAGES)
def test_every_path_in_code_exists(page: Path) -> None:
    found = {path.rstrip("./") for path in _PATH.findall(code(page.read_text(encoding="utf-8")))}
    found.discard("tirjudge/tirjudge_scorer")  # Inspect's name of a scorer
    found -= {path for path in found if fnmatch.filter(COMPARISONS, path)}
    # NAME is a placeholder: at least one file must have such a name.
    patterns = {path: re.sub(r"\*+", "*", path.replace("NAME", "*")) for path in found}
    assert sorted(path for path, pattern in patterns.items() if not any(ROOT.glob(pattern))) == []


@each_row("page", PAGES)
def test_every_module_and_imported_name_exists(page: Path) -> None:
    text = code(page.read_text(encoding="utf-8"))
    names = set(_MODULE.findall(text)) - GROUPS - {"tirjudge.json", "tirjudge.__file__"}
    for module, several, single in _IMPORT.findall(text):
        listed = [name.split(" as ")[0].strip() for name in (several or single).split(",")]
        names |= {f"{module}.{name}" for name in listed if name}
    assert sorted(name for name in names if missing_name(name)) == []
