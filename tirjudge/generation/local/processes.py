"""A generator that runs one model in several processes of this machine, one thread or a few in each.

On a CPU, two processes of one thread decode about twice as many tokens as one process of two threads: the
threads of a process wait for each other after every small matrix product, and processes never do.

    python -m tirjudge.generation.local.processes FD

starts a worker, which takes requests from the socket FD and ends when the other side closes it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

from tirjudge.generation.base import Generator, GeneratorFailed, Sampling
from tirjudge.generation.local.loading import LIBRARIES
from tirjudge.generation.local.transformers import TransformersGenerator
from tirjudge.generation.model_files import Adapter, load_encoder, weights_bytes
from tirjudge.models import ModelUnavailable, resolve_model
from tirjudge.models.machine import free_memory
from tirjudge_environments import Completion, Context, Message, Prompt
from tirjudge_environments.tokenization import ChatEncoder

MOST = 4
"""Most processes that are started unasked."""
SIZES = range(50_000_000, 2_000_000_000)
"""Bytes of weights for which several processes are started unasked: below, starting them takes longer than
the judging; above, copies of the weights are too expensive."""
_IMPORTED = 300_000_000
"""Bytes of memory of a process that has imported torch, transformers and peft."""
_GPU_FILES = "/dev/nvidiactl", "/dev/dxg", "/dev/kfd"
"""Device files of the drivers of NVIDIA, of the Windows Subsystem for Linux, and of AMD."""
_HOMES = 4096
"""Most dialogues that stay with a worker. Evicting a dialogue costs only its KV cache."""


def load(
    path: str, *, processes: int | Literal["auto"] = "auto", max_rows: int = 32, **options: Any
) -> Generator:
    """Load a transformers model into this process, or into several processes on a CPU.

    Args:
        path: a folder, a hub id, or what else `resolve_model` accepts.
        processes: `auto` is one process for each of up to four cores if the model runs on a CPU and has 50 MB
            to 2 GB of weights, as far as free memory holds twice their size and 0.7 GB for each,
            and otherwise one.
        max_rows: at most so many rows run at once, in all processes together.
        options: see `TransformersGenerator`.

    Raises GeneratorFailed, in one line, and ValueError for a bad option.
    """
    if processes != "auto" and (not isinstance(processes, int) or processes < 1):
        raise ValueError(f"processes must be auto or a number from 1 up, not {processes!r}")
    count = _unasked(path, options.get("device")) if processes == "auto" else processes
    count = min(count, max_rows)
    if count == 1:
        return TransformersGenerator.load(path, max_rows=max_rows, **options)
    return ProcessesGenerator(path, processes=count, max_rows=max_rows, **options)


def _unasked(path: str, device: str | None) -> int:
    """Return the number of processes for a model if the user does not give it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        folder = resolve_model(path)
        adapter = Adapter.of(Path(folder))
    except (ModelUnavailable, GeneratorFailed):
        return 1  # loading explains the fault
    weights = weights_bytes(adapter.base if adapter else folder)
    if cores < 2 or weights not in SIZES:
        return 1
    # Weights in bfloat16 take twice as much where the processor computes in float32.
    copies = free_memory() // (2 * weights + LIBRARIES + _IMPORTED)
    # Asking torch would import it here too, before the workers can start to import it.
    on_cpu = device == "cpu" if device else not any(map(os.path.exists, _GPU_FILES))
    return max(1, min(cores, MOST, copies)) if on_cpu else 1


class ProcessesGenerator:
    """Samples from copies of a transformers model, one in each of several processes.

    All turns of a dialogue, and all samples of a group, run in one process, which keeps their keys and
    values. Otherwise works like `TransformersGenerator`. Belongs to one event loop.
    """

    def __init__(self, path: str, *, processes: int, max_rows: int, **options: Any) -> None:
        """Start the processes and wait until each process has loaded the model; see `load`."""
        self.model = path
        self._homes: OrderedDict[tuple[Message, ...], _Worker] = OrderedDict()
        self._workers: list[_Worker] = []
        try:
            for number in range(processes):
                rows = max_rows // processes + (number < max_rows % processes)
                self._workers.append(_Worker(number, processes, path, {"max_rows": rows, **options}))
            # The tokenizer is read while the workers load the model.
            self.encoder = self._encoder(options.get("enable_thinking"))
            self._wait_until_loaded()
        except BaseException:
            self._end()
            raise

    async def generate(self, context: Context, sampling: Sampling) -> Completion:
        return await self._home(context.prompt.messages).generate(context, sampling)

    async def close(self) -> None:
        self._end()

    def _home(self, prompt: tuple[Message, ...]) -> _Worker:
        """Return the worker of a dialogue: the worker of earlier turns, or the worker with fewest rows."""
        home = self._homes.pop(prompt, None)
        if home is None or home.lost:
            # A lost worker has no rows, and would get all new rows. If all are lost, any explains why.
            home = min(self._workers, key=lambda worker: (worker.lost, worker.running))
        self._homes[prompt] = home
        if len(self._homes) > _HOMES:
            self._homes.popitem(last=False)
        return home

    def _encoder(self, enable_thinking: bool | None) -> ChatEncoder:
        try:
            return load_encoder(self.model, enable_thinking=enable_thinking)
        except (GeneratorFailed, ModelUnavailable):
            self._wait_until_loaded()  # the workers' message about the model says more
            raise

    def _wait_until_loaded(self) -> None:
        for worker in self._workers:
            worker.wait_until_loaded()

    def _end(self) -> None:
        for worker in self._workers:
            worker.end()


