"""Run untrusted Python programs: each one limited, isolated and independent of every other."""

from tirjudge_sandbox.base import (
    Execution,
    Isolation,
    Limits,
    Program,
    Sandbox,
    SandboxUnavailable,
    Status,
)
from tirjudge_sandbox.import_policy import ImportPolicy
from tirjudge_sandbox.isolated import run_with_isolated
from tirjudge_sandbox.registry import open_sandbox

__all__ = [
    "Execution",
    "ImportPolicy",
    "Isolation",
    "Limits",
    "Program",
    "Sandbox",
    "SandboxUnavailable",
    "Status",
    "open_sandbox",
    "run_with_isolated",
]
