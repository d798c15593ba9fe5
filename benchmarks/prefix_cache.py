"""Rows judged per second through a vLLM server on a CPU, with its prefix cache compared with without it.

    . .venv-vllm/bin/activate
    export OMP_NUM_THREADS=1 VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind
    python -m benchmarks.prefix_cache

Two servers have the same model, one of them with the cache, and wait while the other one is measured. The
rows are the first of `examples/instructions.jsonl`, judged as `tirjudge judge --tier completions` does,
programs in the sandbox included. The model is the embedded judge, its adapter merged.

* `greedy`: every row in both orders, one dialogue each;
* `samples`: every row in one order, `--samples` dialogues each, at temperature 1.

What can be reused in a run: the start that all prompts share, the prompt of a row by its samples, and the
first turn of a dialogue by its second. The cache is emptied before every run. Opening the sandbox is not
counted. Printed are also the share of the prompt tokens of all turns that vLLM took from its cache, by its
metrics, and the dialogues and verdicts that are unlike those of the first run.

The limit is the faster of two runs whose prompts, first turns included, are in the cache from the start.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from benchmarks import peers
from benchmarks.peers import Comparison, Limit, Run, Unavailable
from benchmarks.stream_memory import Counting
from tests.vllm_server import serving
from tirjudge.data.rows import RowFile
from tirjudge.generation.local.loading import load_model
from tirjudge.generation.vllm import SETTINGS
from tirjudge.judging.batch import BatchRunner, EngineRowJudge, Plan, ResultSink
from tirjudge.judging.judge_engine import JudgeEngine
from tirjudge.judging.options import JudgeOptions
from tirjudge.models import resolve_model
from tirjudge.models.resolve import NOTE_FILE, embedded_model, read_note
from tirjudge.storage.result_file import ResultFile

ROWS = Path(__file__).parents[1] / "examples" / "instructions.jsonl"
NAMES = ("greedy", "samples")
PATIENCE = 60.0
"""Seconds that a server has to answer what takes it no time: others may have the processor."""
CONTEXT = 2048
"""Tokens of the longest dialogue."""
BLOCK = 32
"""Tokens of a block of the cache; a CPU's fast kernels take no fewer. Only whole blocks are reused, and the
128 tokens that they have on a CPU by default are about as many as a first prompt has."""
SERVER = (
    *("--generation-config", "vllm", "--uvicorn-log-level", "error", "--no-use-tqdm-on-load"),
    *("--max-model-len", str(CONTEXT), "--max-num-batched-tokens", str(CONTEXT), "--block-size", str(BLOCK)),
    # A seeded row whose prompt is prefilled in chunks would crash the engine of a CPU.
    "--no-enable-chunked-prefill",
)
ENVIRONMENT = SETTINGS | {
    "VLLM_SERVER_DEV_MODE": "1",  # has the route that empties the cache
    "PYTHONWARNINGS": "ignore",
    "TORCHDYNAMO_DISABLE": "1",  # compiling the one function that counts ranks would take longer than a run
}
SHARE = "share of prompt tokens from the cache"
DIALOGUES = "dialogues unlike those of the first run"
VERDICTS = "verdicts unlike those of the first run"


@contextmanager
def both_sides(folder: Path) -> Iterator[tuple[str, str]]:
    """Run a server with the cache and one without, started at the same time; yield their URLs."""

    def start(option: str) -> str:
        return stack.enter_context(serving(folder, *SERVER, option, **ENVIRONMENT))[1]

    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        cached, uncached = pool.map(start, ("--enable-prefix-caching", "--no-enable-prefix-caching"))
        yield cached, uncached


class Recording(Counting):
    """A batch observer that keeps the verdict and the dialogues of every row."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, tuple[Any, list[list[str]]]] = {}

    def judged(self, row: Mapping[str, Any]) -> None:
        super().judged(row)
        dialogues = [[segment["text"] for segment in view["segments"]] for view in row["views"]]
        self.rows[row["id"]] = row["verdict"], dialogues


