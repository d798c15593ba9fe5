"""A program searches all of its own memory and finds nothing of the programs that ran before it."""

from __future__ import annotations

import pytest

from tirjudge_sandbox import Limits, Program
from tirjudge_sandbox.local import LocalSandbox

# Each piece of a needle is written apart, or the scan would find the needle in its own source.
NEEDLES = {
    name: f"needle-{name}-" + "0123456789"
    for name in ("source", "binding", "stdin", "stdout", "stderr", "file")
}

SCAN = """
import ctypes, os

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_size_t
libc.mmap.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
libc.write.argtypes = [ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t]
PAGE, FAILED = 4096, ctypes.c_size_t(-1).value
FIXED_NOREPLACE, PRIVATE_ANONYMOUS_NORESERVE = 0x100000, 0x4022
EEXIST = 17


def is_mapped(address, size):
    '''True when anything in the range is mapped: there is no /proc/self/maps to ask.'''
    found = libc.mmap(address, size, 0, FIXED_NOREPLACE | PRIVATE_ANONYMOUS_NORESERVE, -1, 0)
    if found == FAILED:
        return ctypes.get_errno() == EEXIST
    libc.munmap(found, size)
    return False


def mapped_pieces(address, size, least):
    if not is_mapped(address, size):
        return
    if size <= least:
        yield address
        return
    yield from mapped_pieces(address, size // 2, least)
    yield from mapped_pieces(address + size // 2, size // 2, least)


reader, writer = os.pipe()
piece = 16 * PAGE
readable = 0
seen = set()
before = b""
end = 0
for start in mapped_pieces(1 << 16, (1 << 47) - (1 << 16) & ~((1 << 20) - 1), piece):
    for address in range(start, start + piece, PAGE):
        if libc.write(writer, address, PAGE) != PAGE:
            continue
        page = os.read(reader, PAGE)
        readable += 1
        text = (before[-64:] if address == end else b"") + page
        before, end = page, address + PAGE
        for name in NAMES:
            if b"needle-" + name + b"-0123" in text and b"needle-" + name + b"-" + b"01234" + b"56789" in text:
                seen.add(name.decode())
print(readable > 1000, sorted(seen))
"""


@pytest.fixture(params=[(), ("numpy", "sympy")], ids=["bare", "warm"])
async def box(request):
    async with LocalSandbox(capacity=1, preload=request.param) as sandbox:
        yield sandbox


def scan() -> str:
    return "NAMES = " + repr([name.encode() for name in NEEDLES]) + SCAN


def secretive(source: str) -> Program:
    return Program(
        source=f"import sys\n{source}\nkept = {NEEDLES['source']!r}\nread = sys.stdin.read()",
        bindings={"bound": NEEDLES["binding"]},
        stdin=NEEDLES["stdin"],
        files={"x": NEEDLES["file"].encode()},
        fetch=("x",),
    )


PRINTING = "print('needle-' + 'stdout-' + '0123456789'); print('needle-' + 'stderr-' + '0123456789', file=sys.stderr)"


async def test_the_scan_finds_what_is_there(box):
    program = secretive(PRINTING)
    source = (
        program.source + "\nfile = open('x').read()\nout = 'needle-' + 'stdout-' + '0123456789'\n" + scan()
    )
    execution = await box.run(
        Program(source=source, bindings=program.bindings, stdin=program.stdin, files=program.files),
        Limits(cpu_seconds=60, wall_seconds=120),
    )
    assert execution.stdout.splitlines()[-1].startswith("True [")
    assert {"source", "binding", "stdin", "file", "stdout"} <= set(
        eval(execution.stdout.splitlines()[-1][5:])
    )


@pytest.mark.parametrize("ending", ["", "\n1/0", "\nimport os; os.abort()"])
async def test_nothing_of_an_earlier_program_is_found(box, ending):
    for _ in range(3):
        earlier = await box.run(secretive(PRINTING + ending))
    assert NEEDLES["stdout"] in earlier.stdout or ending
    execution = await box.run(Program(source=scan()), Limits(cpu_seconds=60, wall_seconds=120))
    assert execution.stdout == "True []\n"
