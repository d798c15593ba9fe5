"""The ways in which a command of the documentation is tested."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PREFERENCE = "<preference>A</preference>"


@dataclass(frozen=True)
class Runs:
    """It runs in this process, in a folder with the examples; every endpoint is a scripted one."""

    prints: str
    """Part of what it prints."""
    answer: str = PREFERENCE
    """The text of the endpoint's model."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files that the command expects to find, and the files of the repository in their place."""
    more: str = ""
    """Words that are added to it, so that it takes seconds."""
    code: int = 0


@dataclass(frozen=True)
class Fails:
    """It needs the hub, a service or an engine: without them it ends with this line on standard error."""

    line: str
    code: int = 2
    files: Mapping[str, str] = field(default_factory=dict)
    apart: bool = False
    """It runs in a process of its own."""


@dataclass(frozen=True)
class Posts:
    """It sends a request with curl: the same request to a server in this process is answered with this."""

    to: str
    """`judge` or `sandbox`."""
    answer: str
    """Part of the answer."""


@dataclass(frozen=True)
class Installs:
    """It installs packages: the extras exist, and nothing but a dependency of ours comes from elsewhere."""


@dataclass(frozen=True)
class TestedBy:
    """It serves, trains or needs a larger machine: this test runs it, and its options are parsed here."""

    __test__ = False  # pytest collects classes by this name

    test: str
    """`FILE::FUNCTION`, or a script of `.ci`."""


@dataclass(frozen=True)
class Elsewhere:
    """It sets a variable of the shell, or starts a program of another project that is no dependency."""


Treatment = Runs | Fails | Posts | Installs | TestedBy | Elsewhere
