"""`tirjudge serve`: verdicts and rewards over HTTP."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Annotated

from tirjudge import __version__
from tirjudge.cli.listening import (
    GRACE,
    AllowHost,
    Grace,
    Host,
    MaxBody,
    PerCaller,
    Port,
    Queue,
    intake_limits,
    open_listening,
    read_access,
    token_file_option,
    url_of,
)
from tirjudge.cli.options import takes_options
from tirjudge.cli.output import examples, option, say
from tirjudge.generation.spending import Spending
from tirjudge.judging.judge_engine import JudgeEngine
from tirjudge.judging.options import OF_RUNS, JudgeOptions
from tirjudge.serve.app import create_app
from tirjudge.serve.service import OPEN_PATHS, JudgeServerSettings
from tirjudge_sandbox.server.lifetime import serve_app

TOKEN = "TIRJUDGE_SERVE_TOKEN"


@examples(
    "tirjudge serve --model Qwen/Qwen3-8B --base-url http://localhost:8000/v1",
    "tirjudge serve --config judge.toml --port 0 --no-verdict-reward 0",
)
@takes_options("serve", without=OF_RUNS)
def serve(
    host: Host = "127.0.0.1",
    port: Port = 8082,
    token_file: Annotated[Path | None, token_file_option(TOKEN)] = None,
    allow_host: AllowHost = None,
    queue: Queue = 256,
    per_caller: PerCaller = None,
    max_body: MaxBody = 16,
    grace: Grace = GRACE,
    no_verdict_reward: Annotated[
        float | None,
        option(
            "Server", "Reward of a response without a score.  [default: the request fails]", metavar="REWARD"
        ),
    ] = None,
    *,
    options: JudgeOptions,
) -> None:
    """Serve the judge over HTTP, for verdicts and for rewards.

    /v1/judge answers with verdicts, /v1/chat/completions with verdicts for OpenAI's clients, /get_reward with
    rewards in OpenRLHF's format, /metrics with metrics for Prometheus. SIGTERM or Ctrl-C finishes accepted
    requests within --grace; Ctrl-C again ends at once. Exit code 2 for wrong usage, and for a model, sandbox
    or address that is not available.
    """
    settings = JudgeServerSettings(
        access=read_access(TOKEN, token_file, allow_host, OPEN_PATHS),
        intake=intake_limits(queue, max_body, per_caller, grace),
        no_verdict_reward=no_verdict_reward,
    )
    with open_listening(host, port, settings.access, TOKEN) as listening:
        asyncio.run(_serving(options, listening, settings))


async def _serving(options: JudgeOptions, listening: socket.socket, settings: JudgeServerSettings) -> None:
    spending = Spending(prices=options.prices(), limit=options.max_cost)
    async with JudgeEngine(options, spending=spending) as engine:
        app = create_app(engine, settings, version=__version__, truncate=options.truncate)
        await serve_app(
            app,
            listening,
            settings.intake.connections,
            lambda: say(f"tirjudge serve: {url_of(listening)} judges with {engine.model}"),
        )
    say("tirjudge serve: ended")
