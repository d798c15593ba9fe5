"""A model in several processes gives the completions of one process, and ends with its parent."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.tiny_models import bpe_tokenizer, tiny_llama
from tirjudge.generation.base import GeneratorFailed, Sampling, open_generator
from tirjudge.generation.local import processes
from tirjudge.generation.local.processes import ProcessesGenerator
from tirjudge.generation.local.transformers import TransformersGenerator
from tirjudge_environments import By, Completion, Context, Finish, Message, Prompt, Segment

TOKENIZER = bpe_tokenizer("print the answer and then the preference", "```python\nprint(1)\n```\n" * 3)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    tiny_llama(seed=3).save_pretrained(folder)
    TOKENIZER.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def two(model: str, loop: asyncio.Runner) -> Iterator[ProcessesGenerator]:
    generator = open_generator("transformers", model, processes=2, max_rows=4, max_context=128)
    assert isinstance(generator, ProcessesGenerator)
    yield generator
    loop.run(generator.close())
    assert not children()


def context(number: int, *more: int) -> Context:
    prompt = Prompt(messages=(Message("user", f"row {number}"),), stop=("```",))
    return Context(prompt, (), (5, 9, 11 + number, *more))


def sampling(number: int) -> Sampling:
    return Sampling(temperature=1.0, max_tokens=12, seed=number)


def children() -> list[int]:
    """Return the workers of this process."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [pid for pid in map(int, listed) if processes.__name__ in Path(f"/proc/{pid}/cmdline").read_text()]


async def both_turns(generator: ProcessesGenerator | TransformersGenerator, number: int) -> list[Completion]:
    first = await generator.generate(context(number), sampling(number))
    assert first.token_ids
    return [first, await generator.generate(context(number, *first.token_ids, 7), sampling(number))]


@pytest.mark.slow
def test_several_processes_sample_what_one_process_samples(
    model: str, two: ProcessesGenerator, loop: asyncio.Runner
) -> None:
    one = TransformersGenerator.load(model, max_rows=4, max_context=128)

    async def dialogues(generator: ProcessesGenerator | TransformersGenerator) -> list[list[Completion]]:
        return await asyncio.gather(*(both_turns(generator, number) for number in range(8)))

    expected, found = loop.run(dialogues(one)), loop.run(dialogues(two))
    assert len(children()) == 2
    assert all(worker._next for worker in two._workers), "a process got no rows"
    for ours, theirs in zip(found, expected, strict=True):
        assert [turn.token_ids for turn in ours] == [turn.token_ids for turn in theirs]
        assert [turn.usage for turn in ours] == [turn.usage for turn in theirs]
        assert [turn.logprobs for turn in ours] == [pytest.approx(turn.logprobs, abs=1e-5) for turn in theirs]


