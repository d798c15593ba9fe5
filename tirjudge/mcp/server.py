"""The MCP server with two tools, over standard input and output or over HTTP."""

# No `from __future__ import annotations`: the SDK reads the tools' annotations, whose names are local here.
from typing import Annotated, Any

from pydantic import Field

from tirjudge.generation.base import GeneratorFailed
from tirjudge.generation.spending import CostReached
from tirjudge.judge import Judge
from tirjudge.mcp.run_python import ReturnMode, SandboxFailed, run_python_code
from tirjudge.records.answers import JudgeAnswer
from tirjudge.serve.messages import CriterionRequest
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
    box: Sandbox, opened: Judge, *, version: str, limits: Limits, mode: ReturnMode = "xml"
) -> Any:
    """Return the SDK's `MCPServer` around an open sandbox, whose `limits` apply to each program, and a judge.

    The judge opens at the first question. Raises PackageMissing without the extra `mcp`.
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
            dict[str, Any],
            Field(
                default_factory=dict,
                description="Map of global variables in context when the code is executed",
            ),
        ],
    ) -> str:
        try:
            answer = await run_python_code(
                box, python_code, global_variables, mode, limits, client=CALLER.get()
            )
        except SandboxFailed as error:
            raise ToolError(str(error)) from None
        return answer.shown(mode)

    @server.tool("judge", "Judge responses", _JUDGE)
    async def judge(
        prompt: Annotated[Said, Field(description="The prompt that the responses answer, or a conversation")],
        responses: Annotated[list[Said], Field(min_length=1, description="The responses to judge")],
        pointwise: Annotated[bool, Field(description="Score each response alone")] = False,
        criteria: Annotated[
            list[str | CriterionRequest] | None,
            Field(description="What to judge by, each on its own; without any, the whole prompt"),
        ] = None,
        reference: Annotated[str, Field(description="A reference answer to compare with")] = "",
    ) -> JudgeAnswer:
        given = [one if isinstance(one, str) else one.model_dump() for one in criteria or ()]
        try:
            judgment = await opened.arank(
                prompt, responses, pointwise=pointwise, criteria=given or None, reference=reference
            )
        except (CostReached, GeneratorFailed, SandboxUnavailable, TypeError, ValueError) as error:
            raise ToolError(str(error)) from None
        if judgment.stop.unscored:
            raise ToolError(judgment.detail or judgment.stop.value)
        return judgment.answer()

    return server


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
