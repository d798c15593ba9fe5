"""A container's labels identify its owner, and whether that process is still alive."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from tirjudge_sandbox.containers.client import Owner

SAY = "from tirjudge_sandbox.containers.client import Owner; print(Owner.current().labels()); input()"


def test_another_process_is_alive_until_it_ends():
    command = [sys.executable, "-c", SAY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        owner = Owner.of(eval(process.stdout.readline()))
        assert owner.pid == str(process.pid)
        assert not owner.dead
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        # A zombie counts as dead.
        assert owner.dead
    assert owner.dead


def test_a_reused_process_id_is_another_process():
    assert replace(Owner.current(), started="1").dead


def test_a_process_from_before_a_reboot_is_dead():
    assert replace(Owner.current(), boot="another").dead


def test_a_process_that_cannot_be_seen_from_here_is_left_alone():
    assert not replace(Owner.current(), started="1", namespace="pid:[1]").dead


HIDING = """
import os, subprocess, sys
from dataclasses import replace
from tirjudge_sandbox.containers.client import Owner

subprocess.run(["mount", "-o", f"remount,hidepid={sys.argv[1]}", "/proc"], check=True)
with subprocess.Popen(["sleep", "60"]) as process:
    stat = open(f"/proc/{process.pid}/stat").read()
    owner = replace(Owner.current(), pid=str(process.pid), started=stat.rpartition(")")[2].split()[19])
    if not os.fork():
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        print(owner.dead, replace(owner, pid="4194304").dead, flush=True)
        os._exit(0)
    os.wait()
    process.kill()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("hidepid", ["1", "2"])
def test_a_process_that_proc_hides_from_other_users_is_left_alone(hidepid):
    """With this option of /proc, processes of other users look as if they had ended."""
    command = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", sys.executable, "-c", HIDING, hidepid]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("False True\n", "")
