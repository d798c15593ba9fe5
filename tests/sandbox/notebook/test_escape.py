"""Attacks by a notebook: sockets to the host, forged reports, and floods on the client's channel."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tirjudge_sandbox import Program, Status, open_sandbox
from tirjudge_sandbox.notebook.cells import CellStatus, NotebookLimits
from tirjudge_sandbox.notebook.jupyter import JupyterSandbox
from tirjudge_sandbox.notebook.kernel import LENGTH
from tirjudge_sandbox.notebook.running_kernel import Channel, ChannelBroken, Outputs
from tirjudge_sandbox.workers.host import candidate_placements

pytestmark = pytest.mark.asyncio(loop_scope="module")

CONNECT = """
import socket
end = socket.socket(socket.AF_UNIX)
end.connect({address!r})
"""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def jupyter() -> AsyncIterator[JupyterSandbox]:
    async with open_sandbox("jupyter", capacity=1, preload=()) as box:
        yield box


async def test_all_properties_hold_although_programs_may_make_sockets(jupyter):
    ran = await jupyter.run(Program(source="import socket; socket.socket(socket.AF_UNIX).listen"))
    assert (ran.status, ran.isolation.missing) == (Status.OK, ())
    assert ran.isolation.placement in ("root", "userns")


@pytest.mark.parametrize("address", ["path", "\0abstract-of-the-host"])
async def test_the_hosts_own_sockets_are_out_of_reach(jupyter, tmp_path, address):
    address = str(tmp_path / "listening") if address == "path" else address
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        listening.settimeout(0)
        ran = await jupyter.run(Program(source=CONNECT.format(address=address)))
        assert ran.status is Status.ERROR
        assert ran.stderr.splitlines()[-1].split(":")[0] in (
            "FileNotFoundError",
            "PermissionError",
            "ConnectionRefusedError",
        )
        with pytest.raises(BlockingIOError):
            listening.accept()


@pytest.mark.parametrize(
    "kind",
    ["AF_INET", "AF_INET6", "AF_NETLINK", "AF_PACKET", "AF_VSOCK", "AF_UNIX, socket.SOCK_DGRAM",
     "AF_UNIX, socket.SOCK_SEQPACKET", "AF_UNIX, socket.SOCK_RAW"],
)  # fmt: skip
async def test_other_sockets_are_refused(jupyter, kind):
    ran = await jupyter.run(Program(source=f"import socket; socket.socket(socket.{kind})"))
    assert ran.stderr.splitlines()[-1] == "OSError: [Errno 22] Invalid argument"


async def test_the_scheduling_priority_cannot_be_changed(jupyter):
    ran = await jupyter.run(Program(source="import os; os.sched_setscheduler(0, 3, os.sched_param(0))"))
    assert ran.stderr.splitlines()[-1] == "PermissionError: [Errno 1] Operation not permitted"


async def test_a_placement_without_namespaces_is_refused():
    for name in set(candidate_placements()) - {"root", "userns"}:
        with pytest.raises(RuntimeError, match="cannot be isolated here"):
            async with open_sandbox("jupyter", capacity=1, placement=name):
                pass


FORGING = """
kernel = get_ipython().kernel
execute = kernel.do_execute
async def pretend(code, *rest, **more):
    return await execute("0", *rest, **more)
kernel.do_execute = pretend
"""


async def test_a_cell_can_forge_its_status_which_is_marked_as_unverified(jupyter):
    async with jupyter.notebook() as notebook:
        await notebook.run(FORGING)
        forged = await notebook.run("1/0")
    assert (forged.status, forged.by) == (CellStatus.OK, "kernel")


async def test_a_thread_that_outlives_its_cell_adds_nothing_to_the_next(jupyter):
    limits = NotebookLimits(output_bytes=2000)
    async with jupyter.notebook(limits=limits) as notebook:
        await notebook.run("import threading, time\ndef late():\n    time.sleep(0.3)\n    print('late')\n"
                           "threading.Thread(target=late).start()")  # fmt: skip
        await asyncio.sleep(0.6)
        assert "late" not in (await notebook.run("print('next')")).stdout


MALFORMED = """
shell = get_ipython()
session, stream, parent = shell.kernel.session, shell.kernel.iopub_socket, shell.kernel.get_parent()
session.send(stream, "display_data", {"data": 1}, parent=parent)
forged = {"ename": "Forged", "evalue": "", "traceback": []}
session.send(stream, "error", forged, parent=parent)
session.send(stream, "stream", {"name": "stdout", "text": "of the cell before"}, parent=parent)
"""


async def test_nothing_of_a_cell_with_a_malformed_message_reaches_the_next(jupyter):
    async with jupyter.notebook() as notebook:
        malformed = await notebook.run(MALFORMED)
        assert (malformed.status, malformed.by) == (CellStatus.KERNEL_DIED, "sandbox")
        await asyncio.sleep(0.3)  # the other messages arrive
        honest = await notebook.run("print('honest')")
    assert (honest.status, honest.stdout, honest.error) == (CellStatus.OK, "honest\n", None)
    assert honest.restarted


FRAMES = [
    (b"\xff\xff\xff\xff", "it sent a message of 4294967295 bytes"),
    (LENGTH.pack(3) + b"[1]", "it sent a message that is not an object"),
    (LENGTH.pack(4) + b"\xff\xfe\xfd\xfc", "it sent a message that cannot be read"),
    (LENGTH.pack(900) + b"[" * 900, "it sent a message that cannot be read"),
    (LENGTH.pack(5_001) + b"9" * 5_001, "it sent a message that cannot be read"),
]


@pytest.mark.parametrize(("sent", "words"), FRAMES)
async def test_nonsense_on_the_channel_is_one_kind_of_error(sent, words):
    ours, theirs = socket.socketpair()
    channel = await Channel.over(ours, 10_000)
    with theirs:
        theirs.sendall(sent)
        with pytest.raises(ChannelBroken, match=words):
            await channel.receive()
    channel.close()


async def test_a_display_that_is_nested_too_deeply_is_a_malformed_message():
    """JSON can be read some levels deeper than it can be written."""
    nested: list[object] = []
    for _ in range(2000):
        nested = [nested]
    with pytest.raises(ChannelBroken, match="malformed message"):
        Outputs(10_000).add({"kind": "display", "data": {"application/json": nested}})


async def test_lone_surrogates_and_infinities_become_valid_json():
    ours, theirs = socket.socketpair()
    channel = await Channel.over(ours, 10_000)
    content = rb'{"text": "a\ud800b", "numbers": [NaN, 1e999, 1.5]}'
    with theirs:
        theirs.sendall(LENGTH.pack(len(content)) + content)
        assert await channel.receive() == {"text": "a?b", "numbers": ["NaN", "1e999", 1.5]}
    assert await channel.receive() is None
    channel.close()
