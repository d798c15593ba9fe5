"""A small MCP server by the SDK, over pipes, or over HTTP: `python sdk_server.py sessions|stateless PORT`."""

import sys

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("tests", log_level="ERROR")


@server.tool()
def search(query: str) -> str:
    """Search a corpus of facts."""
    if "prime" not in query:
        raise ToolError(f"nothing is known about {query!r}")
    return "51 is no prime."


@server.tool()
async def hang() -> str:
    """Never answer."""
    import anyio

    await anyio.sleep_forever()
    return ""


@server.tool()
def flood(size: int) -> str:
    """Answer with this many characters."""
    return "x" * size


if __name__ == "__main__":
    if sys.argv[1:]:
        server.run("streamable-http", port=int(sys.argv[2]), stateless_http=sys.argv[1] == "stateless")
    else:
        server.run("stdio")
