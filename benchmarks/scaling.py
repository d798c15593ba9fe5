"""The cost of judging many rows, and the number of sandboxes that keep a GPU busy.

    python -m benchmarks.scaling

Runs programs of the kinds that judges write in the sandbox and takes their times; the programs per
judgment are those of a file of verdicts. A simulation (simpy) of one engine with continuous batching and
of a pool of sandboxes, in which a fixed number of dialogues is always in flight, then gives judgments per
second by the number of sandboxes. The speed of a GPU, its price and the tokens of a judgment are assumed, not
measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import simpy

from benchmarks.reproduction import PROGRAMS
from tirjudge.console_text import table
from tirjudge.storage.json_lines import read_lines
from tirjudge_sandbox import Program, open_sandbox

VERDICTS = Path("examples/instructions.verdicts.jsonl")
PARAMETERS = 8.2e9
BANDWIDTH = 3.35e12
"""Bytes per second of an H100 SXM's memory: a token of a single sequence reads all weights once."""
SPEED = 0.1 * 989e12 / (2 * PARAMETERS)
"""Tokens per second of an H100 SXM that samples with a tenth of its bf16 peak, 2 operations per parameter."""
RESPONSE_TOKENS = 600
"""Mean tokens of a judgment."""
DOLLARS = 3.0
"""Price of an hour of a GPU."""
SANDBOXES = (1, 2, 4, 8, 16, 32, 64)
ENOUGH = 0.99
RESPONSES = "response_a, response_b = 'a long response ' * 50, '12'\nresponses = [response_a, response_b]\n"


@dataclass(frozen=True)
class Dialogue:
    """The mean shape of a judgment in one order: tokens that the judge writes, and its programs."""

    tokens: float
    calls: float


@dataclass(frozen=True)
class Engine:
    """An engine that shares `total` tokens a second among its sequences; each gets `single` at most."""

    total: float
    single: float

    def rate(self, sequences: int) -> float:
        """Return tokens per second of one of so many sequences."""
        return min(self.single, self.total / sequences)


class Generation:
    """The engine in a simulation: every sequence in it progresses at the rate that all of them leave it."""

    def __init__(self, clock: simpy.Environment, engine: Engine) -> None:
        self.tokens = 0.0
        self._clock, self._engine = clock, engine
        self._left: dict[simpy.Event, float] = {}
        self._since = 0.0
        self._changed = clock.event()
        clock.process(self._run())

    def write(self, tokens: float) -> simpy.Event:
        """Return the event that these tokens have been written."""
        self._advance()
        done = self._clock.event()
        self._left[done] = tokens
        self._changed.succeed()
        self._changed = self._clock.event()
        return done

    def _advance(self) -> None:
        if self._left:
            written = (self._clock.now - self._since) * self._engine.rate(len(self._left))
            self.tokens += written * len(self._left)
            self._left = {done: left - written for done, left in self._left.items()}
        self._since = self._clock.now

    def _run(self) -> Iterator[simpy.Event]:
        while True:
            if not self._left:
                yield self._changed
                continue
            first = min(self._left, key=self._left.__getitem__)
            seconds = max(0.0, self._left[first]) / self._engine.rate(len(self._left))
            changed = self._changed
            yield self._clock.timeout(seconds) | changed
            if not changed.triggered:
                self._advance()
                del self._left[first]
                first.succeed()


@dataclass(frozen=True)
class Simulated:
    """The outcome of a simulation, after the first fifth of the judgments."""

    judgments_per_second: float
    engine_share: float
    """Tokens that the engine wrote, as a share of what it can write."""
    sandbox_share: float
    """Share of the sandboxes' time in which they ran programs."""


