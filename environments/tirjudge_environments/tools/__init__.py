"""Tools that a judge calls during a dialogue: Python in the sandbox, and the tools of MCP servers."""
