"""`tirjudge serve`: the judge over HTTP, for whoever wants verdicts or rewards."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Annotated

import typer

from tirjudge import __version__
from tirjudge.cli.judge_options import taking
from tirjudge.cli.judging_options import JudgingOptions
from tirjudge.cli.listening import (
    AllowHost,
    Host,
    MaxBody,
    Port,
    Queue,
    intake_limits,
    open_listening,
    url_of,
)
from tirjudge.cli.one_line import one_line_errors, say
from tirjudge.cli.token import read_token, token_file_option
from tirjudge.judging import JudgeConfig, Judging
from tirjudge.serve.app import create_app
from tirjudge.serve.settings import OPEN_PATHS, JudgeServerSettings
from tirjudge_sandbox.server.guard import Access
from tirjudge_sandbox.server.lifetime import serve_app

TOKEN = "TIRJUDGE_SERVE_TOKEN"


@taking
def serve(
    host: Host = "127.0.0.1",
    port: Port = 8082,
    token_file: Annotated[Path | None, token_file_option(TOKEN)] = None,
    allow_host: AllowHost = None,
    queue: Queue = 256,
    max_body: MaxBody = 16,
    no_verdict_reward: Annotated[
        float | None,
        typer.Option(metavar="REWARD", help="Where the judge gives no score. Default: the request fails."),
    ] = None,
    *,
    options: JudgingOptions,
) -> None:
    """Serve the judge over HTTP, for verdicts and for rewards.

    /v1/judge has the former, /get_reward the latter as OpenRLHF asks for them; and there is /metrics. SIGTERM
    or Ctrl-C finishes what was accepted; Ctrl-C again ends at once. Exit code 2 for wrong usage, for a model
    or a sandbox that cannot be had, and for an address that cannot.
    """
    with one_line_errors("serve"):
        settings = JudgeServerSettings(
            access=Access(
                token=read_token(TOKEN, token_file), hosts=tuple(allow_host or ()), open_paths=OPEN_PATHS
            ),
            intake=intake_limits(queue, max_body),
            no_verdict_reward=no_verdict_reward,
        )
        with open_listening(host, port, settings.access, TOKEN) as listening:
            asyncio.run(_serving(options.config(), listening, settings))


async def _serving(config: JudgeConfig, listening: socket.socket, settings: JudgeServerSettings) -> None:
    async with Judging(config) as judging:
        app = create_app(judging, settings, version=__version__)
        await serve_app(
            app,
            listening,
            settings.intake.requests,
            lambda: say(f"tirjudge serve: {url_of(listening)} judges with {judging.model}"),
        )
    say("tirjudge serve: ended")
