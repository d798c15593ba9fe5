"""The file of checkers: each is a rule, a Python function that decides it, and what was measured of it.

The file is TOML, which people may read and edit. A checker whose rule or source changed since it was measured
is unmeasured, and decides nothing. Both the file and its programs may be somebody else's: reading runs
nothing, and the programs run only in the sandbox (see `runner`).
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from tirjudge_environments.checkers.rules import LONGEST_RULE, RulePattern, Value
from tirjudge_environments.registry import first_fault
from tirjudge_environments.types import FrozenModel

VERSION = 1
LARGEST_FILE = 4 << 20
"""Bytes of a file."""
_MOST_PARTS = 200
"""Most parts of a dotted key: tomllib's time and memory grow with the square of the parts."""
_PART = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+"""
_LONG_KEY = re.compile(rf"(?<![\w\-.]){_PART}(?:\.[ \t]*+{_PART}){{{_MOST_PARTS},}}+")
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0, lt=2**31)]


class Measurement(FrozenModel):
    """Numbers of a checker on rows that it was not chosen on."""

    digest: str
    """`Checker.digest` of the rule and the source that were measured."""
    admitted: bool
    reason: str = ""
    """Why it was rejected, in one line; empty for an admitted checker."""
    against: Literal["labels", "verdicts"] = "labels"
    """The truth: people's labels, or the judge's decided verdicts."""
    agreement: Share | None = None
    low: Share | None = None
    high: Share | None = None
    """The 95 % interval of the agreement; rows with the same prompt are a cluster."""
    n: Count = 0
    """Rows that the checker decided."""
    prompts: Count = 0
    abstained: Count = 0
    """Further rows on which it abstained or failed."""
    edits: Count = 0
    """Edits of passing answers that had to fail."""
    attacks: Count = 0
    """Changes that leave the truth as it was, and had to leave the outcome."""


class Checker(BaseModel):
    """A rule and the function `check(response, prompt, ...)` that decides whether a response follows it.

    Further parameters are the rule's fields. It returns True, False, or None to abstain.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(cached_property,))

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,59}$")]
    rule: str
    """The text of the rule, with fields (see `RulePattern`)."""
    source: Annotated[str, Field(min_length=1, max_length=20_000)]
    author: Annotated[str, Field(max_length=200)] = ""
    """Who wrote the source: a person, or a model's name."""
    measured: Measurement | None = None

    @field_validator("source")
    @classmethod
    def _with_plain_line_ends(cls, source: str) -> str:
        return source.replace("\r\n", "\n").strip("\n") + "\n"

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        pattern = RulePattern.parse(self.rule)
        if (fault := fault_of_source(self.source, [*pattern.kinds])) and self.is_admitted:
            raise ValueError(fault)
        return self

    @cached_property
    def pattern(self) -> RulePattern:
        return RulePattern.parse(self.rule)

    @property
    def exact_rule(self) -> str | None:
        """The only text that the rule matches; None for a rule with fields."""
        return None if self.pattern.fields else self.pattern.literals[0].strip()

    @property
    def digest(self) -> str:
        """A hash of the rule and the source."""
        return hashlib.sha256(f"{self.rule}\0{self.source}".encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @property
    def is_measured(self) -> bool:
        """True if the measurement is that of the present rule and source."""
        return self.measured is not None and self.measured.digest == self.digest

    @property
    def is_admitted(self) -> bool:
        return self.measured is not None and self.measured.admitted and self.is_measured


def fault_of_source(source: str, fields: Sequence[str]) -> str:
    """Return why a source defines no `check(response, prompt, ...)` with these fields; empty if it does."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"the source is no Python: {error}".splitlines()[0]
    found = [one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == "check"]
    if not found:
        return "the source defines no function check(response, prompt)"
    names = [
        one.arg for one in (*found[-1].args.posonlyargs, *found[-1].args.args, *found[-1].args.kwonlyargs)
    ]
    if names[:2] != ["response", "prompt"] or sorted(names[2:]) != sorted(fields):
        return f"check must have the parameters {', '.join(('response', 'prompt', *fields))}"
    return ""


class Match(NamedTuple):
    """A checker with the values of its fields in a rule."""

    checker: Checker
    values: Mapping[str, Value]


class CheckerFile(BaseModel):
    """The checkers of a file, with and without admission."""

    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(cached_property,))

    version: Literal[1] = 1
    rules: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=LONGEST_RULE)], ...], Field(max_length=100)
    ] = ()
    """Rules of every row that has no criteria of its own."""
    checkers: Annotated[tuple[Checker, ...], Field(max_length=2_000)] = ()

    @model_validator(mode="after")
    def _have_different_names(self) -> Self:
        seen = set[str]()
        for one in self.checkers:
            if one.name in seen:
                raise ValueError(f"two checkers are called {one.name}")
            seen.add(one.name)
        return self

    @model_validator(mode="after")
    def _have_different_exact_rules(self) -> Self:
        # Checkers that are not admitted decide nothing, and may have any rule.
        seen = dict[str, str]()
        for one in self.admitted:
            if (text := one.exact_rule) is None:
                continue
            if text in seen:
                raise ValueError(f"the checkers {seen[text]} and {one.name} have the same rule: remove one")
            seen[text] = one.name
        return self

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file; raises ValueError, in one line that names the file, for a bad one."""
        try:
            if path.stat().st_size > LARGEST_FILE:
                raise ValueError(f"it is larger than {LARGEST_FILE >> 20} MiB")
            return cls.model_validate(toml_document(path.read_text(encoding="utf-8")))
        except ValidationError as error:
            raise ValueError(f"{path}: {first_fault(error)}") from None
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise ValueError(f"{path} is no file of checkers: {error}") from None

    def text(self) -> str:
        """Return the file as TOML that people can read."""
        rules = [f"    {_text(rule)}," for rule in self.rules]
        if rules:
            rules = ["rules = [", *rules, "]"]
        lines = (line for one in self.checkers for line in _lines(one))
        return "\n".join([f"version = {VERSION}", *rules, *lines, ""])

    def unmeasured(self, path: str | Path) -> str:
        """Say how many checkers decide nothing until they are measured; empty if there are none."""
        count = sum(not one.is_measured for one in self.checkers)
        command = f"tirjudge compile ROWS --measure {shlex.quote(str(path))}"
        return f"{count} are unmeasured, and decide nothing: {command} measures them" if count else ""

    @property
    def digest(self) -> str:
        """A hash of what decides: of the admitted checkers, and of the rules of all rows."""
        parts = [sorted(one.digest for one in self.admitted), self.rules]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    @cached_property
    def admitted(self) -> tuple[Checker, ...]:
        return tuple(one for one in self.checkers if one.is_admitted)

    @cached_property
    def _exact(self) -> Mapping[str, Checker]:
        return {text: one for one in self.admitted if (text := one.exact_rule) is not None}

    @cached_property
    def _patterns(self) -> Sequence[Checker]:
        return [one for one in self.admitted if one.pattern.fields]

    def match(self, rule: str) -> Match | None:
        """Return the admitted checker of a rule: by its exact text, else by the only pattern that matches.

        None if no checker matches, or the patterns of several do.
        """
        if exact := self._exact.get(rule.strip()):
            return Match(exact, {})
        found = [(one, values) for one in self._patterns if (values := one.pattern.values(rule)) is not None]
        return Match(*found[0]) if len(found) == 1 else None


def _lines(checker: Checker) -> Iterator[str]:
    yield f"\n[[checkers]]\nname = {_text(checker.name)}\nrule = {_text(checker.rule)}"
    if checker.author:
        yield f"author = {_text(checker.author)}"
    yield f"source = {_source(checker.source)}"
    if checker.measured is not None:
        yield "\n[checkers.measured]"
        for name, value in checker.measured.model_dump(exclude_defaults=True).items():
            yield f"{name} = {_value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return _text(value) if isinstance(value, str) else str(value)


def _text(value: str) -> str:
    """Return a TOML string in one line."""
    # JSON's escapes are TOML's too, but TOML has no lone surrogates and escapes DEL.
    return json.dumps(value.encode(errors="backslashreplace").decode(), ensure_ascii=False).replace(
        "\x7f", "\\u007f"
    )


def _source(source: str) -> str:
    plain = all((character >= " " and character != "\x7f") or character in "\t\n" for character in source)
    if (
        "'''" in source
        or not plain
        or (not source.isascii() and source != source.encode(errors="replace").decode())
    ):
        return _text(source)
    return f"'''\n{source}'''"


def toml_document(text: str) -> dict[str, Any]:
    """Return the values of a TOML document; raises ValueError, in one line, for any other text.

    The text may be somebody else's: keys that would take minutes or gigabytes to parse are refused.
    """
    if found := _LONG_KEY.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise ValueError(f"line {line}: a key may have {_MOST_PARTS} parts")
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None
