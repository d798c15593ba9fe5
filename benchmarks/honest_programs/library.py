"""Programs that use the standard library, numpy and sympy in a few lines each."""

from __future__ import annotations

from benchmarks.honest_programs.base import Honest

PROGRAMS = (
    Honest(
        "capital abbreviations",
        r"""
import re
print(len(re.findall(r'\b[A-Z]{2,}\b', 'NASA and ESA')))
""",
        "2\n",
    ),
    Honest(
        "Counter and defaultdict",
        """
from collections import Counter, defaultdict
tally = defaultdict(list)
tally['x'] += [1]
print(Counter('abca').most_common(1), dict(tally))
""",
        "[('a', 2)] {'x': [1]}\n",
    ),
    Honest(
        "JSON read",
        """
import json
print(json.loads('{"a": [1, 2]}')['a'][1])
""",
        "2\n",
    ),
    Honest(
        "a quadratic equation",
        """
import sympy as sp
x = sp.symbols('x')
print(sp.solve(x**2 - 4, x))
""",
        "[-2, 2]\n",
    ),
    Honest(
        "a product by numpy",
        """
import numpy as np
a = np.arange(6).reshape(2, 3)
a[0] += 1
print((a @ a.T).tolist())
""",
        "[[14, 26], [26, 50]]\n",
    ),
    Honest(
        "combinatorics by math",
        """
from math import comb, gcd, isclose
print(comb(5, 2), gcd(12, 18), isclose(0.1 + 0.2, 0.3))
""",
        "10 6 True\n",
    ),
    Honest(
        "fractions",
        """
from fractions import Fraction
print(Fraction(1, 3) + Fraction(1, 6))
""",
        "1/2\n",
    ),
    Honest(
        "decimals with thirty digits",
        """
from decimal import Decimal, getcontext
getcontext().prec = 30
print(Decimal(1) / Decimal(7))
""",
        "0.142857142857142857142857142857\n",
    ),
    Honest(
        "products and combinations",
        """
from itertools import combinations, permutations, product
print(sum(1 for _ in product('ab', repeat=3)), len(list(combinations(range(5), 2))))
""",
        "8 10\n",
    ),
    Honest(
        "a cached and a reduced function",
        """
from functools import lru_cache, reduce
@lru_cache(maxsize=None)
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
print(fib(80), reduce(lambda a, b: a * b, [1, 2, 3]))
""",
        "23416728348467685 6\n",
    ),
    Honest(
        "punctuation counted",
        """
import string
print(sum(c in string.punctuation for c in 'a.b,c!'))
""",
        "3\n",
    ),
    Honest(
        "days between dates",
        """
import datetime as dt
print((dt.date(2024, 3, 1) - dt.date(2024, 2, 1)).days)
""",
        "29\n",
    ),
    Honest(
        "a heap and a bisection",
        """
import heapq, bisect
h = [3, 1, 2]; heapq.heapify(h)
print(heapq.heappop(h), bisect.bisect([1, 3, 5], 4))
""",
        "1 2\n",
    ),
    Honest(
        "accents removed",
        """
import unicodedata
print(unicodedata.normalize('NFD', 'é').encode('ascii', 'ignore').decode())
""",
        "e\n",
    ),
    Honest(
        "similarity by difflib",
        """
import difflib
print(round(difflib.SequenceMatcher(None, 'abcd', 'abce').ratio(), 2))
""",
        "0.75\n",
    ),
    Honest(
        "mean and deviation",
        """
import statistics
print(statistics.mean([1, 2, 3]), statistics.stdev([1, 2, 3]))
""",
        "2 1.0\n",
    ),
    Honest(
        "functions found by ast",
        r"""
import ast
tree = ast.parse('def f(x):\n    return x')
print([node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)])
""",
        "['f']\n",
    ),
    Honest(
        "an exception formatted",
        """
import traceback
try:
    [][0]
except IndexError as error:
    print(traceback.format_exception_only(type(error), error)[0].strip())
""",
        "IndexError: list index out of range\n",
    ),
    Honest(
        "output redirected",
        """
import contextlib, io
buffer = io.StringIO()
with contextlib.redirect_stdout(buffer):
    print('hidden')
print(buffer.getvalue().upper())
""",
        "HIDDEN\n\n",
    ),
    Honest(
        "parameters by inspect",
        """
import inspect
def f(a, b=2): ...
print(list(inspect.signature(f).parameters))
""",
        "['a', 'b']\n",
    ),
    Honest(
        "unittest with a log file",
        """
import unittest
class T(unittest.TestCase):
    def test_sum(self):
        self.assertEqual(sum([1, 2]), 3)
cases = unittest.defaultTestLoader.loadTestsFromTestCase(T)
result = unittest.TextTestRunner(stream=open('log', 'w')).run(cases)
print(result.wasSuccessful())
""",
        "True\n",
        needs="files",
    ),
    Honest(
        "paths",
        r"""
import os
print(os.path.splitext('a/b.txt'), os.linesep == '\n', sorted(os.listdir('.')))
""",
        "('a/b', '.txt') True []\n",
    ),
    Honest(
        "a file written and read",
        """
from pathlib import Path
Path('note').write_text('kept')
print(Path('note').read_text())
""",
        "kept\n",
        needs="files",
    ),
    Honest(
        "CSV read",
        r"""
import csv, io
print(list(csv.DictReader(io.StringIO('a,b\n1,2\n'))))
""",
        "[{'a': '1', 'b': '2'}]\n",
    ),
    Honest(
        "text wrapped",
        """
import textwrap
print(max(map(len, textwrap.wrap('some words ' * 9, width=20))))
""",
        "16\n",
    ),
    Honest(
        "samples of a seed",
        """
import random
random.seed(3)
print(sorted(random.sample(range(100), 3)) == sorted(random.sample(range(100), 3)))
""",
        "False\n",
    ),
    Honest(
        "time measured",
        """
import time
start = time.perf_counter()
sum(range(1000))
print(time.perf_counter() >= start)
""",
        "True\n",
    ),
    Honest(
        "a signal as a time limit",
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
        "too slow\n",
    ),
    Honest(
        "a URL parsed",
        """
from urllib.parse import urlparse
print(urlparse('https://example.org/a?b=c').netloc)
""",
        "example.org\n",
    ),
    Honest(
        "a hash",
        """
import hashlib, base64
print(base64.b64encode(hashlib.sha256(b'x').digest())[:8].decode())
""",
        "LXEWQrcm\n",
    ),
    Honest(
        "tags by html.parser",
        """
import html.parser
class P(html.parser.HTMLParser):
    def handle_starttag(self, tag, attrs):
        print(tag)
P().feed('<b>x</b>')
""",
        "b\n",
    ),
    Honest(
        "XML read",
        """
import xml.etree.ElementTree as ET
print(ET.fromstring('<a><b/></a>')[0].tag)
""",
        "b\n",
    ),
)
