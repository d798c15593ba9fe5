"""Rows judged per second through an endpoint, compared with the runners of Inspect and RewardBench.

    OMP_NUM_THREADS=1 .venv-inspect/bin/python -m benchmarks.endpoint_judging --only judging/inspect

All read the same rows, send one request for each to the same endpoint, 32 at once, read the verdict and write
a result file or a log. The endpoint runs in a process of its own, answers after `--delay` seconds with the
same verdict and takes little CPU time, so this measures the runners and no model. One turn without programs.

Inspect's task is a dataset with our prompts, `generate()` and a scorer; the endpoint compares the prompts.
RewardBench is `rewardbench-gen` of its last release, with prompts of its own. It needs old versions of other
packages and does not declare those that it imports; they fit into an environment over `.venv`, without CUDA:

    . .ci/overlay && overlay rewardbench && pip=.venv-rewardbench/bin/pip
    $pip install --no-deps rewardbench==0.1.4
    $pip install transformers==4.51.0 trl==0.15.2 'datasets<4' bitsandbytes fschat openai anthropic \\
        google-generativeai together tabulate sentencepiece
    .venv-rewardbench/bin/python -m benchmarks.endpoint_judging --only judging/rewardbench

The limit is a client that only sends the requests and reads the answers.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import io
import json
import logging
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from benchmarks import peers
from benchmarks.http_load import Connection, load, request, server
from benchmarks.peers import Comparison, Limit, Run, Unavailable
from benchmarks.stream_memory import Counting, write_rows
from tirjudge.data.rows import RowFile
from tirjudge.judging.batch import BatchRunner, EngineRowJudge, ResultSink
from tirjudge.judging.judge_engine import JudgeEngine
from tirjudge.judging.options import JudgeOptions
from tirjudge.storage.result_file import ResultFile
from tirjudge_environments.formats.tir_comparison import TirPairwise
from tirjudge_environments.tasks import read_task

AT_ONCE = 32
TEXT = "The first one answers. [[A]] <preference>A</preference>"
"""A verdict as RewardBench reads it, and as the others do."""
ANSWER = {
    "id": "chatcmpl-0",
    "object": "chat.completion",
    "created": 0,
    "model": "stand-in",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 300, "completion_tokens": 12, "total_tokens": 312},
}


class Endpoint:
    """A chat endpoint that answers after a delay, and knows which prompts it has got."""

    def __init__(self, delay: float) -> None:
        self._delay = delay
        self._prompts: list[str] = []

    async def serve(self) -> None:
        """Print the address and serve until the process is ended."""
        listening = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        host, port = listening.sockets[0].getsockname()
        print(f"http://{host}:{port}", flush=True)
        await listening.serve_forever()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = re.search(r"(?i)content-length: *(\d+)", head)
                body = json.loads(await reader.readexactly(int(length[1]))) if length else {}
                if head.startswith("GET"):
                    answer: dict[str, Any] = {"object": "list", "data": []}  # the models
                else:
                    answer = self._seen() if head.startswith("POST /seen") else await self._answer(body)
                text = json.dumps(answer).encode()
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
                    b"content-length: %d\r\n\r\n%b" % (len(text), text)
                )
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _answer(self, body: Any) -> dict[str, Any]:
        self._prompts.append(body["messages"][-1]["content"])
        await asyncio.sleep(self._delay)
        return ANSWER

    def _seen(self) -> dict[str, Any]:
        """Return the summary of the prompts since the last call."""
        prompts, self._prompts = self._prompts, []
        return summary(prompts)


def summary(prompts: Sequence[str]) -> dict[str, Any]:
    """Return the number of prompts and a digest of them in any order."""
    digest = hashlib.sha256("".join(sorted(prompts)).encode()).hexdigest()
    return {"count": len(prompts), "digest": digest}


class Rows:
    """The rows in a file, and as prompts in another, which Inspect reads."""

    def __init__(self, folder: Path, count: int) -> None:
        self.count, self.rows, self.prompts = count, folder / "rows.jsonl", folder / "prompts.jsonl"
        write_rows(self.rows, count)
        judge = TirPairwise(order="given", tools=False)
        lines = self.rows.read_text(encoding="utf-8").splitlines()
        tasks = [read_task(json.loads(line), default_id="") for line in lines]
        prompts = [judge.prompt(task, judge.views(task)[0]).messages[0].content for task in tasks]
        self.seen = summary(prompts)
        """The summary of the prompts that the endpoint must receive in every run."""
        with self.prompts.open("w", encoding="utf-8") as file:
            for task, prompt in zip(tasks, prompts, strict=True):
                file.write(json.dumps({"input": prompt, "target": "AB"[task.label or 0]}) + "\n")


@dataclass(frozen=True, slots=True)
class Bench:
    """The endpoint, and the rows in the files that the runners read."""

    url: str
    rows: Rows

    async def own(self) -> Run:
        """Judge the rows with this package, as `tirjudge judge` does."""
        config = JudgeOptions(
            model="stand-in", base_url=f"{self.url}/v1", tools=False, order="given", concurrency=AT_ONCE
        )
        watcher = Counting()
        with TemporaryDirectory() as folder:
            started = time.perf_counter()
            async with JudgeEngine(config) as engine:
                with ResultFile(Path(folder) / "verdicts.jsonl", {}) as results:
                    runner = BatchRunner(EngineRowJudge(engine).row, ResultSink(results, watcher))
                    await runner.run(RowFile(str(self.rows.rows)))
            seconds = time.perf_counter() - started
        return await self._checked(watcher.tally.judged, seconds)

    async def inspect(self) -> Run:
        """Judge the rows with Inspect's `eval`."""
        from inspect_ai import Task, eval_async
        from inspect_ai.dataset import json_dataset
        from inspect_ai.model import GenerateConfig, get_model
        from inspect_ai.scorer import pattern
        from inspect_ai.solver import generate

        task = Task(
            dataset=json_dataset(str(self.rows.prompts)),
            solver=generate(),
            scorer=pattern(r"<preference>([AB])</preference>"),
        )
        with TemporaryDirectory() as folder:
            started = time.perf_counter()
            model = get_model(
                "openai-api/local/stand-in",
                base_url=f"{self.url}/v1",
                api_key="none",
                config=GenerateConfig(max_connections=AT_ONCE, temperature=0.0),
                memoize=False,
            )
            (log,) = await eval_async(
                task, model=model, log_dir=folder, max_samples=AT_ONCE, log_level="error"
            )
            seconds = time.perf_counter() - started
        return await self._checked(log.results.completed_samples if log.results else 0, seconds)

    async def rewardbench(self) -> Run:
        """Judge the rows with `rewardbench-gen`, which reads them in place of a dataset of the hub."""
        from datasets import Dataset
        from scripts import run_generative

        def load(**_: Any) -> tuple[Any, list[str]]:
            rows = [json.loads(line) for line in self.rows.rows.read_text(encoding="utf-8").splitlines()]
            given = [
                {
                    "text_chosen": chat(row["prompt"], row["responses"][0]),
                    "text_rejected": chat(row["prompt"], row["responses"][1]),
                    "id": number,
                }
                for number, row in enumerate(rows)
            ]
            return Dataset.from_list(given), ["rows"] * len(given)

        words = ["rewardbench-gen", "--model", "gpt-4o-2024-08-06", "--num_threads", str(AT_ONCE)]
        words += ["--do_not_save", "--disable_beaker_save", "--pref_sets"]
        with (
            TemporaryDirectory() as folder,
            contextlib.chdir(folder),
            contextlib.redirect_stdout(io.StringIO()),
            patch.object(sys, "argv", words),
            patch.object(run_generative, "load_eval_dataset", load),
            patch.dict(os.environ, {"OPENAI_BASE_URL": f"{self.url}/v1", "OPENAI_API_KEY": "none"}),
        ):
            started = time.perf_counter()
            await asyncio.to_thread(run_generative.main)
            seconds = time.perf_counter() - started
        judged = (await self._seen())["count"]
        if judged != self.rows.count:
            raise RuntimeError(f"RewardBench sent {judged} requests for {self.rows.count} rows")
        return Run(judged / seconds)

    async def bare(self) -> float:
        """Return requests per second of a client that only sends requests and reads answers."""
        payload = request("/v1/chat/completions", {"messages": [{"role": "user", "content": "Which?"}]})
        found = await load(self.url, payload, lambda answer: answer.status == 200, AT_ONCE, 2.0)
        await self._seen()
        return found.rate

    async def _checked(self, judged: int, seconds: float) -> Run:
        """Return the run; raises RuntimeError unless every row was judged by the prompts of all runs."""
        seen = await self._seen()
        if (judged, seen) != (self.rows.count, self.rows.seen):
            raise RuntimeError(f"{judged} of {self.rows.count} rows were judged, by the prompts {seen}")
        return Run(judged / seconds)

    async def _seen(self) -> dict[str, Any]:
        async with Connection.to(self.url) as connection:
            answer = await connection.ask(request("/seen", {}))
        return dict(answer.body)


