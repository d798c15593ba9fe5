"""Programs that test code: assertions in the manner of MBPP, test frameworks, the response as a module."""

from __future__ import annotations

from benchmarks.honest_programs.base import Honest

_CODE = {"response": "def add(a, b):\n    return a + b\n"}

PROGRAMS = (
    Honest(
        "MBPP: a function and its assertions",
        """
def remove_Occ(s, ch):
    s = s.replace(ch, '', 1)
    return s[::-1].replace(ch, '', 1)[::-1]
assert remove_Occ("hello", "l") == "heo"
assert remove_Occ("abcda", "a") == "bcd"
assert remove_Occ("PHP", "P") == "H"
print("passed")
""",
        "passed\n",
    ),
    Honest(
        "MBPP: two solutions compared",
        """
def similar_a(x, y): return tuple(set(x) & set(y))
def similar_b(x, y): return tuple(v for v in x if v in y)
for x, y in [((3, 4, 5, 6), (5, 7, 4, 10)), ((1, 2), (3, 4))]:
    print(sorted(similar_a(x, y)) == sorted(similar_b(x, y)), end=' ')
print()
""",
        "True True \n",
    ),
    Honest(
        "the response's code by exec",
        """
names = {}
exec(response, names)
print([names['add'](a, b) for a, b in [(1, 2), (-1, 1)]])
""",
        "[3, 0]\n",
        _CODE,
    ),
    Honest(
        "the response's code, its output captured",
        """
import contextlib, io
out = io.StringIO()
with contextlib.redirect_stdout(out):
    exec(response + "print(add(20, 22))", {})
print(repr(out.getvalue()))
""",
        "'42\\n'\n",
        _CODE,
    ),
    Honest(
        "the response's code from a file",
        """
import importlib.util, pathlib
pathlib.Path('solution.py').write_text(response)
spec = importlib.util.spec_from_file_location('solution', 'solution.py')
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print(module.add(2, 3))
""",
        "5\n",
        _CODE,
        needs="files",
    ),
    Honest(
        "the response's code by import",
        """
open('solution.py', 'w').write(response)
import solution
print(solution.add(4, 5))
""",
        "9\n",
        _CODE,
        needs="files",
    ),
    Honest(
        "the signature of a function",
        """
import inspect
exec(response)
print(inspect.signature(add), add.__code__.co_argcount)
""",
        "(a, b) 2\n",
        _CODE,
    ),
    Honest(
        "unittest",
        """
import io, unittest
exec(response)
class Test(unittest.TestCase):
    def test_small(self): self.assertEqual(add(1, 1), 2)
    def test_text(self): self.assertEqual(add('a', 'b'), 'ab')
suite = unittest.defaultTestLoader.loadTestsFromTestCase(Test)
result = unittest.TextTestRunner(stream=io.StringIO()).run(suite)
print(result.testsRun, len(result.failures))
""",
        "2 0\n",
        _CODE,
    ),
    Honest(
        "unittest.main",
        """
import unittest, sys
class Test(unittest.TestCase):
    def test_one(self): self.assertTrue(True)
program = unittest.main(exit=False, argv=['x'])
print(program.result.wasSuccessful())
""",
        "True\n",
    ),
    Honest(
        "mocks",
        """
from unittest.mock import Mock, patch
import time
with patch('time.time', return_value=5):
    print(time.time())
m = Mock(); m.f(1); print(m.f.call_args.args)
""",
        "5\n(1,)\n",
    ),
    Honest(
        "doctest",
        """
import doctest
def double(x):
    '''
    >>> double(2)
    4
    '''
    return 2 * x
print(doctest.testmod())
""",
        "TestResults(failed=0, attempted=1)\n",
    ),
    Honest(
        "pytest.raises",
        """
import pytest
with pytest.raises(ZeroDivisionError):
    1 / 0
print(0.1 + 0.2 == pytest.approx(0.3))
""",
        "True\n",
    ),
    Honest(
        "pytest on a file",
        r"""
import contextlib, io, pytest
open('test_it.py', 'w').write(response + 'def test_add(): assert add(2, 2) == 4\n')
with contextlib.redirect_stdout(io.StringIO()):
    code = pytest.main(['-q', '-p', 'no:cacheprovider', 'test_it.py'])
print(int(code))
""",
        "0\n",
        _CODE,
        needs="files",
    ),
    Honest(
        "time by timeit",
        """
import timeit
print(timeit.timeit('sum(range(100))', number=100) > 0)
""",
        "True\n",
    ),
    Honest(
        "memory by tracemalloc",
        """
import tracemalloc
tracemalloc.start()
x = [0] * 100000
print(tracemalloc.get_traced_memory()[1] > 700000)
""",
        "True\n",
    ),
    Honest(
        "a profile",
        """
import cProfile, io, pstats
p = cProfile.Profile()
p.runcall(sorted, range(10))
print(pstats.Stats(p, stream=io.StringIO()).total_calls >= 1)
""",
        "True\n",
    ),
    Honest(
        "the syntax tree",
        """
import ast
tree = ast.parse(response)
print([n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)],
      any(isinstance(n, (ast.For, ast.While)) for n in ast.walk(tree)))
""",
        "['add'] False\n",
        _CODE,
    ),
    Honest(
        "a syntax error reported",
        """
try:
    compile('def f(:', 'response', 'exec')
except SyntaxError as e:
    print('line', e.lineno)
""",
        "line 1\n",
    ),
    Honest(
        "an exception's line",
        """
import sys
try:
    {}['missing']
except KeyError:
    print(sys.exc_info()[2].tb_lineno)
""",
        "4\n",
    ),
    Honest(
        "the database of a response",
        """
import sqlite3
db = sqlite3.connect(':memory:')
db.executescript("create table t(a, b); insert into t values (1, 'x'), (2, 'y'), (3, 'x');")
print(db.execute("select b, count(*), sum(a) from t group by b order by b").fetchall())
""",
        "[('x', 2, 4), ('y', 1, 2)]\n",
    ),
    Honest(
        "a temporary folder",
        """
import os, tempfile
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, 'a.txt')
    open(path, 'w').write('x')
    print(os.path.getsize(path))
""",
        "1\n",
        needs="files",
    ),
    Honest(
        "32-bit overflow",
        """
import ctypes
print(ctypes.c_int32(2**31 + 5).value)
""",
        "-2147483643\n",
        needs="ctypes",
    ),
    Honest(
        "subclasses registered",
        """
class Base:
    registry = {}
    def __init_subclass__(cls, **kw): Base.registry[cls.__name__] = cls
class A(Base): pass
class B(Base): pass
print(sorted(Base.registry))
""",
        "['A', 'B']\n",
    ),
)
