"""An import policy: the modules that programs may import, checked before they run.

The policy is advice for an honest model and no security boundary; that is the sandbox.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Self

from tirjudge_sandbox.base import PackageMissing

_STANDARD_LIBRARY = """
abc argparse array ast asyncio base64 binascii bisect builtins bz2 calendar cmath cmd codecs codeop
collections colorsys concurrent.futures configparser contextlib contextvars copy copyreg cProfile csv
dataclasses datetime decimal difflib dis doctest email enum errno faulthandler filecmp fileinput fnmatch
fractions functools __future__ gc getopt getpass gettext glob graphlib gzip hashlib heapq hmac html
importlib inspect io ipaddress itertools json keyword linecache locale logging lzma marshal math mimetypes
mmap numbers opcode operator optparse os pathlib pickle pickletools platform plistlib posixpath pprint
profile pstats queue quopri random re reprlib resource sched secrets select selectors shelve shlex shutil
signal sqlite3 stat statistics string stringprep struct symtable sys sysconfig tabnanny tarfile tempfile
textwrap threading time timeit token tokenize tomllib trace traceback tracemalloc types typing unicodedata
unittest urllib.error urllib.parse uuid warnings weakref xml zipfile zlib zoneinfo __main__
"""
STANDARD_LIBRARY = frozenset(_STANDARD_LIBRARY.split())
"""The modules of the standard library that compute, and neither start programs nor use the network."""

_PACKAGES = """
absl attr attrs bs4 chardet dateutil emoji immutabledict isolated jsonschema langdetect lxml markdown
math_verify matplotlib more_itertools mpmath networkx nltk numba numpy pandas pint punkt pydantic
pyparsing pytest pytz regex scipy sklearn sortedcontainers spacy statsmodels sympy syllapy tabulate
textblob textstat tiktoken toolz tqdm typing_extensions unidecode yaml
"""
PACKAGES = frozenset(_PACKAGES.split())
"""Further modules that judges' programs use, where installed; for `isolated` see `guest.isolated`."""


@dataclass(frozen=True, slots=True)
class ImportPolicy:
    """The modules that a program may import.

    A program that imports another is not run: it ends with exit code 1 and one line that names the import and
    the reason, so that an honest model learns early what cannot work. A program that wants to can get around
    it.
    """

    imports: frozenset[str] = STANDARD_LIBRARY | PACKAGES
    """Names of modules, dotted or not; each includes its submodules."""

    def __post_init__(self) -> None:
        """Raise ValueError for a name that cannot be a module's."""
        for name in self.imports:
            if not all(part.isidentifier() for part in name.split(".")):
                raise ValueError(f"ImportPolicy.imports must be names of modules, not {name!r}")

    def allowing(self, *names: str) -> Self:
        """Return a policy that allows these modules too."""
        return replace(self, imports=self.imports | set(names))


def check_installed(policy: ImportPolicy | None) -> None:
    """Raise PackageMissing if there is a policy, but not the package that checks programs against it."""
    if policy is not None and find_spec("RestrictedPython") is None:
        raise PackageMissing("an import policy needs RestrictedPython: pip install 'tirjudge[policy]'")
