"""The remote sandbox: the contract of every backend, and the effect of a server's failure on a program."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.sandbox.serving import Served, serving
from tirjudge_sandbox import Isolation, Limits, Program, SandboxUnavailable, Status, open_sandbox
from tirjudge_sandbox.remote import RemoteSandbox
from tirjudge_sandbox.server.guard import Access, App, Receive, RequestRefused, Scope, Send
from tirjudge_sandbox.server.intake import IntakeLimits
from tirjudge_sandbox.server.settings import ServerSettings
from tirjudge_sandbox.testing import CHECKS, time_limits_end_a_program

FUSION_CANNOT = {
    "output_is_cut_and_marked": "it takes no limit of output: ours ends a program at its own, theirs goes on"
}
TOKEN = "0123456789abcdef"


class Front:
    """A proxy in front of a server: answers some requests itself, and counts those that run programs."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        """Given to the next requests that run programs, in order."""
        self.ours = True
        """False: the server does not know what only our server knows."""
        self.asked = 0

    def __call__(self, app: App) -> App:
        async def fronted(scope: Scope, receive: Receive, send: Send) -> None:
            refused = self._refused(scope)
            await (refused.send(send) if refused else app(scope, receive, send))

        return fronted

    def _refused(self, scope: Scope) -> RequestRefused | None:
        if scope["method"] == "POST":
            self.asked += 1
            if self.statuses:
                return RequestRefused(self.statuses.pop(0), "not now", {"retry-after": "0"})
        return RequestRefused(404, "Not Found") if scope["path"] == "/v1/info" and not self.ours else None


@pytest.fixture(scope="module")
def front() -> Front:
    return Front()


@pytest.fixture(scope="module")
def served(front: Front) -> Iterator[Served]:
    with serving(front=front) as served:
        yield served


@pytest_asyncio.fixture
async def box(served: Served, front: Front) -> AsyncIterator[RemoteSandbox]:
    front.statuses, front.ours = [], True
    async with open_sandbox("remote", url=served.url) as box:
        front.asked = 0
        yield box


@pytest_asyncio.fixture
async def fusion(served: Served, front: Front) -> AsyncIterator[RemoteSandbox]:
    """Serve like SandboxFusion does: only `/run_code`, without a report of the isolation."""
    front.ours = False
    async with RemoteSandbox(served.url, capacity=1, allow_weak_isolation=True) as box:
        front.ours = True
        yield box


@pytest.mark.parametrize(
    "check",
    [
        # Local sandboxes pass it each time.
        pytest.param(check, marks=pytest.mark.slow) if check is time_limits_end_a_program else check
        for check in CHECKS
    ],
    ids=lambda check: check.__name__,
)
async def test_this_projects_server_passes_the_conformance_checks(box: RemoteSandbox, check) -> None:
    await check(box)


@pytest.mark.slow
@pytest.mark.parametrize(
    "check",
    [check for check in CHECKS if check.__name__ not in FUSION_CANNOT],
    ids=lambda check: check.__name__,
)
async def test_a_sandbox_fusion_server_passes_the_checks_without_isolation(
    fusion: RemoteSandbox, check
) -> None:
    await check(fusion)


async def test_every_field_of_an_execution_arrives(box: RemoteSandbox) -> None:
    limits = Limits(
        wall_seconds=9, cpu_seconds=3, memory_bytes=200 << 20, output_bytes=5000, disk_bytes=1 << 20
    )
    ran = await box.run(Program(source="import os; os.kill(os.getpid(), 15)", seed=2**63), limits)
    assert (ran.status, ran.exit_code, ran.signal, ran.detail) == (Status.SIGNAL, None, 15, "")
    assert ran.wall_seconds > 0
    assert ran.max_rss_bytes > 0
    assert isinstance(ran.isolation, Isolation)
    assert ran.isolation.missing == ()
    ran = await box.run(Program(source="import sys; sys.stdout.write('x' * 5005)"), limits)
    assert (ran.status, ran.truncated, ran.kept_bytes, ran.cut_bytes) == (Status.OUTPUT_LIMIT, True, 5000, 5)


async def test_limits_above_the_servers_are_a_callers_error(box: RemoteSandbox) -> None:
    with pytest.raises(ValueError, match=r"limits.wall_seconds: is 1000, at most 120 is allowed"):
        await box.run(Program(source=""), Limits(wall_seconds=1000))
    with pytest.raises(ValueError, match="not a path inside"):
        await box.run(Program(source="", files={"../x": b""}))


@pytest.mark.slow
async def test_equal_files_are_sent_once(box: RemoteSandbox) -> None:
    """Three times 60 MiB in base64 would be more than the server takes."""
    table = b"1,2\n" * (60 << 18)
    source = "print(*(open(f'{name}/t.csv').seek(0, 2) >> 20 for name in 'abc'), open('b/x').read())"
    files = {"a/t.csv": table, "b/t.csv": table, "c/t.csv": bytes(bytearray(table)), "b/x": b"x"}
    ran = await box.run(Program(source=source, files=files), Limits(disk_bytes=256 << 20, wall_seconds=100))
    assert (ran.status, ran.stdout) == (Status.OK, "60 60 60 x\n"), ran.detail


@pytest.mark.parametrize(
    "copies", [{"b": "gone"}, {"a": "a"}, {"b": "b"}, {"../b": "a"}, {str(n): "a" for n in range(40_000)}]
)
def test_copies_of_what_is_not_sent_are_refused(served: Served, copies: dict[str, str]) -> None:
    answer = served.post("/v1/run", {"source": "", "files": {"a": "AAAA"}, "copies": copies})
    assert answer.status_code == 422
    assert len(answer.text) < 500


@pytest.mark.slow
@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_an_overloaded_server_is_retried(box: RemoteSandbox, front: Front, status: int) -> None:
    front.statuses = [status, status]
    assert (await box.run(Program(source="print(1)"))).stdout == "1\n"
    assert front.asked == 3


async def test_a_programs_own_failure_is_not_retried(box: RemoteSandbox, front: Front) -> None:
    for source in ("1/0", "import os; os.abort()", "import time; time.sleep(9)", "raise MemoryError"):
        front.asked = 0
        ran = await box.run(Program(source=source), Limits(wall_seconds=0.5))
        assert ran.status not in (Status.OK, Status.SANDBOX_FAILED)
        assert front.asked == 1


async def test_an_unreachable_server_is_a_failed_sandbox(served: Served, front: Front) -> None:
    front.ours = True
    async with RemoteSandbox(served.url, patience_seconds=0.3) as box:
        front.statuses = [503] * 100
        ran = await box.run(Program(source="print(1)"))
        front.statuses = []
    assert ran.status is Status.SANDBOX_FAILED
    assert ran.detail == f"127.0.0.1:{served.port}: HTTP status 503"


async def test_a_dead_server_is_left_out_and_tried_again(served: Served) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with RemoteSandbox(f"{served.url}, http://127.0.0.1:{port}") as box:
        assert box.capacity == 2
        ran = await asyncio.gather(*(box.run(Program(source=f"print({n})")) for n in range(8)))
        assert [execution.stdout for execution in ran] == [f"{n}\n" for n in range(8)]
        with serving(port=port) as second:
            async with asyncio.timeout(30):
                while second.stats().programs < 2:
                    await asyncio.gather(*(box.run(Program(source="")) for _ in range(2)))
        # The server dies again, this time while it may hold programs.
        ran = await asyncio.gather(*(box.run(Program(source="print(1)")) for _ in range(8)))
        assert {execution.stdout for execution in ran} == {"1\n"}


async def test_missing_or_unreported_isolation_is_refused(served: Served, front: Front) -> None:
    front.ours = False
    with pytest.raises(SandboxUnavailable, match=r"does not give host_files_hidden.*does not say how"):
        async with RemoteSandbox(served.url):
            pass
    front.ours = True


async def test_a_missing_server_or_url_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIRJUDGE_SANDBOX_URL", raising=False)
    with pytest.raises(SandboxUnavailable, match="TIRJUDGE_SANDBOX_URL"):
        async with RemoteSandbox():
            pass
    monkeypatch.setenv("TIRJUDGE_SANDBOX_URL", "http://127.0.0.1:9")
    with pytest.raises(SandboxUnavailable, match=r"no sandbox server answers: 127\.0\.0\.1:9"):
        async with RemoteSandbox():
            pass
    for url in ("sandbox.example:80", "ftp://x", "http://"):
        with pytest.raises(ValueError, match="URL"):
            RemoteSandbox(url)


async def test_it_can_be_opened_again(served: Served, front: Front) -> None:
    """After it was closed, and after it could not be opened."""
    front.statuses, front.ours = [], True
    box = RemoteSandbox(served.url)
    for _ in range(2):
        async with box:
            assert (await box.run(Program(source="print(1)"))).stdout == "1\n"
    unreachable = RemoteSandbox("http://127.0.0.1:9")
    for _ in range(2):
        with pytest.raises(SandboxUnavailable, match="no sandbox server answers"):
            await unreachable.__aenter__()


@pytest.mark.parametrize("capacity", [0, -1])
def test_a_capacity_below_one_is_refused(capacity: int) -> None:
    with pytest.raises(ValueError, match=f"capacity must be at least 1, not {capacity}"):
        open_sandbox("remote", url="http://127.0.0.1:9", capacity=capacity)


async def test_a_token_is_sent_and_never_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    settings = ServerSettings(access=Access(token=TOKEN), intake=IntakeLimits(requests=2))
    with serving(settings) as served:
        with pytest.raises(SandboxUnavailable, match="a valid token is needed"):
            async with RemoteSandbox(served.url):
                pass
        with_token = served.url.replace("http://", f"http://:{TOKEN}@")
        async with RemoteSandbox(with_token) as box:
            assert (await box.run(Program(source="print(1)"))).stdout == "1\n"
        monkeypatch.setenv("TIRJUDGE_SANDBOX_TOKEN", TOKEN)
        async with RemoteSandbox(served.url) as box:
            assert (await box.run(Program(source="print(2)"))).stdout == "2\n"
    with pytest.raises(SandboxUnavailable) as refused:
        async with RemoteSandbox(with_token):
            pass
    assert TOKEN not in str(refused.value)
    assert "HTTP Request" in caplog.text
    assert TOKEN not in caplog.text
