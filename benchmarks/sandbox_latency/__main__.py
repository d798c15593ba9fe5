"""Programs per second and latencies of the sandboxes, compared with other ways to run a program.

    python -m benchmarks.sandbox_latency
    python -m benchmarks.sandbox_latency --only 'sandbox/exec/*'     # in containers; needs an engine

The local sandbox is compared with `python3 -I`, with warm Jupyter kernels, and with the package llm-sandbox
and its daemonless backend (`pip install llm-sandbox`, `apt-get install bubblewrap`); the docker sandbox with
`docker exec` through the API. Comparisons are named `sandbox/PEER/PROGRAM/CLIENTS`; a client runs one program
after another. Sandboxes, kernels, sessions and containers are as many as there are CPUs. Programs in the
sandboxes and, after the first, in the kernels find numpy and sympy loaded; the others load what they import.
The kernels do not separate programs from each other or from the host.

The limit is a bare fork in C, and the program's own CPU time, on as many CPUs as the clients can use.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import AsyncIterator, Sequence
from functools import partial
from itertools import groupby

from benchmarks import peers
from benchmarks.peers import Comparison, Limit, Unavailable
from benchmarks.sandbox_latency import contenders
from benchmarks.sandbox_latency.measurement import PROGRAMS, body_seconds, fork_seconds, measure
from tirjudge.console_text import printable
from tirjudge_sandbox import SandboxUnavailable


async def comparisons(
    names: Sequence[str], options: argparse.Namespace
) -> AsyncIterator[Comparison | Unavailable]:
    """Yield the comparisons, peer by peer; a peer that is not available is named."""
    fork = fork_seconds()
    bodies = {name: body_seconds(PROGRAMS[name]) for name in {name.split("/")[2] for name in names}}
    for peer, of_peer in groupby(names, lambda name: name.split("/")[1]):
        described, *opens = contenders.PEERS[peer]
        async with contextlib.AsyncExitStack() as stack:
            try:
                own, other = [await stack.enter_async_context(each(peers.cpus())) for each in opens]
            except SandboxUnavailable as error:
                yield Unavailable(f"sandbox/{peer}", printable(str(error), limit=300))
                continue
            for name in of_peer:
                *_, program, clients = name.split("/")
                used = min(int(clients), peers.cpus())
                yield Comparison(
                    name=name,
                    peer=described,
                    unit="programs/s",
                    measure_own=partial(measure, own, PROGRAMS[program], int(clients), options.seconds),
                    measure_peer=partial(measure, other, PROGRAMS[program], int(clients), options.seconds),
                    limit=_limit(fork, bodies[program], used),
                )


def _limit(fork: float | None, body: float, used: int) -> Limit:
    forked = "no bare fork, for want of a C compiler," if fork is None else f"a fork of {fork * 1000:.2f} ms"
    why = f"{forked} and {body * 1000:.2f} ms of the program, on {used} CPUs"
    return Limit(rate=used / ((fork or 0.0) + body), why=why)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=0.25, help="least seconds of each run")


SUITE = peers.Suite(
    names=[
        f"sandbox/{peer}/{name}/{clients}"
        for peer in contenders.PEERS
        for name, program in PROGRAMS.items()
        for clients in program.clients
    ],
    open=comparisons,
    default=["sandbox/[!e]*"],  # without containers, so that it takes minutes
    options=_options,
)

if __name__ == "__main__":
    raise SystemExit(peers.main(SUITE, __doc__))