@dataclass(slots=True)
class Bench:
    """A way to judge the rows through either server, and what the first run has judged."""

    name: str
    config: JudgeOptions
    rows: int
    first: Mapping[str, tuple[Any, list[list[str]]]] = field(default_factory=dict)

    async def run(self, url: str, *, empty: bool = True) -> Run:
        """Judge the rows through the server at `url`, whose cache is emptied first if `empty`."""
        if empty:
            await emptied(url)
        before, watcher = await reused(url), Recording()
        config = self.config.model_copy(update={"base_url": f"{url}/v1"})
        with TemporaryDirectory() as folder, ResultFile(Path(folder) / "verdicts.jsonl", {}) as results:
            async with JudgeEngine(config) as engine:
                started = time.perf_counter()
                runner = BatchRunner(
                    EngineRowJudge(engine).row, ResultSink(results, watcher), Plan(limit=self.rows)
                )
                await runner.run(RowFile(str(ROWS)))
                seconds = time.perf_counter() - started
        after, tally = await reused(url), watcher.tally
        return Run(
            tally.judged / seconds,
            {
                SHARE: (after - before) / tally.prompt_tokens,
                "prompt tokens per row": tally.prompt_tokens / tally.judged,
                "written tokens per row": tally.completion_tokens / tally.judged,
                "programs per row": tally.programs / tally.judged,
                **self._unlike(watcher),
            },
        )

    def _unlike(self, watcher: Recording) -> dict[str, float]:
        """Count what is not as in the first run; the first run itself is remembered."""
        self.first = self.first or watcher.rows
        verdicts = dialogues = 0
        for row, (verdict, judged) in self.first.items():
            found = watcher.rows[row]
            verdicts += found[0] != verdict
            dialogues += sum(one != other for one, other in zip(found[1], judged, strict=True))
        if dialogues:  # the median over the runs would not show a single one
            told = f"{verdicts} of {len(self.first)} verdicts and {dialogues} dialogues"
            print(f"{self.name}: {told} are unlike those of the first run", file=sys.stderr)
        return {DIALOGUES: dialogues, VERDICTS: verdicts}


async def emptied(url: str) -> None:
    """Empty the prefix cache of a server; raises RuntimeError if it does not."""
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        answer = await client.post(f"{url}/reset_prefix_cache")
    if answer.status_code != 200 or not answer.json()["success"]:
        raise RuntimeError(f"the server did not empty its prefix cache: {answer.status_code} {answer.text}")


async def reused(url: str) -> float:
    """Return the prompt tokens that a server has taken from its prefix cache so far."""
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        text = (await client.get(f"{url}/metrics")).text
    counts = re.findall(r"^vllm:prefix_cache_hits_total\{.*\} (\S+)$", text, re.MULTILINE)
    return sum(map(float, counts))


def merge_model(name: str, folder: Path) -> None:
    """Write the whole model that is called `name` into a folder, with its note."""
    resolved = resolve_model(name or embedded_model())
    model, tokenizer = load_model(resolved, device="cpu", dtype="float32")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / NOTE_FILE).write_text(read_note(resolved).model_dump_json(exclude_unset=True))


def benches(model: Path, options: argparse.Namespace) -> dict[str, Bench]:
    """Return the ways to judge by their names."""
    judge = {
        "model": str(model),
        "base_url": "http://localhost",
        "tier": "completions",
        "tokenizer": str(model),
        "note_of": str(model),
    }
    ways = {
        "greedy": JudgeOptions(**judge, order="both"),
        "samples": JudgeOptions(**judge, order="given", samples=options.samples),
    }
    return {name: Bench(name, config, options.rows) for name, config in ways.items()}


async def comparisons(
    names: Sequence[str], options: argparse.Namespace
) -> AsyncIterator[Comparison | Unavailable]:
    """Yield the comparisons, while both servers run."""
    if find_spec("vllm") is None:
        yield Unavailable("judging/prefix-cache/*", "not installed; .ci/vllm install")
        return
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        merge_model(options.model, folder)
        ways = benches(folder, options)
        cached, uncached = stack.enter_context(both_sides(folder))
        for name in names:
            bench = ways[name.removeprefix("judging/prefix-cache/")]
            await bench.run(cached)
            known = [await bench.run(cached, empty=False) for _ in range(2)]
            yield Comparison(
                name=name,
                peer=f"vLLM {version('vllm-cpu')} without the cache",
                unit="rows/s",
                measure_own=partial(bench.run, cached),
                measure_peer=partial(bench.run, uncached),
                limit=Limit(
                    rate=max(run.rate for run in known),
                    why=f"{known[0].others[SHARE]:.0%} of the prompt tokens cached before the run, so that "
                    "decoding and programs remain",
                ),
            )


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=8, help="rows of each run, at most 12")
    parser.add_argument("--samples", type=int, default=4, help="dialogues about a row in `samples`")
    parser.add_argument("--model", default="", help="what `--model` of tirjudge accepts; default: embedded")


SUITE = peers.Suite(
    names=[f"judging/prefix-cache/{name}" for name in NAMES], open=comparisons, options=_options
)

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the servers too
    raise SystemExit(peers.main(SUITE, __doc__))
