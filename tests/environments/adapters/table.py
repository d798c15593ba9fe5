"""Print, per adapter and scripted dialogue, whether the framework's rollout equals that of our own engine.

    python -m tests.environments.adapters.table

runs each adapter's tests where `.ci/frameworks` installed its framework (TRL: in this environment).
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from tests.environments.adapters.dialogues import SCRIPTS, Script, ours, outcome, settings

ROOT = Path(__file__).parents[3]
SAME = "test_a_dialogue_is_the_same_as_in_our_engine"
PYTHONS = {"trl": Path(sys.executable)} | {
    name: ROOT / f".venv-{name}" / "bin" / "python" for name in ("verl", "verifiers", "openenv", "skyrl")
}


def verdicts(name: str) -> dict[str, str]:
    """Return `same` or `differs` for each script; empty if the framework is not installed."""
    if not PYTHONS[name].exists():
        print(f"{name} is not installed: .ci/frameworks {name}", file=sys.stderr)
        return {}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        file = f"tests/environments/adapters/test_{name}.py"
        command = [PYTHONS[name], "-m", "pytest", "-W", "default", "-k", SAME, f"--junitxml={report}", file]
        subprocess.run(command, cwd=ROOT, stdout=sys.stderr, check=False)
        return dict(_cases(report))


def _cases(report: Path) -> Iterator[tuple[str, str]]:
    for case in ElementTree.parse(report).iter("testcase"):
        script = case.attrib["name"].removeprefix(f"{SAME}[").removesuffix("]")
        yield script, "differs" if len(case) else "same"


async def our_cells(script: Script) -> list[str]:
    """Return the cells of our own engine: number of outputs, the reward and its parts."""
    plain = settings(**script.changes)
    made = outcome(script, plain, await ours(script, plain))
    parts = ", ".join(f"{name} {value:g}" for name, value in made.parts.items())
    return [script.name, str(len(made.observations)), f"{made.total:g}", parts]


def main() -> None:
    found = {name: verdicts(name) for name in PYTHONS}
    rows = [["dialogue", "outputs", "reward", "its parts", *found]]
    rows.append(["---"] * len(rows[0]))
    for script in SCRIPTS:
        cells = asyncio.run(our_cells(script))
        rows.append([*cells, *(each.get(script.name, "not played") for each in found.values())])
    for row in rows:
        print("|", " | ".join(row), "|")


if __name__ == "__main__":
    main()
