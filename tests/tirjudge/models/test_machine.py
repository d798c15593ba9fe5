"""The free memory of a machine and of a container, read from files as Linux writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tirjudge.models import machine

GIB = 2**30


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the control groups of a machine with 8 GiB that are available."""
    (tmp_path / "meminfo").write_text(f"MemTotal: 999 kB\nMemAvailable:    {8 * 2**20} kB\n")
    monkeypatch.setattr(machine, "MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(machine, "CGROUPS", tmp_path / "cgroup")
    (tmp_path / "cgroup" / "memory").mkdir(parents=True)
    return tmp_path / "cgroup"


def version_2(groups: Path, limit: str, use: int) -> None:
    (groups / "memory.max").write_text(f"{limit}\n")
    (groups / "memory.current").write_text(f"{use}\n")
    (groups / "memory.stat").write_text(f"anon 7\nfile {3 * GIB}\ninactive_file {GIB}\nactive_file 5\n")


def test_a_machine_without_a_limit_has_what_linux_says_is_available(groups: Path) -> None:
    assert machine.free_memory() == 8 * GIB
    version_2(groups, "max", 3 * GIB)
    assert machine.free_memory() == 8 * GIB


def test_a_container_has_its_limit_less_what_it_cannot_give_back(groups: Path) -> None:
    version_2(groups, str(6 * GIB), 4 * GIB)
    assert machine.free_memory() == 3 * GIB, "one of the four GiB in use is of files"
    version_2(groups, str(64 * GIB), 4 * GIB)
    assert machine.free_memory() == 8 * GIB, "the machine has less"


def test_a_container_that_is_full_has_none(groups: Path) -> None:
    version_2(groups, str(2 * GIB), 4 * GIB)
    assert machine.free_memory() == 0


def test_control_groups_of_version_1_count_their_children(groups: Path) -> None:
    for name, text in {
        "limit_in_bytes": f"{6 * GIB}\n",
        "usage_in_bytes": f"{5 * GIB}\n",
    }.items():
        (groups / "memory" / f"memory.{name}").write_text(text)
    parts = f"inactive_file 0\nactive_file 9\ntotal_inactive_file {GIB}\ntotal_active_file 9\n"
    (groups / "memory" / "memory.stat").write_text(parts)
    assert machine.free_memory() == 2 * GIB
