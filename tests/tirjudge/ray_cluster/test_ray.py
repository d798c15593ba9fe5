"""`--runner ray` on a real cluster of several nodes on this machine, some of which die or cannot judge."""

import gzip
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from ray.cluster_utils import Cluster

from tests.command import TIRJUDGE, kill_at, tirjudge
from tests.sandbox import refusing
from tests.tirjudge.benchmark_data import EXAMPLES
from tests.tirjudge.endpoint_server import EndpointServer, chat, failure, serving
from tests.tirjudge.judge_command import counting, pairs, results, write_rows
from tests.tirjudge.judged_files import FAST

pytestmark = [
    pytest.mark.slow,
    # Ray leaves pipes and files of its own open, and uses deprecated functions.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]
SMALL = {"object_store_memory": 80 * 2**20}
OTHER_RAY = "import ray; ray.__version__ = '2.0.0'; from tirjudge.cli import main; main()"
ON_NODE = r"node [\d.]+ \([0-9a-f]{8}\)"


class Nodes:
    """A cluster whose head runs no workers, and its nodes that can judge."""

    def __init__(self) -> None:
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **SMALL})
        self._good: list[Any] = []
        self._joined: subprocess.Popen[str] | None = None

    def grow(self, count: int) -> None:
        """Make sure that at least `count` nodes can judge."""
        if len(self._good) >= count:
            return
        with pytest.MonkeyPatch.context() as patch:
            # Ray checks a node's GPUs against this machine's, which tests hide.
            patch.delenv("CUDA_VISIBLE_DEVICES")
            while len(self._good) < count:
                self._good.append(self.cluster.add_node(wait=False, num_gpus=1, **SMALL))
        self.cluster.wait_for_nodes()

    def join_without_isolation(self) -> None:
        """Start a node to which the kernel refuses what isolates programs."""
        ray = str(Path(sys.executable).with_name("ray"))
        # By default, the nodes of one host would choose the same ports.
        ports = ["--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0"]
        room = ["--num-cpus=1", f"--object-store-memory={SMALL['object_store_memory']}"]
        refused = [sys.executable, refusing.__file__, "unshare,landlock", ray]
        self._joined = subprocess.Popen(
            [*refused, "start", f"--address={self.cluster.address}", "--block", *ports, *room],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
        )

    def wait_for_all(self) -> None:
        """Wait until every node is part of the cluster."""
        expected = len(self.cluster.list_all_nodes()) + 1
        table = self.cluster.global_state.node_table
        wait_for(lambda: sum(node["Alive"] for node in table()) == expected, self._joined)

    def close(self) -> None:
        if self._joined:
            os.killpg(self._joined.pid, signal.SIGKILL)
            self._joined.communicate()
        self.cluster.shutdown()

    @property
    def count(self) -> int:
        return len(self._good)

    def kill(self) -> None:
        """Kill a node's processes, as a machine that loses its power does."""
        self.cluster.remove_node(self._good.pop(), allow_graceful=False)

    def on_ray(self, *arguments: str) -> tuple[str, ...]:
        return (*arguments, "--runner", "ray", "--address", self.cluster.address)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    nodes = Nodes()
    yield nodes
    nodes.close()


@pytest.fixture
def other() -> Iterator[EndpointServer]:
    with serving() as server:
        yield server


def shards(folder: Path, count: int) -> str:
    """Write rows without ids to three files, one of them compressed, and return their pattern."""
    folder.mkdir()
    rows = [
        {"prompt": f"Question {n}", "responses": ["x" * (n % 3 + 1), "yy"], "label": n % 2}
        for n in range(count)
    ]
    for number in range(3):
        write_rows(folder / f"part-{number}.jsonl", rows[number::3])
    plain = folder / "part-2.jsonl"
    (folder / "part-2.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    return str(folder / "*")


def drawing(body: dict[str, Any]) -> dict[str, Any]:
    """Play a judge that runs a program, and then prefers what the seed of its sampling says."""
    if len(body["messages"]) == 1:
        return counting(body)
    return chat(f"So <preference>{'AB'[body['seed'] % 2]}</preference>")


def untimed(value: Any) -> Any:
    """Return a value without measured times."""
    if isinstance(value, dict):
        return {key: untimed(one) for key, one in value.items() if "seconds" not in key}
    return [untimed(one) for one in value] if isinstance(value, list) else value


def by_id(path: Path) -> dict[str, Any]:
    rows = results(path)
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: untimed(row) for row in rows}


