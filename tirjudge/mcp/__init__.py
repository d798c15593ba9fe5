"""The Model Context Protocol server: programs and verdicts as tools of an agent."""