@pytest.mark.slow
def test_a_worker_is_told_which_dialogues_have_begun(
    two: ProcessesGenerator, loop: asyncio.Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batch serves them first, see `BatchRow.resumes`."""
    told = []
    for worker in two._workers:
        send = worker._connection.send
        monkeypatch.setattr(worker._connection, "send", lambda m, send=send: (told.append(m[1]), send(m)))
    begun = replace(context(1), segments=(Segment(by=By.MODEL, text="x"),) * 3)
    for one in (context(0), begun):
        loop.run(two.generate(one, sampling(0)))
    assert [len(given.segments) for given in told] == [0, 1]


@pytest.mark.slow
def test_a_context_that_is_too_long_is_refused_as_in_one_process(
    two: ProcessesGenerator, loop: asyncio.Runner
) -> None:
    with pytest.raises(GeneratorFailed, match=r"200 tokens, but .* takes 128 including its answer"):
        loop.run(two.generate(context(0, *[7] * 197), sampling(0)))


@pytest.mark.slow
def test_a_cancelled_row_frees_its_place(two: ProcessesGenerator, loop: asyncio.Runner) -> None:
    async def cancelled() -> Completion:
        rows = [asyncio.create_task(two.generate(context(n), sampling(n))) for n in range(4)]
        await asyncio.sleep(0)
        for row in rows:
            row.cancel()
        await asyncio.gather(*rows, return_exceptions=True)
        assert not any(worker.running for worker in two._workers)
        return await asyncio.wait_for(two.generate(context(9), sampling(9)), 60)

    assert loop.run(cancelled()).token_ids


@pytest.mark.slow
def test_the_processes_end_when_their_parent_is_killed(model: str, tmp_path: Path) -> None:
    """They also start from a script without `if __name__ == "__main__"`, which is not run again."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, time\n"
        "from tirjudge.generation.base import open_generator\n"
        f"generator = open_generator('transformers', {model!r}, processes=2)\n"
        "print(*[worker._process.pid for worker in generator._workers], flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        workers = [Path("/proc", pid) for pid in parent.stdout.readline().split()]
        assert len(workers) == 2
        assert all(worker.exists() for worker in workers)
        parent.kill()
    ended = time.monotonic() + 30
    while any(worker.exists() and "Z" not in (worker / "stat").read_text().split()[2] for worker in workers):
        assert time.monotonic() < ended, "a worker outlives its parent"
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"processes": 0}, "processes must be auto or a number from 1 up, not 0"),
        ({"processes": 2, "dtype": "fp8"}, "dtype must be one of"),
    ],
)
def test_a_model_that_cannot_be_loaded_is_one_line(
    model: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        open_generator("transformers", model, **options)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("cores", "megabytes", "expected"),
    [(1, 10**6, 1), (2, 10**6, 2), (64, 10**6, processes.MOST), (64, 100, 1), (64, 2_200, 3)],
)
def test_a_larger_model_gets_a_process_for_each_core_and_copy_in_memory(
    model: str, monkeypatch: pytest.MonkeyPatch, cores: int, megabytes: int, expected: int
) -> None:
    size = sum(file.stat().st_size for file in Path(model).glob("*.safetensors"))
    monkeypatch.setattr(processes, "SIZES", range(size, size + 1))
    monkeypatch.setattr(processes, "_GPU_FILES", ())
    monkeypatch.setattr(processes, "free_memory", lambda: megabytes * 1_000_000)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    assert processes._unasked(model, None) == expected
    assert processes._unasked(model, "cuda") == 1


@pytest.mark.slow
def test_a_process_that_is_killed_fails_its_rows_in_one_line(
    two: ProcessesGenerator, loop: asyncio.Runner
) -> None:
    async def eight() -> list[Completion]:
        return await asyncio.gather(*(two.generate(context(n), sampling(n)) for n in range(8)))

    async def killed() -> None:
        await eight()
        os.kill(children()[0], signal.SIGKILL)
        await eight()

    with pytest.raises(GeneratorFailed, match=r"process of the model ended \(signal 9, .* processes = 1$"):
        loop.run(killed())
    # The other process takes all later rows, those of known dialogues too.
    assert all(completion.token_ids for completion in loop.run(eight()))


class Eager:
    """A process that sends a long answer to each request before it takes the next one."""

    def __init__(self, command: Sequence[str], *, pass_fds: Sequence[int], **others: Any) -> None:
        self._socket = socket.socket(fileno=os.dup(pass_fds[0]))
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()

    def _answer(self) -> None:
        connection = Connection(os.dup(self._socket.fileno()))
        connection.recv()  # the settings
        connection.send(None)
        try:
            while True:
                number, *_ = connection.recv()
                connection.send((number, Completion(text="x" * 300_000, finish=Finish.END), None))
        except (EOFError, OSError):
            connection.close()

    def kill(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)

    def wait(self) -> int:
        self._thread.join()
        self._socket.close()
        return 0


@pytest.mark.timeout(60)
def test_long_requests_and_long_answers_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are larger than what a socket holds."""
    monkeypatch.setattr(subprocess, "Popen", Eager)
    worker = processes._Worker(0, 1, "model", {})
    worker.wait_until_loaded()
    request = Context(Prompt(messages=()), (), tuple(range(1000, 5000)))

    async def asked() -> list[Completion]:
        return await asyncio.gather(*(worker.generate(request, sampling(number)) for number in range(60)))

    try:
        assert len(asyncio.run(asked())) == 60
    finally:
        worker.end()
