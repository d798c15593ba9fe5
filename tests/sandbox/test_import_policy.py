"""The import policy: its refusals and their messages, no false alarms, and its limits as a protection."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tirjudge_sandbox import ImportPolicy, Program, Sandbox, Status, open_sandbox
from tirjudge_sandbox.guest import import_policy
from tirjudge_sandbox.import_policy import STANDARD_LIBRARY

pytestmark = pytest.mark.asyncio(loop_scope="module")

NETWORK = "there is no network here"
PROGRAM = "no other program can be started here"
PROCESS = "a program here is one process, which may have threads"
INTERPRETER = "programs here do not look into the interpreter"


@pytest.fixture(scope="module")
def check() -> import_policy.Check:
    return import_policy.check(ImportPolicy().imports)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def strict() -> AsyncIterator[Sandbox]:
    async with open_sandbox("local", capacity=1, preload=(), import_policy=ImportPolicy()) as box:
        yield box


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def free() -> AsyncIterator[Sandbox]:
    async with open_sandbox("local", capacity=1, preload=()) as box:
        yield box


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import requests", f"line 1: import of requests: {NETWORK}"),

        ("from urllib import request", f"line 1: import of urllib: {NETWORK}"),

        ("def f():\n    import subprocess", f"line 2: import of subprocess: {PROGRAM}"),
        ("import multiprocessing.pool", f"line 1: import of multiprocessing.pool: {PROCESS}"),
        (
            "from concurrent.futures import ProcessPoolExecutor",
            f"line 1: concurrent.futures.ProcessPoolExecutor: {PROCESS}",
        ),
        ("import asyncio\nasyncio.create_subprocess_exec", f"line 2: create_subprocess_exec: {PROGRAM}"),
        ("import ctypes", f"line 1: import of ctypes: {INTERPRETER}"),

        ("from . import x", "line 1: a relative import: a program here is no package"),
        ("import os\nos.system('ls')", f"line 2: os.system: {PROGRAM}"),


        ("().__class__.__base__.__subclasses__()", f"line 1: .__subclasses__: {INTERPRETER}"),
        ("(lambda: 0).__globals__['x'] += 1", f"line 1: .__globals__: {INTERPRETER}"),

        ("x: int = __import__('os')", f"line 1: __import__: {INTERPRETER}"),

    ],
)  # fmt: skip
async def test_reasons_name_the_line_and_the_problem(check, source, reason):
    assert check(source.encode()) == f"PolicyError: the program was not run: {reason}"


async def test_every_module_of_the_standard_library_that_is_allowed_can_be_imported(strict):
    source = f"import importlib\nfor name in {sorted(STANDARD_LIBRARY)}: importlib.import_module(name)"
    ran = await strict.run(Program(source=source))
    assert (ran.status, ran.stderr) == (Status.OK, "")


async def test_modules_of_the_program_itself_may_be_imported(strict):
    files = {"solution.py": b"n = 1", "package/__init__.py": b"n = 2"}
    source = "open('late.py', 'w').write('n = 3')\nimport late, package, solution\n"
    source += "print(solution.n, package.n, late.n)"
    assert (await strict.run(Program(source=source, files=files))).stdout == "1 2 3\n"


@pytest.mark.parametrize("name", ["ifeval", "ifbench"])
async def test_the_published_checks_of_ifeval_and_ifbench_pass(name):
    spec = importlib.util.find_spec("if_verifiable")
    check = import_policy.check(ImportPolicy().allowing("if_verifiable").imports)
    files = sorted((Path(spec.origin).parent / name).glob("*.py"))
    assert len(files) == 4
    for file in files:
        assert check(file.read_bytes()) == ""


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("x = (", "SyntaxError"),
        ("a\0b", "SyntaxError"),
        ("'\ud800'", "SyntaxError"),
        ("\ufeffx", "NameError"),
    ],
)
async def test_sources_that_do_not_compile_keep_the_compilers_error(strict, free, source, error):
    ran, plain = [await box.run(Program(source=source)) for box in (strict, free)]
    assert ran.stderr == plain.stderr
    assert error in ran.stderr


async def test_a_refused_program_is_not_started(strict):
    ran = await strict.run(Program(source="print('begun')\nimport socket"))
    assert (ran.status, ran.exit_code, ran.stdout) == (Status.ERROR, 1, "")
    assert ran.stderr == f"PolicyError: the program was not run: line 2: import of socket: {NETWORK}\n"


async def test_a_program_that_bypasses_the_policy_stays_in_the_sandbox(strict):
    """Three ways around the policy, none of which leaves the sandbox."""
    around = """
import sys
loaded = vars(sys)["modules"]
taken = getattr(loaded["builtins"], "__imp" + "ort__")("socket")
exec("import subprocess")
print(taken.__name__, getattr(object, "__sub" + "classes__")()[0].__name__)
taken.create_connection(("127.0.0.1", 9))
"""
    ran = await strict.run(Program(source=around))
    assert ran.stdout.startswith("socket ")
    assert ran.stderr.splitlines()[-1] == "PermissionError: [Errno 1] Operation not permitted"
    assert ran.isolation.missing == ()


async def test_more_modules_can_be_allowed(check):
    assert check(b"import torch.nn")
    assert not import_policy.check(ImportPolicy().allowing("torch").imports)(b"import torch.nn")
    assert import_policy.check(ImportPolicy(frozenset({"json"})).imports)(b"import re")
