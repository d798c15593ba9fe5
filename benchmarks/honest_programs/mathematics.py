"""Programs that check mathematics: equalities by sympy and math-verify, and calculations by other means."""

from __future__ import annotations

from benchmarks.honest_programs.base import Honest

PROGRAMS = (
    Honest(
        "an equality by simplify",
        """
from sympy import *
x = symbols('x')
print(simplify((x**2 - 1)/(x - 1) - (x + 1)) == 0)
""",
        "True\n",
    ),
    Honest(
        "an equality by equals",
        """
import sympy as sp
print(sp.sqrt(12).equals(2*sp.sqrt(3)), sp.Rational(1, 3) == sp.nsimplify('2/6'))
""",
        "True True\n",
    ),
    Honest(
        "LaTeX answers by math_verify",
        r"""
from math_verify import parse, verify
print(verify(parse('$\\frac{1}{2}$'), parse('$0.5$')), verify(parse('$3$'), parse('$4$')))
""",
        "True False\n",
    ),
    Honest(
        "sets by math_verify",
        r"""
from math_verify import parse, verify
print(verify(parse('$\\{1,2\\}$'), parse('$\\{2,1\\}$')))
""",
        "True\n",
    ),
    Honest(
        "an answer parsed by sympy",
        """
from sympy.parsing.sympy_parser import parse_expr
print(parse_expr('2*(3+4)') == 14)
""",
        "True\n",
    ),
    Honest(
        "an integral",
        """
from sympy import integrate, symbols, exp, oo
x = symbols('x')
print(integrate(exp(-x), (x, 0, oo)))
""",
        "1\n",
    ),
    Honest(
        "a derivative",
        """
import sympy as sp
x = sp.symbols('x')
print(sp.diff(sp.sin(x)*x**2, x).subs(x, 0))
""",
        "0\n",
    ),
    Honest(
        "a limit",
        """
from sympy import limit, sin, symbols
x = symbols('x')
print(limit(sin(3*x)/x, x, 0))
""",
        "3\n",
    ),
    Honest(
        "a linear system",
        """
from sympy import Eq, solve, symbols
x, y = symbols('x y')
print(solve([Eq(2*x + y, 7), Eq(x - y, 2)]))
""",
        "{x: 3, y: 1}\n",
    ),
    Honest(
        "a matrix",
        """
from sympy import Matrix
m = Matrix([[2, 1], [1, 2]])
print(m.det(), sorted(m.eigenvals()))
""",
        "3 [1, 3]\n",
    ),
    Honest(
        "roots by numpy",
        """
import numpy as np
print(np.round(np.sort(np.roots([1, -6, 11, -6]).real), 6).tolist())
""",
        "[1.0, 2.0, 3.0]\n",
    ),
    Honest(
        "a system by numpy",
        """
import numpy as np
print(np.linalg.solve(np.array([[3., 1.], [1., 2.]]), np.array([9., 8.])).tolist())
""",
        "[2.0, 3.0]\n",
    ),
    Honest(
        "a distribution by scipy",
        """
from scipy import stats
print(round(float(stats.norm.cdf(1.96)), 3))
""",
        "0.975\n",
    ),
    Honest(
        "a root by scipy",
        """
from scipy.optimize import brentq
print(round(brentq(lambda x: x**3 - 8, 0, 5), 6))
""",
        "2.0\n",
    ),
    Honest(
        "binomial coefficients",
        """
from math import comb
print(comb(10, 3), sum(comb(10, k) for k in range(11)))
""",
        "120 1024\n",
    ),
    Honest(
        "dice by enumeration",
        """
from itertools import product
from fractions import Fraction
hits = [r for r in product(range(1, 7), repeat=2) if sum(r) == 7]
print(Fraction(len(hits), 36))
""",
        "1/6\n",
    ),
    Honest(
        "coins by simulation",
        """
import random
random.seed(1)
n = 20000
print(abs(sum(random.random() < 0.5 for _ in range(n)) / n - 0.5) < 0.02)
""",
        "True\n",
    ),
    Honest(
        "primes",
        """
def prime(n):
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))
print([n for n in range(30) if prime(n)])
""",
        "[2, 3, 5, 7, 11, 13, 17, 19, 23, 29]\n",
    ),
    Honest(
        "factors",
        """
from sympy import factorint
print(factorint(360))
""",
        "{2: 3, 3: 2, 5: 1}\n",
    ),
    Honest("a modular power", "print(pow(7, 222, 10), pow(3, -1, 11))", "9 4\n"),
    Honest(
        "a continued calculation by Decimal",
        """
from decimal import Decimal, ROUND_HALF_UP
print((Decimal('1000') * Decimal('1.05') ** 3).quantize(Decimal('0.01'), ROUND_HALF_UP))
""",
        "1157.63\n",
    ),
    Honest(
        "shortest path by networkx",
        """
import networkx as nx
g = nx.Graph()
g.add_weighted_edges_from([('a', 'b', 1), ('b', 'c', 2), ('a', 'c', 5)])
print(nx.shortest_path(g, 'a', 'c', weight='weight'))
""",
        "['a', 'b', 'c']\n",
    ),
    Honest(
        "colouring by networkx",
        """
import networkx as nx
print(nx.is_bipartite(nx.cycle_graph(6)), nx.is_bipartite(nx.cycle_graph(5)))
""",
        "True False\n",
    ),
    Honest(
        "eight queens",
        """
from itertools import permutations
print(sum(len({c + r for r, c in enumerate(p)}) == len({c - r for r, c in enumerate(p)}) == 8
          for p in permutations(range(8))))
""",
        "92\n",
    ),
    Honest(
        "a large factorial",
        """
import math, sys
sys.set_int_max_str_digits(0)
print(len(str(math.factorial(2000))))
""",
        "5736\n",
    ),
    Honest(
        "a limit of its own on memory",
        """
import resource
soft, hard = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0)
""",
        "True\n",
    ),
    Honest(
        "garbage collected between trials",
        """
import gc
gc.disable()
cells = [[n] for n in range(1000)]
gc.enable()
del cells
print(gc.collect() >= 0)
""",
        "True\n",
    ),
)