def simulate(
    engine: Engine,
    dialogue: Dialogue,
    program: Callable[[random.Random], float],
    *,
    sandboxes: int,
    in_flight: int,
    judgments: int = 4000,
    seed: int = 0,
) -> Simulated:
    """Judge with `in_flight` dialogues at any time; `program` draws the seconds of a program.

    The tokens of a turn are exponential, and every dialogue has `calls` programs on average: the number below
    or the one above it.
    """
    clock, drawn = simpy.Environment(), random.Random(seed)
    generation, pool = Generation(clock, engine), simpy.Resource(clock, sandboxes)
    ran = [0.0]
    ended: list[tuple[float, float, float]] = []

    def judge() -> Iterator[simpy.Event]:
        while True:
            calls = int(dialogue.calls) + (drawn.random() < dialogue.calls % 1)
            for call in range(calls + 1):
                yield generation.write(drawn.expovariate((calls + 1) / dialogue.tokens))
                if call < calls:
                    with pool.request() as place:
                        yield place
                        seconds = program(drawn)
                        yield clock.timeout(seconds)
                        ran[0] += seconds
            ended.append((clock.now, generation.tokens, ran[0]))

    for _ in range(in_flight):
        clock.process(judge())
    while len(ended) < judgments:
        clock.step()
    first, last = ended[judgments // 5], ended[judgments - 1]
    seconds, tokens, busy = (late - early for early, late in zip(first, last, strict=True))
    return Simulated(
        judgments_per_second=(judgments - 1 - judgments // 5) / seconds,
        engine_share=tokens / seconds / engine.total,
        sandbox_share=busy / seconds / sandboxes,
    )


async def program_seconds(repeat: int) -> list[float]:
    """Run each of the programs alone in the sandbox, several times; return the seconds of each run."""
    found = []
    async with open_sandbox("local", capacity=1) as sandbox:
        await sandbox.run(Program(source=RESPONSES))
        for source in PROGRAMS * repeat:
            began = time.perf_counter()
            await sandbox.run(Program(source=RESPONSES + source))
            found.append(time.perf_counter() - began)
    return found


def scenarios(measured: Sequence[float]) -> dict[str, Callable[[random.Random], float]]:
    """Return how long programs take: as measured here, and longer."""
    return {
        "as measured": lambda drawn: drawn.choice(measured),
        "0.5 s each": lambda drawn: 0.5,
        "as measured, but 5 % take 10 s": lambda drawn: (
            10.0 if drawn.random() < 0.05 else drawn.choice(measured)
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--verdicts", type=Path, default=VERDICTS)
    parser.add_argument("--in-flight", type=int, default=256, help="dialogues at once (%(default)s)")
    parser.add_argument("--judgments", type=int, default=4000, help="of each simulation (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    options = parser.parse_args()
    engine = Engine(SPEED, 0.6 * BANDWIDTH / (2 * PARAMETERS))
    measured = asyncio.run(program_seconds(10))
    rows = list(read_lines(options.verdicts))
    dialogues = sum(len(row["views"]) for row in rows)
    dialogue = Dialogue(RESPONSE_TOKENS, sum(row["programs"] for row in rows) / dialogues)
    print("\n".join(assumed(options, engine, dialogue, measured, dialogues)))
    numbers = simulated(options, engine, dialogue, measured)
    print("\n".join(sandboxes_lines(numbers, options.in_flight)))
    speed = numbers["as measured"][options.in_flight]["judgments_per_second"]
    stored = options.verdicts.stat().st_size / dialogues
    program = sum(measured) / len(measured) * dialogue.calls
    print("\n".join(cost_lines(speed, program, stored)))
    if options.json:
        options.json.write_text(json.dumps(numbers, indent=1))


def assumed(
    options: argparse.Namespace,
    engine: Engine,
    dialogue: Dialogue,
    measured: Sequence[float],
    dialogues: int,
) -> Iterator[str]:
    yield (
        f"assumed: {engine.total:,.0f} tokens a second of one GPU, at most {engine.single:,.0f} of one "
        f"dialogue; {dialogue.tokens:,.0f} tokens per judgment; {options.in_flight} dialogues in flight"
    )
    yield (
        f"measured: {dialogue.calls:.2f} programs per judgment (n = {dialogues}, {options.verdicts}), "
        f"{1000 * sum(measured) / len(measured):.1f} ms per program (n = {len(measured)})"
    )


def simulated(
    options: argparse.Namespace, engine: Engine, dialogue: Dialogue, measured: Sequence[float]
) -> dict[str, dict[int, dict[str, float]]]:
    """Return the outcome of every scenario by the number of sandboxes, at last one for each dialogue."""
    return {
        name: {
            sandboxes: vars(
                simulate(
                    engine,
                    dialogue,
                    program,
                    sandboxes=sandboxes,
                    in_flight=options.in_flight,
                    judgments=options.judgments,
                    seed=options.seed,
                )
            )
            for sandboxes in (*SANDBOXES, options.in_flight)
        }
        for name, program in scenarios(measured).items()
    }


def needed(by_sandboxes: dict[int, dict[str, float]], in_flight: int) -> int | None:
    """Return the least number of sandboxes with which judging is nearly as fast as with any number."""
    best = by_sandboxes[in_flight]["judgments_per_second"]
    enough = [n for n in SANDBOXES if by_sandboxes[n]["judgments_per_second"] >= ENOUGH * best]
    return min(enough, default=None)


def sandboxes_lines(numbers: dict[str, dict[int, dict[str, float]]], in_flight: int) -> Iterator[str]:
    yield ""
    yield "judgments a second of one GPU (share of its tokens that it writes) by the number of sandboxes"
    head = ("programs", *map(str, SANDBOXES), "any", "needed")
    rows = [
        (
            name,
            *(
                f"{by[n]['judgments_per_second']:.1f} ({by[n]['engine_share']:.0%})"
                for n in (*SANDBOXES, in_flight)
            ),
            str(needed(by, in_flight) or f"over {SANDBOXES[-1]}"),
        )
        for name, by in numbers.items()
    ]
    yield from table([head, *rows], words=1)


def cost_lines(speed: float, program: float, stored: float) -> Iterator[str]:
    """Yield the cost at `speed` judgments a second, each with `program` seconds and `stored` bytes."""
    yield ""
    yield f"cost at ${DOLLARS:.2f} an hour of a GPU; a result has {stored:,.0f} bytes with its texts"
    head = ("judgments", "GPU hours", "core hours of programs", "storage", "dollars")
    rows = [
        (
            f"{count:,}",
            f"{count / speed / 3600:,.2f}",
            f"{count * program / 3600:,.2f}",
            f"{count * stored / 1e6:,.1f} MB",
            f"{count / speed / 3600 * DOLLARS:,.2f}",
        )
        for count in (1_000, 1_000_000)
    ]
    yield from table([head, *rows], words=0)


if __name__ == "__main__":
    main()
