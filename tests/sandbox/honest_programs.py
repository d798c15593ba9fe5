"""Fifty hand-written programs like those of a judge; an import policy should refuse none of them."""

from __future__ import annotations

PROGRAMS = [
    """
text = 'one two three'
print(len(text.split()))
""",
    """
counts = {}
for word in 'a b a'.split():
    counts[word] = counts.get(word, 0)
    counts[word] += 1
print(counts)
""",
    r"""
import re
print(len(re.findall(r'\b[A-Z]{2,}\b', 'NASA and ESA')))
""",
    """
from collections import Counter, defaultdict
tally = defaultdict(list)
tally['x'] += [1]
print(Counter('abca').most_common(1), dict(tally))
""",
    """
import json
print(json.loads('{"a": [1, 2]}')['a'][1])
""",
    """
from dataclasses import dataclass, field

@dataclass
class Point:
    x: int = 0
    tags: list[str] = field(default_factory=list)

print(Point(x=3))
""",
    """
def kind(value):
    match value:
        case {'a': int(number)}:
            return number
        case [first, *_]:
            return first
        case _:
            return None
print(kind({'a': 1}), kind([2, 3]), kind(4))
""",
    """
from typing import Optional
limit: Optional[int] = None
limit = 5
print(limit)
""",
    """
class Stack:
    def __init__(self):
        self._items = []
    def __len__(self):
        return len(self._items)
    def __iter__(self):
        return iter(self._items)
    def push(self, item):
        self._items.append(item)
s = Stack(); s.push(1)
print(len(s), *s)
""",
    """
import sympy as sp
x = sp.symbols('x')
print(sp.solve(x**2 - 4, x))
""",
    """
import numpy as np
a = np.arange(6).reshape(2, 3)
a[0] += 1
print((a @ a.T).tolist())
""",
    """
from math import comb, gcd, isclose
print(comb(5, 2), gcd(12, 18), isclose(0.1 + 0.2, 0.3))
""",
    """
from fractions import Fraction
print(Fraction(1, 3) + Fraction(1, 6))
""",
    """
from decimal import Decimal, getcontext
getcontext().prec = 30
print(Decimal(1) / Decimal(7))
""",
    """
from itertools import combinations, permutations, product
print(sum(1 for _ in product('ab', repeat=3)), len(list(combinations(range(5), 2))))
""",
    """
from functools import lru_cache, reduce
@lru_cache(maxsize=None)
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
print(fib(80), reduce(lambda a, b: a * b, [1, 2, 3]))
""",
    """
import sys
sys.setrecursionlimit(5000)
def depth(n):
    return 0 if n == 0 else 1 + depth(n - 1)
print(depth(1500))
""",
    """
import string
print(sum(c in string.punctuation for c in 'a.b,c!'))
""",
    """
import datetime as dt
print((dt.date(2024, 3, 1) - dt.date(2024, 2, 1)).days)
""",
    """
import heapq, bisect
h = [3, 1, 2]; heapq.heapify(h)
print(heapq.heappop(h), bisect.bisect([1, 3, 5], 4))
""",
    """
import unicodedata
print(unicodedata.normalize('NFD', 'é').encode('ascii', 'ignore').decode())
""",
    """
import difflib
print(round(difflib.SequenceMatcher(None, 'abcd', 'abce').ratio(), 2))
""",
    """
import statistics
print(statistics.mean([1, 2, 3]), statistics.stdev([1, 2, 3]))
""",
    r"""
import ast
tree = ast.parse('def f(x):\n    return x')
print([node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)])
""",
    r"""
code = 'def add(a, b):\n    return a + b'
namespace = {}
exec(code, namespace)
print(namespace['add'](2, 3))
""",
    """
print(eval('(3 + 4) * 2'))
""",
    """
source = 'x = = 1'
try:
    compile(source, '<response>', 'exec')
except SyntaxError as error:
    print(type(error).__name__, error.lineno)
""",
    """
import traceback
try:
    [][0]
except IndexError as error:
    print(traceback.format_exception_only(type(error), error)[0].strip())
""",
    """
import contextlib, io
buffer = io.StringIO()
with contextlib.redirect_stdout(buffer):
    print('hidden')
print(buffer.getvalue().upper())
""",
    """
import inspect
def f(a, b=2): ...
print(list(inspect.signature(f).parameters))
""",
    """
import unittest
class T(unittest.TestCase):
    def test_sum(self):
        self.assertEqual(sum([1, 2]), 3)
cases = unittest.defaultTestLoader.loadTestsFromTestCase(T)
result = unittest.TextTestRunner(stream=open('log', 'w')).run(cases)
print(result.wasSuccessful())
""",
    r"""
import os
print(os.path.splitext('a/b.txt'), os.linesep == '\n', sorted(os.listdir('.')))
""",
    """
from pathlib import Path
Path('note').write_text('kept')
print(Path('note').read_text())
""",
    r"""
import csv, io
print(list(csv.DictReader(io.StringIO('a,b\n1,2\n'))))
""",
    """
import textwrap
print(max(map(len, textwrap.wrap('some words ' * 9, width=20))))
""",
    """
import random
random.seed(3)
print(sorted(random.sample(range(100), 3)) == sorted(random.sample(range(100), 3)))
""",
    """
import time
start = time.perf_counter()
sum(range(1000))
print(time.perf_counter() >= start)
""",
    """
import signal, time
def stop(number, frame):
    raise TimeoutError
signal.signal(signal.SIGALRM, stop)
signal.setitimer(signal.ITIMER_REAL, 0.02)
try:
    time.sleep(9)
except TimeoutError:
    print('too slow')
""",
    """
from urllib.parse import urlparse
print(urlparse('https://example.org/a?b=c').netloc)
""",
    """
import hashlib, base64
print(base64.b64encode(hashlib.sha256(b'x').digest())[:8].decode())
""",
    """
import html.parser
class P(html.parser.HTMLParser):
    def handle_starttag(self, tag, attrs):
        print(tag)
P().feed('<b>x</b>')
""",
    """
import xml.etree.ElementTree as ET
print(ET.fromstring('<a><b/></a>')[0].tag)
""",
    """
from enum import Enum, auto
class Color(Enum):
    RED = auto()
    BLUE = auto()
print([c.name for c in Color])
""",
    """
from abc import ABC, abstractmethod
class Shape(ABC):
    @abstractmethod
    def area(self): ...
try:
    Shape()
except TypeError:
    print('abstract')
""",
    """
import asyncio
async def double(x):
    await asyncio.sleep(0)
    return 2 * x
async def main():
    return await asyncio.gather(*(double(i) for i in range(3)))
print(asyncio.run(main()))
""",
    """
def outer():
    total = 0
    def inner(n):
        nonlocal total
        total += n
    inner(2)
    return total
print(outer())
""",
    """
matrix = [[1, 2], [3, 4]]
matrix[0][1] *= 10
(a, b), *rest = [(1, 2), 3, 4]
print(matrix, a, b, rest, [y for x in matrix for y in x if (z := y) > 1])
""",
    """
try:
    raise ExceptionGroup('both', [ValueError(1), TypeError(2)])
except* ValueError as group:
    print(len(group.exceptions))
except* TypeError:
    pass
""",
    """
class Temp:
    def __enter__(self):
        return self
    def __exit__(self, *rest):
        return True
with Temp():
    raise ValueError
print(Temp.__name__, Temp().__class__.__name__, Temp.__doc__, __name__)
""",
    """
from collections import namedtuple
P = namedtuple('P', 'x y')
p = P(1, 2)._replace(y=5)
print(p._asdict(), f'{p.x:>3}|{p!r}', *(lambda *a, **k: a)(1, 2))
""",
]