class _Worker:
    """The parent's side of one process."""

    def __init__(self, number: int, processes: int, path: str, options: dict[str, Any]) -> None:
        ours, theirs = socket.socketpair()
        # Not `multiprocessing`: it imports the caller's main script again, which would start a second judge
        # in every script without an `if __name__ == "__main__"`.
        self._process = subprocess.Popen(
            # With -P no file of the current folder takes the place of a module.
            [sys.executable, "-P", "-m", __spec__.name, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        self._connection = Connection(ours.detach())
        self._connection.send((number, processes, path, options))
        # Requests are sent in a thread: while a full socket blocked the event loop, no answer would be read,
        # and a process that blocks because its answers are not read takes no requests.
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="tirjudge-requests")
        self._name = path
        self._waiting: dict[int, asyncio.Future[Completion]] = {}
        self._next = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self.lost = False
        """True once the process was found to have ended."""

    @property
    def running(self) -> int:
        return len(self._waiting)

    def wait_until_loaded(self) -> None:
        try:
            error = self._connection.recv()
        except EOFError:
            raise GeneratorFailed(self._ended()) from None
        if error is not None:
            raise error

    async def generate(self, context: Context, sampling: Sampling) -> Completion:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._connection.fileno(), self._receive)
        number, self._next = self._next, self._next + 1
        future: asyncio.Future[Completion] = self._loop.create_future()
        self._waiting[number] = future
        try:
            # The ids hold all texts; one segment says that the dialogue has begun, see `BatchRow.resumes`.
            bare = Context(Prompt(messages=(), stop=context.prompt.stop), context.segments[-1:], context.ids)
            sent = self._loop.run_in_executor(self._sender, self._connection.send, (number, bare, sampling))
            sent.add_done_callback(partial(_pass_error, future))
            return await future
        except OSError:
            self.lost = True
            raise GeneratorFailed(self._ended()) from None
        except asyncio.CancelledError:
            with suppress(RuntimeError):  # ended by `close`
                self._sender.submit(self._connection.send, (number, None, None))
            raise
        finally:
            self._waiting.pop(number, None)

    def end(self) -> None:
        for future in self._waiting.values():
            future.cancel()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._connection.fileno())
        # A worker also ends without its socket, but notices late while importing libraries.
        self._process.kill()
        self._process.wait()
        # After the process, whose end also ends a blocked send.
        self._sender.shutdown(cancel_futures=True)
        self._connection.close()

    def _receive(self) -> None:
        try:
            number, completion, error = self._connection.recv()
        except (EOFError, OSError):
            assert self._loop is not None
            self.lost = True
            self._loop.remove_reader(self._connection.fileno())
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(GeneratorFailed(self._ended()))
            return
        asked = self._waiting.get(number)
        if asked is None or asked.done():
            return  # cancelled meanwhile
        if error is not None:
            asked.set_exception(error)
        else:
            asked.set_result(completion)

    def _ended(self) -> str:
        code = self._process.wait()
        why = f"signal {-code}, perhaps for lack of memory" if code < 0 else f"exit code {code}"
        return f"{self._name}: a process of the model ended ({why}): try with processes = 1"


def _pass_error(future: asyncio.Future[Completion], sent: asyncio.Future[None]) -> None:
    """Let a request fail that could not be sent."""
    error = None if sent.cancelled() else sent.exception()
    if error is not None and not future.done():
        future.set_exception(error)


async def _serve(connection: Connection, generator: TransformersGenerator) -> None:
    """Answer requests until the other side closes the connection."""
    loop = asyncio.get_running_loop()
    tasks: dict[int, asyncio.Task[None]] = {}
    ended = loop.create_future()

    async def answer(number: int, context: Context, sampling: Sampling) -> None:
        try:
            connection.send((number, await generator.generate(context, sampling), None))
        except Exception as error:
            connection.send((number, None, _portable(error)))
        finally:
            del tasks[number]

    def receive() -> None:
        try:
            number, context, sampling = connection.recv()
        except (EOFError, OSError):
            loop.remove_reader(connection.fileno())
            ended.set_result(None)
            return
        if context is not None:
            tasks[number] = loop.create_task(answer(number, context, sampling))
        elif number in tasks:
            tasks[number].cancel()

    loop.add_reader(connection.fileno(), receive)
    await ended


def _portable(error: Exception) -> Exception:
    """Return the error if it can be sent to another process, else a GeneratorFailed of the same text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return GeneratorFailed(f"{type(error).__name__}: {error}")
    return error


def _report(connection: Connection, error: Exception | None) -> None:
    with suppress(BrokenPipeError):  # the parent ended while the model was loaded
        connection.send(error)


def _work(fd: int) -> None:
    # Ctrl-C reaches every process of the terminal; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = Connection(fd)
    number, processes, path, options = connection.recv()
    if number:
        logging.disable(logging.WARNING)  # the first worker says it for all
    try:
        import torch

        torch.set_num_threads(max(1, torch.get_num_threads() // processes))
        generator = TransformersGenerator.load(path, **options)
    except Exception as error:
        _report(connection, _portable(error))
        return
    _report(connection, None)
    asyncio.run(_serve(connection, generator))
    # Rows that still run would delay the exit, and nobody waits for them.
    os._exit(0)


if __name__ == "__main__":
    _work(int(sys.argv[1]))
