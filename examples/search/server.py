"""An MCP server that finds lines of a text file: `python examples/search/server.py FILE`.

It needs the extra `mcp`. A line is found by the rare words that it shares with the query.
"""

import re
import sys
from collections import Counter
from math import log
from pathlib import Path

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

LINES = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
server = MCPServer("search", log_level="ERROR")


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


INDEX = list(map(words, LINES))
LINES_WITH = Counter(word for found in INDEX for word in found)


@server.tool()
def search(query: str) -> str:
    """Search the facts."""
    asked = words(query)
    scores = [sum(log(len(LINES) / LINES_WITH[word]) for word in asked & found) for found in INDEX]
    best = max(scores)
    if best == 0:
        raise ToolError("nothing is known about this")
    return LINES[scores.index(best)]


server.run("stdio")