def wait_for(condition: Callable[[], object], process: subprocess.Popen[str] | None = None) -> None:
    """Wait until a condition holds, while the process runs."""
    deadline = time.monotonic() + 120
    while not condition():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def connected(endpoint: EndpointServer) -> set[int]:
    """Return the processes that are connected to an endpoint of this process."""
    port = int(endpoint.url.rpartition(":")[2])
    found = psutil.net_connections("tcp4")
    ends = [one for one in found if one.raddr and one.raddr.port == port and one.status == "ESTABLISHED"]
    return {one.pid for one in ends if one.pid and one.pid != os.getpid()}


def hold_after(
    endpoint: EndpointServer, requests: int, gate: threading.Event, *, of_rows: bool = True
) -> threading.Event:
    """Let an endpoint answer a few requests of rows, or of any kind, and then none until `gate`.

    The returned event is set when it holds one.
    """
    answer, left, holds = endpoint.script, [requests], threading.Event()

    def script(body: dict[str, Any]) -> Any:
        # A worker begins with a request for one token.
        if body["max_tokens"] > 1 or not of_rows:
            left[0] -= 1
            if left[0] < 0 and not gate.is_set():
                holds.set()
                gate.wait(120)
        return answer(body)

    endpoint.script = script
    return holds


def test_a_run_without_any_node_left_stops_and_can_be_resumed(
    nodes: Nodes, tmp_path: Path, server: EndpointServer
) -> None:
    """The first test, since a node that another one adds cannot be killed."""
    nodes.grow(1)
    server.delay = 0.2
    write_rows(tmp_path / "rows.jsonl", pairs(500))
    options = ("rows.jsonl", "--model", "m", "--base-url", server.url, "--no-tools", "--concurrency", "2")
    run = subprocess.Popen(
        [TIRJUDGE, "judge", *nodes.on_ray(*options)], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    out = tmp_path / "rows.verdicts.jsonl"
    wait_for(lambda: out.exists() and out.read_bytes(), run)
    while nodes.count:
        nodes.kill()
    _, told = run.communicate(timeout=120)
    assert run.returncode == 1
    assert told.splitlines()[-1] == "stopped: no worker of the cluster is left; the same command resumes"
    assert by_id(out)


def test_a_killed_run_and_a_killed_node_lose_duplicate_and_change_no_row(
    nodes: Nodes, tmp_path: Path, server: EndpointServer, other: EndpointServer
) -> None:
    """The run is killed, started again, and loses a node; one machine judges the same rows in one go."""
    nodes.grow(2)
    server.script = other.script = drawing
    server.delay = 0.1
    pattern = shards(tmp_path / "shards", 90)
    options = (
        "--model",
        "m",
        "--temperature",
        "1",
        "--seed",
        "5",
        "--prompts",
        "tir",
        "--concurrency",
        "3",
        *FAST,
    )
    out = tmp_path / "shards.verdicts.jsonl"
    command = [TIRJUDGE, "judge", pattern, *options, *nodes.on_ray("--worker-gpus", "1")]
    command += ["--endpoint", server.url, "--endpoint", other.url]
    first = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    kill_at(first, out, 15, lambda: 0.01)
    wait_for(lambda: not connected(server) | connected(other))
    gate, server.delay = threading.Event(), 0.0
    held = [hold_after(endpoint, 8, gate) for endpoint in (server, other)]
    with out.open("ab") as file:  # a torn line, as a kill during a write leaves it
        file.write(b'{"id": "shards')
    second = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    # Both nodes have judged rows, and wait for answers to others.
    wait_for(lambda: all(one.is_set() for one in held), second)
    nodes.kill()
    # On a busy machine the worker of a killed node lives on for a moment, and could still finish its rows.
    wait_for(lambda: not (connected(server) and connected(other)), second)
    gate.set()
    summary, told = second.communicate(timeout=120)
    assert second.returncode == 0, told
    assert told.splitlines()[0] == "judging with m on a Ray cluster of 2 nodes"
    lost = [line for line in told.splitlines() if "was lost" in line]
    assert len(lost) == 1
    assert re.match(ON_NODE + ": its worker was lost ", lost[0])
    assert summary.startswith("judged    90 rows, 90 with a verdict\n")

    alone = ("--base-url", server.url, "--output", "one.jsonl")
    assert tirjudge("judge", pattern, *options, *alone, folder=tmp_path).returncode == 0
    of_one, of_many = by_id(tmp_path / "one.jsonl"), by_id(out)
    assert of_many == of_one
    assert {f"part-{n}.jsonl{'.gz' * (n == 2)}:line-{line}" for n in range(3) for line in range(1, 31)} == {
        *of_many
    }
    asked = len(server.asked)
    again = tirjudge("judge", pattern, *options, "--base-url", server.url, folder=tmp_path)
    assert (again.returncode, len(server.asked)) == (0, asked), "one machine resumes what several did"
    # The verdicts are those of a coin, so equal ones come from equal seeds.
    assert 20 < sum(row["choice"] == 0 for row in of_many.values()) < 70


def test_rows_leave_a_node_whose_endpoint_goes_down_and_others_fail_alone(
    nodes: Nodes, tmp_path: Path, server: EndpointServer, other: EndpointServer
) -> None:
    nodes.grow(2)
    server.script = other.script = counting
    pattern = shards(tmp_path / "shards", 60)
    (tmp_path / "shards" / "part-1b.jsonl.gz").write_bytes(gzip.compress(b"{}\n" * 99)[:20])
    down = threading.Event()
    down_after(other, 9, down)
    # The rows are not all judged before the other node has failed.
    hold_after(server, 9, down)
    options = ("--model", "m", "--concurrency", "3", "--retries", "0", "--prompts", "tir", *FAST)
    endpoints = ("--endpoint", server.url, "--endpoint", other.url)
    run = tirjudge("judge", pattern, *options, *nodes.on_ray(*endpoints), folder=tmp_path)
    assert run.returncode == 1, run.stderr
    told = run.stderr.splitlines()
    unread = f"{tmp_path}/shards/part-1b.jsonl.gz: the rest of this file cannot be read: "
    assert [line for line in told if line.startswith(unread)]
    spared = [line for line in told if "gets no rows" in line]
    assert len(spared) == 1
    assert re.match(ON_NODE + " gets no rows for 60 s: .*503 Service Unavailable: overloaded", spared[0])
    assert run.stdout.startswith("judged    60 rows, 60 with a verdict\nfailed    1 row\n")
    assert len(by_id(tmp_path / "shards.verdicts.jsonl")) == 60


def down_after(endpoint: EndpointServer, requests: int, down: threading.Event) -> None:
    """Let an endpoint answer a few requests of rows, and then fail; `down` is set at the third failure."""
    answer, left = endpoint.script, [requests]

    def script(body: dict[str, Any]) -> Any:
        left[0] -= body["max_tokens"] > 1
        if left[0] <= -3:
            down.set()
        return answer(body) if left[0] >= 0 else failure(503, "overloaded")

    endpoint.script = script


def test_lost_workers_start_again_and_a_row_that_ends_three_of_them_fails(
    nodes: Nodes, tmp_path: Path, server: EndpointServer, other: EndpointServer
) -> None:
    nodes.grow(2)
    killed: list[int] = []

    def script(endpoint: EndpointServer, body: dict[str, Any]) -> dict[str, Any]:
        if "Poison" in str(body):
            (worker,) = connected(endpoint)
            killed.append(worker)
            os.kill(worker, signal.SIGKILL)
        return chat("<preference>A</preference>")

    for endpoint in (server, other):
        endpoint.script = partial(script, endpoint)
    prompts = ["Poison", *(f"Question {n}" for n in range(5))]
    write_rows(tmp_path / "rows.jsonl", [{"prompt": one, "responses": ["x", "y"]} for one in prompts])
    options = ("rows.jsonl", "--model", "m", "--no-tools", "--concurrency", "1", "--seed", "1")
    endpoints = ("--endpoint", server.url, "--endpoint", other.url)
    run = tirjudge("judge", *nodes.on_ray(*options, *endpoints), folder=tmp_path)
    assert run.returncode == 1, run.stderr
    assert "rows.jsonl:1: 3 workers were lost while they judged it" in run.stderr.splitlines()
    assert len(set(killed)) == len(killed) == 3
    assert run.stderr.count(": its worker was lost (") == 3
    assert set(by_id(tmp_path / "rows.verdicts.jsonl")) == {f"line-{n}" for n in range(2, 7)}


def test_nodes_that_cannot_judge_are_named_and_the_others_judge_a_benchmark(
    nodes: Nodes, tmp_path: Path, server: EndpointServer
) -> None:
    nodes.grow(1)
    installed = tmp_path / "old" / "tirjudge-0.0.1.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: tirjudge\nVersion: 0.0.1\n")
    nodes.join_without_isolation()
    nodes.cluster.add_node(wait=False, env_vars={"PYTHONPATH": str(installed.parent)}, **SMALL)
    nodes.wait_for_all()
    example = EXAMPLES["judgebench"]
    data = [{**example, "pair_id": f"p{n}", "question": f"Question {n}"} for n in range(6)]
    write_rows(tmp_path / "rows.jsonl", data)
    judged = ("judgebench", "--data", "rows.jsonl", "--model", "m", "--base-url", server.url, *FAST)
    home = {"TIRJUDGE_CACHE": str(tmp_path / "cache.sqlite")}
    answer, gate = server.script, threading.Event()
    # Rows are answered once both nodes were refused, and the request that a worker begins with at once.
    server.script = lambda body: (body["max_tokens"] == 1 or gate.wait(60)) and answer(body)
    many = subprocess.Popen(
        [TIRJUDGE, "eval", *nodes.on_ray(*judged), "--output", "many.jsonl"],
        cwd=tmp_path,
        env={**os.environ, **home},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert many.stderr
    refused = []
    for line in many.stderr:
        node, _, reason = line.partition(" judges no rows: ")
        if reason:
            assert re.fullmatch(ON_NODE, node)
            refused.append(reason)
        if len(refused) == 2:
            gate.set()
    printed, _ = many.communicate()
    assert many.returncode == 0
    refused.sort()
    assert len(refused) == 2
    assert refused[0].startswith("it has tirjudge 0.0.1, and this machine ")
    assert refused[1].startswith("programs cannot be isolated here (root: unshare: Operation not permitted; ")
    one = tirjudge("eval", *judged, "--output", "one.jsonl", folder=tmp_path, **home)
    assert by_id(tmp_path / "many.jsonl") == by_id(tmp_path / "one.jsonl")
    scores = [
        text.split("results")[1].partition("\n")[2].replace("many", "one") for text in (printed, one.stdout)
    ]
    assert scores[0] == scores[1]
    assert scores[0].strip()


def test_another_version_of_ray_and_a_cluster_without_room_are_refused_in_one_line(
    nodes: Nodes, tmp_path: Path, server: EndpointServer
) -> None:
    nodes.grow(1)
    write_rows(tmp_path / "rows.jsonl", [{"prompt": "?", "responses": ["x", "y"]}])
    options = nodes.on_ray("rows.jsonl", "--model", "m", "--base-url", server.url)
    run = tirjudge("judge", *options, "--worker-gpus", "9", folder=tmp_path)
    line = "tirjudge judge: --runner ray: the cluster has no node with a CPU and 9 GPUs\n"
    assert (run.returncode, run.stderr) == (2, line)
    other = [sys.executable, "-c", OTHER_RAY, "judge", *options]
    run = subprocess.run(other, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    (line,) = run.stderr.splitlines()
    assert re.match(r"tirjudge judge: --address \S+: Version mismatch: .*Ray: 2\.0\.0", line)
