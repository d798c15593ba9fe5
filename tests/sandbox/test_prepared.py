"""A prepared program: how it is given, what it may do, and the one line for each way in which it fails."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import signal
import textwrap

import pytest
from typer.testing import CliRunner

from tests.sandbox.serving import serving
from tests.sandbox.targets import descendants
from tirjudge.cli import app
from tirjudge_sandbox import Limits, Program, SandboxUnavailable, Status, open_sandbox, open_sandbox_sync
from tirjudge_sandbox.local import LocalSandbox

FAST = {"capacity": 1, "preload": ()}
ROOMY = Limits(disk_bytes=48 << 20)


def opened(prepare: object, *programs: str, **options: object) -> list[str]:
    """Return what programs print after the prepared one, or the last line of their error."""
    with open_sandbox_sync("local", prepare=prepare, **{**FAST, **options}) as box:
        ran = [box.run(Program(textwrap.dedent(source))) for source in programs]
    return [one.stdout or one.stderr.strip().splitlines()[-1] for one in ran]


def refusal(source: str, **options: object) -> str:
    with pytest.raises(SandboxUnavailable) as raised:
        opened(Program(textwrap.dedent(source)), **options)
    message = str(raised.value)
    assert "\n" not in message
    return message


def test_a_file_and_a_folder_with_data_and_modules(tmp_path):
    file = tmp_path / "alone.py"
    file.write_text("import json\nanswer = json.loads('42')\n")
    assert opened(str(file), "print(answer)") == ["42\n"]
    folder = tmp_path / "with_data"
    (folder / "data").mkdir(parents=True)
    (folder / "helper.py").write_text("def double(x): return 2 * x")
    (folder / "data" / "t.csv").write_text("a,b\n")
    (folder / "__main__.py").write_text("from helper import double\nhead = open('data/t.csv').read()")
    assert opened(folder, "import helper\nprint(double(head) == helper.double(head), head)") == [
        "True a,b\n\n"
    ]


def test_it_runs_once_for_many_programs_and_again_in_each_worker():
    once = Program("import time\nstarted = time.monotonic()")
    assert len(set(opened(once, *["print(started)"] * 3))) == 1
    assert len(set(opened(once, *["print(started)"] * 3, programs_per_worker=1))) == 3


def test_its_random_numbers_and_hashes_are_the_same_in_every_worker():
    drawn = Program("import random\nfirst = random.random(), hash('x')", seed=3)
    shown = opened(drawn, *["import random\nprint(first, random.random())"] * 2, programs_per_worker=1)
    assert len(set(shown)) == 1


def test_classes_can_be_pickled_and_functions_see_the_variables_of_the_program():
    prepared = Program(
        "class Point:\n x = 1\ndef words(): return len(response.split())\nif __name__ == '__main__': main = 1"
    )
    with open_sandbox_sync("local", prepare=prepared, **FAST) as box:
        source = "import pickle\nprint(pickle.loads(pickle.dumps(Point())).x, words(), main)"
        assert box.run(Program(source, bindings={"response": "two words"})).stdout == "1 2 1\n"


def test_large_files_fit_although_a_program_may_write_less():
    table = b"x" * (40 << 20)
    prepared = Program("size = len(open('table').read())", files={"table": table})
    with open_sandbox_sync("local", prepare=prepared, **FAST) as box:
        assert box.run(Program("print(size)")).stdout == f"{40 << 20}\n"
        assert box.run(Program("open('x', 'wb').write(bytes(17 << 20))")).status is not Status.OK


def test_mapped_files_leave_a_program_its_own_room():
    mapping = (
        "import mmap\nfile = open('t', 'rb')\ntable = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)"
    )
    prepared = Program(mapping, files={"t": bytes(60 << 20)})
    with open_sandbox_sync("local", prepare=prepared, **FAST) as box:
        own = {"own": bytes(40 << 20)}
        ran = box.run(Program("print(len(table), len(open('own').read()))", files=own), ROOMY)
    assert (ran.status, ran.stdout) == (Status.OK, f"{60 << 20} {40 << 20}\n")


def test_what_a_program_drops_at_its_end_is_not_what_was_prepared():
    prepared = Program("class Loud:\n def __del__(self): print('dropped', flush=True)\nkept = Loud()")
    assert opened(prepared, "own = Loud()", "own = kept; del kept; print('end')") == ["dropped\n", "end\n"]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("x = 1\nx + y", "the prepared program: line 2: NameError: name 'y' is not defined"),
        ("def f():\n    return 1 / 0\nf()", "line 2: ZeroDivisionError: division by zero"),
        ("x = (", "line 1: SyntaxError: '(' was never closed"),
        ("open('/etc/passwd')", "line 1: {error}: [Errno "),
        ("import no_such", "line 1: ModuleNotFoundError: No module named 'no_such'"),
        ("raise SystemExit(3)", "line 1: it ended with exit code 3"),
        (
            "import sys; sys.exit('first\\nsecond\\x1b[31m')",
            "the prepared program: line 1: it ended with exit code first",
        ),
        ("import sys; sys.exit('\\x1b[31mred')", "line 1: it ended with exit code  [31mred"),
        ("import os; os._exit(0)", "the prepared program: it ended its worker, perhaps for lack of memory"),
        ("raise ValueError('fir\\x1bst\\nsecond')", "line 1: ValueError: fir st"),
        ("raise ValueError('x' * 9999)", "line 1: ValueError: xxx"),
        (
            "import threading as t\nt.Thread(target=t.Event().wait, name='mine', daemon=True).start()",
            "it left the thread 'mine' running, which no program would have: end it",
        ),
        (
            "import os, time\nif not os.fork(): time.sleep(60)",
            "it left a process running, which all programs would share: end it",
        ),
        ("import mmap\nshared = mmap.mmap(-1, 4096)", "it left memory that all programs would share"),
        (
            "import mmap\nfile = open('f', 'w+b', buffering=0)\nfile.write(bytes(9))\n"
            "shared = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)",
            "it left memory that all programs would share",
        ),
    ],
)  # fmt: skip
def test_a_failure_is_one_line(source, reason):
    error = refusal(source)
    assert reason.replace("{error}", "FileNotFoundError") in error or (
        reason.replace("{error}", "PermissionError") in error
    )
    assert len(error) < 1500
    assert error.isprintable()


def test_time_and_memory_are_bounded():
    assert refusal("while True: pass", prepare_seconds=1).endswith(
        "it had not ended after 1 s: raise prepare_seconds"
    )
    assert refusal("x = bytes(200 << 20)", prepare_memory_bytes=100 << 20).endswith(
        "it needs more than 100 MiB: raise prepare_memory_bytes"
    )
    assert opened(Program("x = bytes(200 << 20)"), "print(len(x))", prepare_memory_bytes=4e8) == [
        f"{200 << 20}\n"
    ]


def test_its_bound_of_memory_ends_with_it():
    filling = Program("x = bytes(80 << 20)")
    with open_sandbox_sync("local", prepare=filling, prepare_memory_bytes=90 << 20, **FAST) as box:
        ran = box.run(Program("", files={"given": bytes(15 << 20)}, fetch=("given",)))
    assert {name: len(content) for name, content in ran.files.items()} == {"given": 15 << 20}


@pytest.mark.parametrize("mark", ["é", "\U0001f600", "'", "\\"])
def test_a_long_reason_in_any_script_reaches_the_operator(mark):
    assert "line 1: ValueError: " + mark * 50 in refusal(f"raise ValueError({mark!r} * 9999)")
    assert "it ended with exit code " + mark * 50 in refusal(f"raise SystemExit({mark!r} * 9999)")
    source = (
        f"import threading as t\nt.Thread(target=t.Event().wait, name={mark!r} * 9999, daemon=True).start()"
    )
    assert "it left the thread " in refusal(source)


@pytest.mark.slow
def test_a_process_whose_parent_has_ended_is_refused_too():
    source = """
        import os, time
        if not os.fork():
            if not os.fork(): time.sleep(5)
            os._exit(0)
        os.wait()
    """
    for placement in ("root", "userns", "own-uid", "plain"):
        try:
            opened(None, placement=placement)
        except SandboxUnavailable:
            continue
        assert "it left a process running" in refusal(source, placement=placement), placement


def test_an_early_regular_end_is_none():
    assert opened(Program("x = 1\nraise SystemExit"), "print(x)") == ["1\n"]


@pytest.mark.parametrize("placement", ["root", "userns", "plain"])
def test_it_reaches_no_network_and_no_executable(placement):
    source = """
        import os, socket
        found = []
        for attempt in (lambda: socket.socket(), lambda: os.execv('/bin/sh', ['sh'])):
            try: attempt(); found.append('reached')
            except OSError: found.append('refused')
    """
    try:
        found = opened(Program(textwrap.dedent(source)), "print(found)", placement=placement)
    except SandboxUnavailable as error:
        pytest.skip(str(error))
    assert found == ["['refused', 'refused']\n"]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (Program("", stdin="x"), "a prepared program has no stdin"),
        (Program("", fetch=("x",)), "a prepared program has no fetch"),
        (Program("", files={"../x": b""}), "prepare: '../x' is not a path inside the working folder"),
        ("/no/such.py", "prepare: /no/such.py: No such file or directory"),
    ],
)
def test_what_is_no_prepared_program(given, reason):
    with pytest.raises(ValueError, match=f"sandbox 'local': {reason}"):
        open_sandbox("local", prepare=given)


def test_a_folder_without_a_program(tmp_path):
    with pytest.raises(ValueError, match=r"has no __main__\.py, which would be run"):
        open_sandbox("local", prepare=tmp_path)


@pytest.mark.parametrize("bound", ["prepare_seconds", "prepare_memory_bytes"])
def test_bounds_are_positive(bound):
    with pytest.raises(ValueError, match=f"{bound} must be a number above 0, not 0"):
        open_sandbox("local", prepare=Program(""), **{bound: 0})


def test_less_than_a_byte_of_memory_is_refused():
    with pytest.raises(ValueError, match=r"prepare_memory_bytes must be at least 1, not 0\.5"):
        open_sandbox("local", prepare=Program(""), prepare_memory_bytes=0.5)


@pytest.mark.slow
def test_the_advice_works_as_typed(tmp_path):
    program, large = tmp_path / "program.py", tmp_path / "large.py"
    program.write_text("print(len(x))")
    large.write_text("x = bytes(200 << 20)")
    command = ("sandbox", "run", str(program), "--prepare", str(large), "--backend-option")
    for more in ("prepare_memory_bytes=1e8", "prepare_memory_bytes=4e8", "prepare_seconds=0.001"):
        done = CliRunner().invoke(app, [*command, more])
        if more == "prepare_memory_bytes=4e8":
            assert (done.exit_code, done.stdout) == (0, f"{200 << 20}\n"), done.stderr
        else:
            assert done.exit_code == 125
            assert f"raise {more.partition('=')[0]}" in done.stderr
    for bad, line in (
        ("prepare=x.py", "--backend-option prepare: this command sets prepare itself"),
        ("capacity=2", "--backend-option capacity: this command sets capacity itself"),
        ("nothing=1", "unexpected keyword argument 'nothing'"),
        ("nothing", "write KEY=VALUE"),
    ):
        done = CliRunner().invoke(app, [*command, bad])
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.stderr
        assert line in done.stderr


def test_a_remote_sandbox_says_who_prepares():
    with pytest.raises(ValueError, match="its operator prepares programs: tirjudge sandbox serve --prepare"):
        open_sandbox("remote", url="http://127.0.0.1:1", prepare=Program(""))


# Docker's SDK leaves its socket open when nobody answers.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_doctor_says_how_often_it_runs(tmp_path, monkeypatch):
    with serving() as served:
        monkeypatch.setenv("TIRJUDGE_SANDBOX_URL", served.url)
        monkeypatch.setenv("DOCKER_HOST", "unix:///no/engine")
        run = CliRunner().invoke(app, ["sandbox", "doctor", "--json"])
        found = {(one["sandbox"], one["placement"]): one for one in json.loads(run.stdout)["sandboxes"]}
        local = found["local", json.loads(run.stdout)["local"]]
        assert (local["sound"], local["prepares"]) == (True, "once in each worker")
        (remote,) = [one for (name, _), one in found.items() if name == "remote"]
        assert (remote["sound"], remote["prepares"]) == (True, "never")
        shown = CliRunner().invoke(app, ["sandbox", "doctor"]).stdout
        gc.collect()
    assert re.search(
        "^A prepared program [(]--prepare[)] runs once in each worker: local ", shown, re.MULTILINE
    )
    assert re.search("^A prepared program [(]--prepare[)] runs never: remote ", shown, re.MULTILINE)


async def test_a_lost_worker_is_prepared_again():
    others = descendants(os.getpid())
    async with LocalSandbox(prepare=Program("x = [1]"), **FAST) as box:
        idle = descendants(os.getpid()) - others
        running = asyncio.ensure_future(box.run(Program("import time; x.append(2); time.sleep(60)")))
        while not descendants(os.getpid()) - others - idle:  # noqa: ASYNC110 - processes set no events
            await asyncio.sleep(0.01)
        for process in idle:
            os.kill(process, signal.SIGKILL)
        assert (await running).status is Status.SANDBOX_FAILED
        again = await box.run(Program("print(x)"))
        assert (again.stdout, box.stats().lost) == ("[1]\n", 1)