def chat(prompt: str, response: str) -> list[dict[str, str]]:
    """Return a prompt and a response as RewardBench's datasets hold them."""
    return [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}]


RUNNERS = {
    "inspect": ("inspect_ai", Bench.inspect, ".ci/frameworks install inspect"),
    "rewardbench": ("rewardbench", Bench.rewardbench, "see the docstring of benchmarks.endpoint_judging"),
}
"""Name of the peer: its package, its runner, and how to install it."""


async def comparisons(
    names: Sequence[str], options: argparse.Namespace
) -> AsyncIterator[Comparison | Unavailable]:
    """Yield the comparisons, while the endpoint runs."""
    runners = {name: RUNNERS[name.removeprefix("judging/")] for name in names}
    for name, (package, _, install) in list(runners.items()):
        if find_spec(package) is None or find_spec("openai") is None:
            yield Unavailable(name, f"not installed; {install}")
            del runners[name]
    if not runners:
        return
    if "judging/inspect" in runners:
        from inspect_ai.util._display import init_display_type

        init_display_type("none")  # it would take the terminal, and time
    logging.getLogger("httpx").setLevel(logging.WARNING)
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        arguments = ("--serve", str(options.delay))
        url, _ = await stack.enter_async_context(server("benchmarks.endpoint_judging", *arguments))
        bench = Bench(url, Rows(Path(folder), options.rows))
        limit = Limit(
            rate=await bench.bare(),
            why=f"a client that only sends requests, {AT_ONCE} at once, to an endpoint that takes "
            f"{options.delay * 1000:.0f} ms",
        )
        for name, (package, run, _) in runners.items():
            yield Comparison(
                name=name,
                peer=f"{package} {version(package)}",
                unit="rows/s",
                measure_own=bench.own,
                measure_peer=partial(run, bench),
                limit=limit,
            )


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=500, help="rows of each run")
    parser.add_argument("--delay", type=float, default=0.05, help="seconds that the endpoint takes")


SUITE = peers.Suite(names=[f"judging/{name}" for name in RUNNERS], open=comparisons, options=_options)

if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        asyncio.run(Endpoint(float(sys.argv[2])).serve())
    raise SystemExit(peers.main(SUITE, __doc__))
