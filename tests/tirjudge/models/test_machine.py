"""The free memory of a machine and of a container, read from files as Linux writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tirjudge.models import machine
from tirjudge_sandbox.workers import memory_group

GIB = 2**30


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the control groups of a machine with 8 GiB that are available."""
    (tmp_path / "meminfo").write_text(f"MemTotal: 999 kB\nMemAvailable:    {8 * 2**20} kB\n")
    monkeypatch.setattr(machine, "MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(memory_group, "_ROOT", tmp_path / "cgroup")
    monkeypatch.setattr(machine, "OWN_GROUPS", tmp_path / "own")
    (tmp_path / "own").write_text("0::/\n")
    return tmp_path / "cgroup"


def version_2(group: Path, limit: str, use: int) -> None:
    group.mkdir(parents=True, exist_ok=True)
    (group / "memory.max").write_text(f"{limit}\n")
    (group / "memory.current").write_text(f"{use}\n")
    parts = f"anon 7\nfile {2 * GIB}\nshmem {GIB}\ninactive_file {GIB // 2}\nactive_file {GIB // 2}\n"
    (group / "memory.stat").write_text(parts)


def test_a_machine_without_a_limit_has_what_linux_says_is_available(groups: Path) -> None:
    assert machine.free_memory() == 8 * GIB
    version_2(groups, "max", 3 * GIB)
    assert machine.free_memory() == 8 * GIB


def test_a_container_has_its_limit_less_what_it_cannot_give_back(groups: Path) -> None:
    version_2(groups, str(6 * GIB), 4 * GIB)
    assert machine.free_memory() == 3 * GIB, "one of the four GiB in use is of files that are on disk"
    version_2(groups, str(64 * GIB), 4 * GIB)
    assert machine.free_memory() == 8 * GIB, "the machine has less"


def test_a_service_has_the_least_of_its_groups(groups: Path, tmp_path: Path) -> None:
    (tmp_path / "own").write_text("0::/system.slice/judge.service\n")
    version_2(groups / "system.slice" / "judge.service", "max", GIB)
    version_2(groups / "system.slice", str(5 * GIB), 3 * GIB)
    version_2(groups / "other.slice", str(GIB), GIB)
    assert machine.free_memory() == 3 * GIB


@pytest.mark.parametrize("own", ["/docker/0123", "/"], ids=["the path on the host", "its own path"])
def test_control_groups_of_version_1_count_their_children(groups: Path, tmp_path: Path, own: str) -> None:
    (tmp_path / "own").write_text(f"5:cpu,cpuacct:/\n4:memory:{own}\n0::/\n")
    (groups / "memory").mkdir(parents=True)
    for name, text in {"limit_in_bytes": f"{6 * GIB}\n", "usage_in_bytes": f"{5 * GIB}\n"}.items():
        (groups / "memory" / f"memory.{name}").write_text(text)
    parts = f"inactive_file 0\nactive_file 9\ntotal_inactive_file {GIB}\ntotal_active_file {GIB}\n"
    (groups / "memory" / "memory.stat").write_text(parts)
    assert machine.free_memory() == 3 * GIB
