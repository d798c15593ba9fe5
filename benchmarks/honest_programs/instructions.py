"""Programs that check instructions: the paper's example, and checks in the manner of IFEval's verifiers."""

from __future__ import annotations

from benchmarks.honest_programs.base import Honest

_LETTER = (
    "Dear Ana,\n\nThe lake was calm today. I walked around it twice, and thought of you!\n\n"
    "* bread\n* milk\n* tea\n\nP.S. Write soon. [address] [name]"
)
_BOTH = {
    "response_a": "HELLO WORLD, GOOD TO SEE YOU SO SOON",
    "response_b": "Hello World, good to see you so soon",
}
_ONE = {"response": _LETTER}

PROGRAMS = (
    Honest(
        "table 4 of TIR-Judge",
        """
# Count occurrences of 'O' (case-sensitive)
count_o_a = response_a.count('O')
count_o_b = response_b.count('O')
# Check if responses are in all capital letters
is_upper_a = response_a == response_a.upper()
is_upper_b = response_b == response_b.upper()
print(f"Response A - 'O' count: {count_o_a}, All caps: {is_upper_a}")
print(f"Response B - 'O' count: {count_o_b}, All caps: {is_upper_b}")
""",
        "Response A - 'O' count: 9, All caps: True\nResponse B - 'O' count: 0, All caps: False\n",
        _BOTH,
    ),
    Honest("words", "print(len(response.split()))", "27\n", _ONE),
    Honest(
        "keyword frequency",
        r"""
import re
print(len(re.findall(r'\bthe\b', response, re.IGNORECASE)))
""",
        "1\n",
        _ONE,
    ),
    Honest("letter frequency", "print(response.lower().count('o'))", "7\n", _ONE),
    Honest("no comma", "print(',' in response)", "True\n", _ONE),
    Honest("paragraphs", r"print(len([p for p in response.split('\n\n') if p.strip()]))", "4\n", _ONE),
    Honest(
        "bullets",
        r"""
import re
print(len(re.findall(r'^\s*\*[^\*].*$', response, flags=re.MULTILINE)))
""",
        "3\n",
        _ONE,
    ),
    Honest(
        "placeholders",
        r"""
import re
print(re.findall(r'\[(.*?)\]', response))
""",
        "['address', 'name']\n",
        _ONE,
    ),
    Honest(
        "postscript",
        r"""
import re
print(bool(re.search(r'\s*p\.\s?s\..*$', response.lower(), re.MULTILINE)))
""",
        "True\n",
        _ONE,
    ),
    Honest(
        "capital words",
        """
words = response_a.split()
print(sum(w.isupper() for w in words), all(w.isupper() for w in words))
""",
        "8 True\n",
        _BOTH,
    ),
    Honest(
        "both responses in a loop",
        """
for name, text in [('A', response_a), ('B', response_b)]:
    words = text.replace(',', '').split()
    print(name, len(words), text.istitle(), text.endswith('soon'))
""",
        "A 8 False False\nB 8 False True\n",
        _BOTH,
    ),
    Honest(
        "JSON format",
        """
import json
text = '''```json
{"name": "Ana", "age": 31, "tags": ["a", "b"]}
```'''
inner = text.removeprefix('```json').removesuffix('```').strip()
try:
    print(sorted(json.loads(inner)))
except json.JSONDecodeError as error:
    print('invalid', error)
""",
        "['age', 'name', 'tags']\n",
    ),
    Honest(
        "YAML format",
        r"""
import yaml
print(yaml.safe_load('a: 1\nb:\n  - x\n  - y\n'))
""",
        "{'a': 1, 'b': ['x', 'y']}\n",
    ),
    Honest(
        "sentences by nltk",
        r"""
from nltk.tokenize import RegexpTokenizer
print(len(RegexpTokenizer(r'\w+').tokenize('One two, three. Four!')))
""",
        "4\n",
    ),
    Honest(
        "sentences by Punkt",
        """
import punkt
tokenizer = punkt.tokenizer_for("english")
print(len(tokenizer.tokenize("Dr. Smith went home. He slept. It was late!")))
""",
        "3\n",
    ),
    Honest(
        "Unicode letters by regex",
        r"""
import regex
print(regex.findall(r'\p{Lu}\p{Ll}+', 'Élan vital, Ärger und Zorn'))
""",
        "['Élan', 'Ärger', 'Zorn']\n",
    ),
    Honest(
        "nested brackets by regex",
        r"""
import regex
print(regex.search(r'\((?:[^()]|(?R))*\)', 'f(a(b)c) d').group())
""",
        "(a(b)c)\n",
    ),
    Honest(
        "the response from standard input",
        """
import sys
lines = sys.stdin.read().splitlines()
print(len(lines), max(map(len, lines)))
""",
        "3 5\n",
        stdin="alpha\nbe\ngam\n",
    ),
    Honest(
        "/dev/stdin",
        """
text = open('/dev/stdin').read()
print(len(text.split()))
""",
        "3\n",
        stdin="alpha be\ngam\n",
    ),
    Honest(
        "/dev/stdin by pathlib",
        """
from pathlib import Path
print(Path('/dev/stdin').read_text().count('a'))
""",
        "3\n",
        stdin="alpha be\ngam\n",
    ),
    Honest(
        "/dev/stdin in a with statement",
        """
with open('/dev/stdin', 'r', encoding='utf-8') as f:
    print([line.strip() for line in f])
""",
        "['alpha be', 'gam']\n",
        stdin="alpha be\ngam\n",
    ),
    Honest("descriptor 0", "print(open(0).read().upper())", "GAM\n", stdin="gam"),
    Honest(
        "lines by fileinput",
        """
import fileinput
print(sum(int(line) for line in fileinput.input()))
""",
        "6\n",
        stdin="1\n2\n3\n",
    ),
    Honest(
        "lists by pandas",
        """
import pandas as pd
df = pd.DataFrame({'response': ['A', 'B'], 'words': [len(response_a.split()), len(response_b.split())]})
print(df.groupby('words').size().to_dict())
""",
        "{8: 2}\n",
        _BOTH,
    ),
    Honest(
        "a table by pandas",
        r"""
import io
import pandas as pd
table = pd.read_csv(io.StringIO('city,people\nOslo,700\nRome,2800\nBern,140\n'))
print(table.sort_values('people').city.tolist(), int(table.people.sum()))
""",
        "['Bern', 'Oslo', 'Rome'] 3640\n",
    ),
    Honest(
        "reading level",
        """
import re
def syllables(word):
    return max(1, len(re.findall(r'[aeiouy]+', word.lower())))
words = re.findall(r'[A-Za-z]+', 'The banana is a yellow fruit')
print([syllables(word) for word in words])
""",
        "[1, 3, 1, 1, 2, 1]\n",
    ),
    Honest(
        "edit distance by lru_cache",
        """
from functools import lru_cache
def distance(a, b):
    @lru_cache(None)
    def d(i, j):
        if i == 0 or j == 0:
            return i + j
        return min(d(i - 1, j) + 1, d(i, j - 1) + 1, d(i - 1, j - 1) + (a[i - 1] != b[j - 1]))
    return d(len(a), len(b))
print(distance('kitten', 'sitting'))
""",
        "3\n",
    ),
    Honest(
        "who runs this",
        """
import getpass
print(bool(getpass.getuser()))
""",
        "True\n",
    ),
    Honest(
        "modules by name",
        """
import importlib
for name in ('re', 'json', 'collections.abc'):
    print(importlib.import_module(name).__name__)
""",
        "re\njson\ncollections.abc\n",
    ),
    Honest(
        "which packages there are",
        """
import importlib.util
print(importlib.util.find_spec('numpy') is not None)
""",
        "True\n",
    ),
)
