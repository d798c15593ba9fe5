"""Tools that a judge calls during a dialogue: Python in the sandbox, tests, and the tools of MCP servers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from tirjudge_environments.tools.base import CALLABLE, RESERVED, TESTS, Tool, ToolSettings, ToolUnavailable
from tirjudge_environments.tools.code_tests import RunTests
from tirjudge_environments.tools.mcp import McpServer, McpTool
from tirjudge_sandbox import Sandbox


@asynccontextmanager
async def open_tools(settings: ToolSettings, sandbox: Sandbox) -> AsyncIterator[tuple[Tool, ...]]:
    """Open the servers and yield the tools that a judge may call, in the order of the settings.

    `sandbox` is open, and runs tests. Raises ToolUnavailable for a server that cannot be opened, for an
    allowed tool that is not there, and for names that are not unique or that a judge cannot call.
    """
    async with AsyncExitStack() as stack:
        offered: list[Tool] = []
        for address in settings.servers:
            if address == TESTS:
                offered.append(RunTests(sandbox, settings.limits))
            else:
                server = await stack.enter_async_context(
                    McpServer(address, settings.limits, settings.authorization_for(address))
                )
                offered += [McpTool(server, spec) for spec in server.specs]
        names = [tool.spec.name for tool in offered]
        for name in settings.allowed:
            if name not in names:
                raise ToolUnavailable(f"no tool {name!r} is offered; there are {', '.join(names)}")
        chosen = [tool for tool in offered if not settings.allowed or tool.spec.name in settings.allowed]
        for tool in chosen:
            name = tool.spec.name
            reserved = name in RESERVED and isinstance(tool, McpTool)
            if not CALLABLE.fullmatch(name) or reserved or names.count(name) > 1:
                reason = "two tools have it" if names.count(name) > 1 else "a judge cannot call it"
                raise ToolUnavailable(f"the name {name[:64]!r} of a tool: {reason}; allow only other tools")
        yield tuple(chosen)
