"""A program searches all of its own memory and finds nothing of the programs that ran before it."""

from __future__ import annotations

import ast

import pytest

from tests.rows import every
from tirjudge_sandbox import Limits, Program
from tirjudge_sandbox.local import LocalSandbox

# Each piece of a needle is written apart, or the scan would find the needle in its own source.
NEEDLES = {
    name: f"needle-{name}-0123456789" for name in ("source", "binding", "stdin", "stdout", "stderr", "file")
}

SCAN = """
import ctypes, os, re

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_size_t
libc.mmap.argtypes = [ctypes.c_size_t] * 2 + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
libc.write.argtypes = [ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t]
PAGE, PIECE, FAILED = 4096, 65536, ctypes.c_size_t(-1).value
FIXED_NOREPLACE, PRIVATE_ANONYMOUS_NORESERVE = 0x100000, 0x4022
EEXIST = 17
ADDRESS_BITS = {'x86_64': 47, 'aarch64': 48}[os.uname().machine]


def is_mapped(piece, count):
    # There is no /proc/self/maps to ask, but a mapping that may not replace another tells.
    found = libc.mmap(piece * PIECE, count * PIECE, 0, FIXED_NOREPLACE | PRIVATE_ANONYMOUS_NORESERVE, -1, 0)
    if found == FAILED:
        return ctypes.get_errno() == EEXIST
    libc.munmap(found, count * PIECE)
    return False


def mapped(piece, count):
    if not is_mapped(piece, count):
        return
    if count == 1:
        yield piece * PIECE
        return
    yield from mapped(piece, count // 2)
    yield from mapped(piece + count // 2, count - count // 2)


# Written so that neither this source nor what is compiled from it holds a needle.
needle = re.compile(b"needle-([a-z]+)-[0]123456789")
reader, writer = os.pipe()
readable, seen, end, tail = 0, set(), 0, b""
for start in mapped(1, 2 ** ADDRESS_BITS // PIECE - 2):
    for address in range(start, start + PIECE, PAGE):
        if libc.write(writer, address, PAGE) != PAGE:
            continue
        page = os.read(reader, PAGE)
        seen |= {name.decode() for name in needle.findall((tail if address == end else b"") + page)}
        readable, end, tail = readable + 1, address + PAGE, page[-64:]
print(readable, sorted(seen))
"""


@pytest.fixture(params=[(), ("numpy", "sympy")], ids=["bare", "warm"])
async def box(request):
    async with LocalSandbox(capacity=1, preload=request.param) as sandbox:
        yield sandbox


def secretive(ending: str) -> Program:
    source = f"""
import sys
kept = {NEEDLES["source"]!r}
read = sys.stdin.read() + open('x').read()
out, err = ('-'.join(['needle', name, '0123456789']) for name in ('stdout', 'stderr'))
print(out)
print(err, file=sys.stderr)
{ending}
"""
    return Program(
        source=source,
        bindings={"bound": NEEDLES["binding"]},
        stdin=NEEDLES["stdin"],
        files={"x": NEEDLES["file"].encode()},
        fetch=("x",),
    )


async def scan(box: LocalSandbox, program: Program) -> tuple[int, list[str]]:
    execution = await box.run(program, Limits(cpu_seconds=60, wall_seconds=120))
    pages, _, found = execution.stdout.splitlines()[-1].partition(" ")
    return int(pages), ast.literal_eval(found)


@pytest.mark.slow
async def test_the_scan_finds_what_is_there(box):
    pages, found = await scan(box, secretive(SCAN))
    assert pages > 1000
    assert found == sorted(NEEDLES)


@pytest.mark.parametrize("ending", every(3, ["", "1/0", "import os; os.abort()"]))
async def test_nothing_of_an_earlier_program_is_found(box, ending):
    for _ in range(3):
        earlier = await box.run(secretive(ending))
        assert earlier.files == {"x": NEEDLES["file"].encode()}
    pages, found = await scan(box, Program(source=SCAN))
    assert pages > 1000
    assert found == []
