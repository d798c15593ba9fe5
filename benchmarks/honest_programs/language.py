"""Programs that use the language: classes, exceptions, recursion, patterns."""

from __future__ import annotations

from benchmarks.honest_programs.base import Honest

PROGRAMS = (
    Honest(
        "words split",
        """
text = 'one two three'
print(len(text.split()))
""",
        "3\n",
    ),
    Honest(
        "a dictionary of counts",
        """
counts = {}
for word in 'a b a'.split():
    counts[word] = counts.get(word, 0)
    counts[word] += 1
print(counts)
""",
        "{'a': 2, 'b': 1}\n",
    ),
    Honest(
        "a dataclass",
        """
from dataclasses import dataclass, field

@dataclass
class Point:
    x: int = 0
    tags: list[str] = field(default_factory=list)

print(Point(x=3))
""",
        "Point(x=3, tags=[])\n",
    ),
    Honest(
        "match and case",
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
        "1 2 None\n",
    ),
    Honest(
        "a typed variable",
        """
from typing import Optional
limit: Optional[int] = None
limit = 5
print(limit)
""",
        "5\n",
    ),
    Honest(
        "a class with special methods",
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
        "1 1\n",
    ),
    Honest(
        "recursion with a higher limit",
        """
import sys
sys.setrecursionlimit(5000)
def depth(n):
    return 0 if n == 0 else 1 + depth(n - 1)
print(depth(1500))
""",
        "1500\n",
    ),
    Honest(
        "a function by exec",
        r"""
code = 'def add(a, b):\n    return a + b'
namespace = {}
exec(code, namespace)
print(namespace['add'](2, 3))
""",
        "5\n",
    ),
    Honest("an expression by eval", "print(eval('(3 + 4) * 2'))", "14\n"),
    Honest(
        "a syntax error by compile",
        """
source = 'x = = 1'
try:
    compile(source, '<response>', 'exec')
except SyntaxError as error:
    print(type(error).__name__, error.lineno)
""",
        "SyntaxError 1\n",
    ),
    Honest(
        "an enumeration",
        """
from enum import Enum, auto
class Color(Enum):
    RED = auto()
    BLUE = auto()
print([c.name for c in Color])
""",
        "['RED', 'BLUE']\n",
    ),
    Honest(
        "an abstract class",
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
        "abstract\n",
    ),
    Honest(
        "coroutines gathered",
        """
import asyncio
async def double(x):
    await asyncio.sleep(0)
    return 2 * x
async def main():
    return await asyncio.gather(*(double(i) for i in range(3)))
print(asyncio.run(main()))
""",
        "[0, 2, 4]\n",
    ),
    Honest(
        "a closure",
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
        "2\n",
    ),
    Honest(
        "unpacking and comprehensions",
        """
matrix = [[1, 2], [3, 4]]
matrix[0][1] *= 10
(a, b), *rest = [(1, 2), 3, 4]
print(matrix, a, b, rest, [y for x in matrix for y in x if (z := y) > 1])
""",
        "[[1, 20], [3, 4]] 1 2 [3, 4] [20, 3, 4]\n",
    ),
    Honest(
        "exception groups",
        """
try:
    raise ExceptionGroup('both', [ValueError(1), TypeError(2)])
except* ValueError as group:
    print(len(group.exceptions))
except* TypeError:
    pass
""",
        "1\n",
    ),
    Honest(
        "a context manager",
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
        "Temp Temp None __main__\n",
    ),
    Honest(
        "a named tuple",
        """
from collections import namedtuple
P = namedtuple('P', 'x y')
p = P(1, 2)._replace(y=5)
print(p._asdict(), f'{p.x:>3}|{p!r}', *(lambda *a, **k: a)(1, 2))
""",
        "{'x': 1, 'y': 5}   1|P(x=1, y=5) 1 2\n",
    ),
)
