"""The rollouts of verifiers: its agent, its smallest harness and its client for training, as they ship.

No harness of verifiers 0.4 runs in this process: each rollout starts a program, which asks for the model's
turns through an interception server and calls the tool over MCP. The program is that of the harness `null`,
which only chats and calls tools, here under this Python instead of uv's. `TrainClient` renders the chat
template and asks vLLM's route `/inference/v1/generate` for token ids.

Measured are therefore the start and end of one Python process for each rollout, which take most of the
time, the requests over HTTP, and the trace. What can be shared is: the interception servers, as under
`vf-eval`, and one server in this process with the model, which is the generator of our engine, and the
tool, which verifiers would otherwise start in a process of its own for each rollout.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from benchmarks.rollout_throughput.base import Loop, printed
from benchmarks.rollout_throughput.dialogues import (
    LONGEST,
    SAMPLING,
    SCHEMA,
    SYSTEM,
    Dialogue,
    Tokens,
    Workload,
)
from tests.environments.adapters.harness_program import installed_program
from tirjudge_environments import Context, Prompt
from tirjudge_environments.types import Finish


@asynccontextmanager
async def verifiers_loop(workload: Workload) -> AsyncIterator[Loop]:
    """Open `vf.Agent` with the harness `null`, whose model and tool are served in this process."""
    import verifiers.v1 as vf
    from renderers import DefaultRendererConfig
    from renderers.parsers import TOOL_PARSERS
    from verifiers.v1.harnesses.null import NullHarnessConfig
    from verifiers.v1.interception import ElasticInterceptionPool

    generator, sandboxes = workload.generator, [None]

    async def generate(body: dict[str, Any]) -> dict[str, Any]:
        context = Context(Prompt(messages=()), (), tuple(body["token_ids"]))
        done = await generator.generate(context, SAMPLING)
        ids = done.token_ids or ()
        logprobs = [
            {"token": f"token_id:{token}", "logprob": logprob}
            for token, logprob in zip(ids, done.logprobs or (), strict=True)
        ]
        choice = {"index": 0, "token_ids": list(ids), "logprobs": {"content": logprobs}}
        reason = "length" if done.finish is Finish.LENGTH else "stop"
        return {"choices": [choice | {"finish_reason": reason}]}

    async def run(code: str) -> str:
        return await printed(sandboxes[0], code)

    class Python(vf.Toolset[vf.ToolsetConfig, vf.State]):
        TOOL_PREFIX = None

    class Case(vf.Task[vf.TaskData, vf.State]):
        @classmethod
        def toolsets(cls, config: vf.TaskConfig) -> list[vf.Toolset]:
            return [Python(vf.ToolsetConfig(url=f"{url}/mcp"))]

    async def one(agent: vf.Agent, dialogue: Dialogue) -> Tokens:
        (asked,) = dialogue.task.prompt
        trace = await agent.run(Case(vf.TaskData(prompt=asked.content, system_prompt=SYSTEM)))
        if not trace.ok:
            raise RuntimeError(f"verifiers failed: {trace.errors}")
        (branch,) = trace.branches
        ids, mask = branch.token_ids, branch.sampled_mask
        start = mask.index(True)
        return Tokens.of(ids[:start], ids[start:], mask[start:])

    with (
        TemporaryDirectory() as folder,
        patch.dict(TOOL_PARSERS, {"text": _CallsInText}),
        installed_program(),
    ):
        workload.tokenizer.save_pretrained(folder)
        async with _served(generate, run) as url, ElasticInterceptionPool() as interception:
            client = vf.TrainClientConfig(
                base_url=f"{url}/v1",
                api_key_var="NO_KEY",
                renderer=DefaultRendererConfig(tool_parser="text"),
                renderer_model_name=folder,
            )
            config = vf.AgentConfig(
                # So that its modules are compiled once, in the pair that is not counted.
                harness=NullHarnessConfig(id="null", env={"PYTHONDONTWRITEBYTECODE": ""}),
                runtime=vf.SubprocessConfig(),
                model="memorised",
                client=client,
                sampling=vf.SamplingConfig(temperature=0.0, max_tokens=LONGEST),
            )
            async with vf.Agent(config, interception=interception) as agent:

                async def roll_out(dialogues: Sequence[Dialogue], sandbox: Any) -> list[Tokens]:
                    sandboxes[0] = sandbox
                    return await asyncio.gather(*(one(agent, dialogue) for dialogue in dialogues))

                yield Loop(f"verifiers {version('verifiers')}", roll_out, lambda: generator.busy_seconds)


class _CallsInText:
    """A parser of Qwen2.5's tool calls for a tokenizer without the token `<tool_call>`.

    The parser that renderers ships finds a call by that token.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def extract(self, token_ids: list[int]) -> tuple[list[int], list[Any]]:
        """Return the ids of the text before a call, and the call."""
        from renderers.base import ParsedToolCall

        said, opened, called = self._tokenizer.decode(token_ids).partition("\n<tool_call>")
        if not opened:
            return token_ids, []
        raw = called.partition("</tool_call>")[0]
        call = ParsedToolCall(raw, **json.loads(raw))
        return self._tokenizer.encode(said, add_special_tokens=False), [call]


@asynccontextmanager
async def _served(generate: Any, run: Any) -> AsyncIterator[str]:
    """Serve the model and the tool on a free port, in this event loop, and yield the URL."""
    import mcp_types
    import uvicorn
    from mcp.server.lowlevel import Server
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    described = SCHEMA["function"]
    tool = mcp_types.Tool(
        name=described["name"], description=described["description"], input_schema=described["parameters"]
    )

    async def listed(context: Any, params: Any) -> mcp_types.ListToolsResult:
        return mcp_types.ListToolsResult(tools=[tool])

    async def called(context: Any, params: mcp_types.CallToolRequestParams) -> mcp_types.CallToolResult:
        text = await run(**(params.arguments or {}))
        return mcp_types.CallToolResult(content=[mcp_types.TextContent(type="text", text=text)])

    async def generated(request: Request) -> JSONResponse:
        return JSONResponse(await generate(await request.json()))

    app = Server("python", on_list_tools=listed, on_call_tool=called).streamable_http_app(
        # As verifiers serves a toolset.
        json_response=True,
        stateless_http=True,
        custom_starlette_routes=[Route("/inference/v1/generate", generated, methods=["POST"])],
    )
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", ws="none"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = asyncio.create_task(server.serve([listening]))
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving
