"""Fuzzing of the wire protocol: whatever a worker or program sends, results are true and costs bounded."""

from __future__ import annotations

import asyncio
import json
import os
import socket

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tirjudge_sandbox import Isolation, Limits, Program, Status
from tirjudge_sandbox.guest import scratch, wire
from tirjudge_sandbox.guest.wire import Ending, Payload, sealed
from tirjudge_sandbox.workers.worker import Worker

quick = settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
few = settings(quick, max_examples=60)

seconds = st.floats(0, 1e12, allow_subnormal=False)
statuses = st.one_of(
    st.integers(0, 255).map(lambda code: code << 8),
    st.integers(1, 64),
    st.integers(1, 64).map(lambda n: n | 128),
)
reasons = st.sampled_from([None, Ending.WALL, Ending.CPU, Ending.MEMORY, Ending.CANCELLED])
endings = st.builds(Ending, reasons, statuses, seconds, seconds, st.integers(0, 2**60))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


nearly_endings = st.builds(
    lambda ending, change: json.dumps({**json.loads(ending.pack()), **change}).encode(),
    endings,
    st.dictionaries(st.sampled_from([*Ending.__annotations__, "more"]), values, min_size=1),
)
records = st.one_of(
    st.binary(max_size=wire.RECORD_BYTES),
    values.map(lambda value: json.dumps(value).encode()),
    nearly_endings,
    st.builds(lambda ending, end: ending.pack()[:end], endings, st.integers(0, 90)),
    st.sampled_from([b"[" * wire.RECORD_BYTES, b"9" * wire.RECORD_BYTES, b"{" * 99, b"null", b"cancel"]),
)


@pytest.mark.slow
@quick
@given(records)
def test_bytes_that_are_not_an_ending_are_refused(record):
    try:
        ending = Ending.unpack(record)
    except ValueError:
        return
    assert -64 <= os.waitstatus_to_exitcode(ending.wait_status) <= 255 or ending.wait_status < 256
    assert ending.wall_seconds >= 0
    assert ending.cpu_seconds >= 0


texts = st.text(st.characters(), max_size=50)


@few
@given(
    st.binary(),
    st.dictionaries(texts, values),
    st.dictionaries(texts, st.binary()),
    st.lists(texts),
    st.integers(),
)
def test_a_payload_arrives_as_it_was_sent(source, bindings, files, fetch, seed):
    descriptor = Payload.seal(source, json.dumps(bindings), files, tuple(fetch), seed)
    try:
        read = Payload.read(descriptor)
        assert (read.source, read.fetch, read.seed) == (source, tuple(fetch), seed)
        # As texts, since NaN does not equal itself.
        assert json.dumps(json.loads(read.bindings)) == json.dumps(bindings)
        found = {path: os.pread(descriptor, size, start) for path, (start, size) in read.files.items()}
        assert found == files
        with pytest.raises(PermissionError):
            os.pwrite(descriptor, b"x", 0)
    finally:
        os.close(descriptor)


@quick
@given(st.lists(texts, max_size=5).map(tuple), st.binary(max_size=200))
def test_a_record_of_files_gives_no_more_than_it_holds(paths, record):
    descriptor = sealed(record)
    try:
        files = scratch.fetched(paths, descriptor)
    except ValueError:
        return
    finally:
        os.close(descriptor)
    assert sum(map(len, files.values())) <= len(record)
    assert set(files) <= set(paths)


ISOLATION = Isolation(
    placement="none", host_files_hidden=True, network_cut=True, processes_contained=True, calls_filtered=True
)


async def answered(record: bytes, given: bytes = b"", *, size: int | None = None, printed: bytes = b""):
    """Return the host's result for a worker that writes to its descriptors and then answers with `record`."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)

    async def end() -> None:
        theirs.close()

    worker = Worker(ours, ISOLATION, 1 << 20, end)
    limits = Limits(disk_bytes=1000, output_bytes=1000)
    running = asyncio.ensure_future(worker.run(Program(source="", fetch=("a", "b")), limits))
    await asyncio.sleep(0)
    _, descriptors, _, _ = socket.recv_fds(theirs, wire.RECORD_BYTES, 9)
    _, _, stdout, _, files = descriptors
    os.write(stdout, printed)
    os.write(files, given)
    if size is not None:
        os.truncate(files, size)
    for descriptor in descriptors:
        os.close(descriptor)
    theirs.send(record) if record else theirs.shutdown(socket.SHUT_RDWR)
    try:
        return await asyncio.wait_for(running, 10)
    finally:
        await worker.kill()


@pytest.mark.slow
@quick
@given(record=records, files=st.binary(max_size=100), printed=st.binary(max_size=3000))
async def test_a_broken_worker_is_a_failed_sandbox_and_nothing_worse(record, files, printed):
    execution = await answered(record, files, printed=printed)
    if execution.status is Status.SANDBOX_FAILED:
        assert execution.detail
    else:
        assert Ending.unpack(record)
        assert sum(map(len, execution.files.values())) <= len(files)
    assert len(execution.stdout) <= 1000


@pytest.mark.parametrize("size", [1 << 40, 1 << 62, 1017])
async def test_a_worker_that_gives_more_files_than_a_program_may_write(size):
    execution = await answered(Ending(None, 0, 0, 0, 0).pack(), b"", size=size)
    assert (execution.status, execution.files) == (Status.SANDBOX_FAILED, {})


@few
@given(content=st.binary(max_size=300))
@pytest.mark.asyncio(loop_scope="module")
async def test_a_garbled_payload_costs_its_program_alone(box, content):
    """Only the program's own process reads the payload, under its limits; no length in it allocates much."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Payload, "seal", lambda *_: wire.sealed(content))
        execution = await box.run(Program(source="print('ran')"), Limits())
    assert (execution.status, execution.stdout) == (Status.ERROR, "")
    assert execution.max_rss_bytes < 256 << 20
    assert (await box.run(Program(source="print('ran')"), Limits())).stdout == "ran\n"


PRINTED = st.one_of(
    st.binary(max_size=200),
    endings.map(Ending.pack),
    st.sampled_from(
        [b"cancel", b"\x00" * 64, b"sandbox_failed", b"Traceback (most recent call last):", b"\xff\n"]
    ),
)


@pytest.mark.slow
@few
@given(
    printed=st.lists(st.tuples(st.sampled_from([1, 2]), PRINTED), max_size=4),
    end=st.one_of(
        st.integers(0, 255).map(lambda code: ("exit", code)),
        st.sampled_from([6, 9, 11, 15, 24, 30]).map(lambda number: ("signal", number)),
    ),
)
@pytest.mark.asyncio(loop_scope="module")
async def test_the_kernel_reports_the_end_whatever_a_program_prints(target, printed, end):
    way, number = end
    last = f"os._exit({number})" if way == "exit" else f"os.kill(os.getpid(), {number})"
    writes = "".join(f"os.write({stream}, {content!r})\n" for stream, content in printed)
    execution = await target.run(Program(source=f"import os\n{writes}{last}"), Limits())
    if way == "exit":
        wanted = (Status.ERROR if number else Status.OK, number, None)
    else:
        wanted = (Status.SIGNAL, None, number)
    assert (execution.status, execution.exit_code, execution.signal) == wanted
    stdout = b"".join(content for stream, content in printed if stream == 1)
    assert (execution.stdout, execution.truncated) == (stdout.decode("utf-8", "replace"), False)
    assert 0 < execution.cpu_seconds < Limits().cpu_seconds
    assert 0 < execution.wall_seconds < Limits().wall_seconds
