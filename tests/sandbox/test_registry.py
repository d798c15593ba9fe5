"""Entry points of installed packages are found by name, and errors are reported in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tirjudge_sandbox.registry import Plugins

FRUITS = Plugins("test.fruits", "fruit")


def register(folder: Path, package: str, **entries: str) -> None:
    """Write the metadata of an installed distribution."""
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in entries.items()]
    (info / "entry_points.txt").write_text("\n".join(["[test.fruits]", *lines, ""]))


@pytest.fixture
def garden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    register(tmp_path, "one", pear="builtins:dict", plum="no_such_package:Plum", fig="builtins:Fig")
    return tmp_path


def test_members_are_opened_with_their_options(garden: Path) -> None:
    assert FRUITS.names() == ("fig", "pear", "plum")
    assert FRUITS.open("pear", ripe=True) == {"ripe": True}


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("kiwi", "no fruit 'kiwi'; there are fig, pear, plum"),
        ("plum", "fruit 'plum': cannot import no_such_package:Plum: No module named 'no_such_package'"),
        ("fig", "fruit 'fig': cannot import builtins:Fig: module 'builtins' has no attribute 'Fig'"),
    ],
)
def test_a_member_that_cannot_be_loaded_is_one_line(garden: Path, name: str, line: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        FRUITS.open(name)
    assert str(refused.value) == line


def test_a_name_that_two_packages_register_is_refused(garden: Path) -> None:
    register(garden, "two", pear="builtins:list")
    with pytest.raises(ValueError, match=r"^fruit 'pear' could be several: builtins:dict, builtins:list$"):
        FRUITS.open("pear")
