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
from tirjudge_sandbox.registry import open_sandbox
from tirjudge_sandbox.untrusted_code import run_with_isolated

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
