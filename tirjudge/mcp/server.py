"""The MCP server with two tools, over standard input and output or over HTTP."""

# No `from __future__ import annotations`: the SDK reads the tools' annotations, whose names are local here.
import asyncio
import json
from functools import partial
from typing import Annotated, Any

from pydantic import Field, ValidationError

from tirjudge.generation.base import GeneratorFailed
from tirjudge.generation.spending import CostReached
from tirjudge.judge import Judge
from tirjudge.mcp.run_python import MOST_CHARACTERS, ReturnMode, SandboxFailed, run_python_code
from tirjudge.records.answers import JudgeAnswer
from tirjudge.serve.messages import CriterionRequest
from tirjudge_environments.quoting import cut_middle
from tirjudge_sandbox import Limits, PackageMissing, Sandbox, SandboxUnavailable
from tirjudge_sandbox.server.guard import CALLER, Access, App, Guard
from tirjudge_sandbox.server.intake import Intake, IntakeLimits

Said = str | list[dict[str, Any]] | dict[str, Any]
"""A text, or the messages of a conversation."""
PATH = "/mcp"
INTAKE = IntakeLimits(body_values=100_000)
"""The limits of requests over HTTP. The SDK reads a body several times, so it may have fewer values."""
_INSTRUCTIONS = (
    'Call the "run_python_code" tool with the Python code to run, and "judge" to have responses judged.'
)
_RUN = """Tool to execute Python code and return stdout, stderr, and return value.

The code may be async, and the value on the last line will be returned as the return value. Each call is a
separate program that keeps nothing from earlier calls. There is no network, and no subprocess can be started.
"""
_JUDGE = """Tool to judge responses to a prompt, by a model that runs programs to check them.

One response gets a score from 1 to 10. Of several, the verdict is the letter of the best (the first is A);
with `pointwise` each is scored alone. With `criteria` each is judged on its own, and `scores` are the shares,
from 0 to 1, that responses satisfy. `programs` lists the programs that the judge ran, `views` its verdicts
and reasoning. The judge may see the responses in another order: in a program or a reasoning, a letter means
the response whose index (from 0) `letters` gives.
"""


def create_server(
    box: Sandbox,
    opened: Judge,
    *,
    version: str,
    limits: Limits,
    mode: ReturnMode = "xml",
    most: int = MOST_CHARACTERS,
) -> Any:
    """Return the SDK's `MCPServer` around an open sandbox, whose `limits` apply to each program, and a judge.

    `most`: characters of an answer. The judge opens at the first question. Raises PackageMissing without the
    extra `mcp`.
    """
    try:
        import uvicorn  # noqa: F401
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
    except ImportError:
        raise PackageMissing("the MCP server needs the SDK: pip install 'tirjudge[mcp]'") from None

    server = MCPServer("tirjudge", instructions=_INSTRUCTIONS, version=version, log_level="ERROR")

    @server.tool("run_python_code", "Run Python code", _RUN, structured_output=False)
    async def run(
        python_code: Annotated[str, Field(description="Python code to run")],
        global_variables: Annotated[
            dict[str, Any] | None,
            Field(description="Map of global variables in context when the code is executed"),
        ] = None,
    ) -> str:
        variables = global_variables or {}
        try:
            answer = await run_python_code(box, python_code, variables, mode, limits, client=CALLER.get())
        except SandboxFailed as error:
            raise ToolError(str(error)) from None
        return answer.shown(mode, most)

    @server.tool("judge", "Judge responses", _JUDGE)
    async def judge(
        prompt: Annotated[Said, Field(description="The prompt that the responses answer, or a conversation")],
        responses: Annotated[list[Said], Field(min_length=1, description="The responses to judge")],
        pointwise: Annotated[bool | None, Field(description="Score each response alone")] = None,
        criteria: Annotated[
            list[str | CriterionRequest] | None,
            Field(description="What to judge by, each on its own; without any, the whole prompt"),
        ] = None,
        reference: Annotated[str | None, Field(description="A reference answer to compare with")] = None,
    ) -> JudgeAnswer:
        given = [one if isinstance(one, str) else one.model_dump() for one in criteria or ()]
        try:
            judgment = await opened.arank(
                prompt,
                responses,
                pointwise=bool(pointwise),
                criteria=given or None,
                reference=reference or "",
            )
        except (CostReached, GeneratorFailed, SandboxUnavailable, TypeError, ValueError) as error:
            raise ToolError(str(error)) from None
        if judgment.stop.unscored:
            raise ToolError(judgment.detail or judgment.stop.value)
        return _shortened(judgment.answer(), most)

    return server


def _shortened(answer: JudgeAnswer, most: int) -> JudgeAnswer:
    """Return the answer with shorter programs and reasoning, or without them, if it is too long."""
    for longest in (1000, 200):
        if len(answer.model_dump_json(indent=2)) > most:
            cut = partial(_with_short, longest=longest)
            programs = [cut(one, ("source", "output")) for one in answer.programs]
            views = [cut(one, ("reasoning", "detail")) for one in answer.views]
            answer = answer.model_copy(update={"programs": programs, "views": views})
    if len(answer.model_dump_json(indent=2)) <= most:
        return answer
    told = f"{answer.detail}; programs and views have no room in {most} characters".removeprefix("; ")
    return answer.model_copy(update={"programs": [], "views": [], "detail": told})


def _with_short(one: Any, names: tuple[str, ...], longest: int) -> Any:
    return one.model_copy(update={name: cut_middle(getattr(one, name), longest) for name in names})


async def serve_stdio(server: Any) -> None:
    """Serve over standard input and output; a line that is no message is answered too, under its id."""
    from anyio import create_memory_object_stream
    from mcp.server.stdio import stdio_server
    from mcp.shared.message import SessionMessage
    from mcp_types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError

    async with stdio_server() as (read, write), asyncio.TaskGroup() as tasks:
        passing, passed = create_memory_object_stream[Any]()

        async def pass_on() -> None:
            async with passing:
                async for item in read:
                    if isinstance(item, ValidationError):
                        found = item.errors()[0]
                        reason = found["msg"].encode("ascii", "backslashreplace").decode()
                        data = ErrorData(
                            code=PARSE_ERROR if found["type"] == "json_invalid" else INVALID_REQUEST,
                            message=f"not a message of JSON-RPC: {reason}",
                        )
                        error = JSONRPCError(jsonrpc="2.0", id=_id_of(item), error=data)
                        await write.send(SessionMessage(error))
                    else:
                        await passing.send(item)

        tasks.create_task(pass_on())
        served = server._lowlevel_server
        await served.run(passed, write, served.create_initialization_options())


def _id_of(unread: ValidationError) -> str | int | None:
    """Return the id of a request that could not be read; None if there is none."""
    try:
        given = unread.errors()[0]["input"]
        found = (json.loads(given) if isinstance(given, str) else given)["id"]
        json.dumps(found, ensure_ascii=False).encode()
    except (KeyError, RecursionError, TypeError, ValueError):
        return None
    return found if isinstance(found, str | int) else None


def http_app(server: Any, access: Access, intake: IntakeLimits) -> App:
    """Return the server as an ASGI application at `/mcp`: streamable HTTP without sessions.

    Requests are independent, so any number of servers can share an address.
    """
    from mcp.server.transport_security import TransportSecuritySettings

    app = server.streamable_http_app(
        streamable_http_path=PATH,
        stateless_http=True,
        json_response=True,
        max_request_body_size=intake.body_bytes,
        # The guard checks the Host header, for every name of the server.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    return Guard(Intake(app, intake), access)
