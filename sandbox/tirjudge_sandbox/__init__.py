"""Run untrusted Python programs: each one limited, isolated and independent of every other."""

from tirjudge_sandbox.base import (
    Execution,
    Isolation,
    Limits,
    PackageMissing,
    Program,
    Sandbox,
    SandboxUnavailable,
    Status,
)
from tirjudge_sandbox.blocking import BlockingSandbox, open_sandbox_sync
from tirjudge_sandbox.import_policy import ImportPolicy
from tirjudge_sandbox.registry import open_sandbox
from tirjudge_sandbox.untrusted_code import run_with_isolated

__version__ = "0.1.0"  # of every distribution that is built from this repository

__all__ = [
    "BlockingSandbox",
    "Execution",
    "ImportPolicy",
    "Isolation",
    "Limits",
    "PackageMissing",
    "Program",
    "Sandbox",
    "SandboxUnavailable",
    "Status",
    "open_sandbox",
    "open_sandbox_sync",
    "run_with_isolated",
]
