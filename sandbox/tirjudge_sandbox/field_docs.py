"""Docstrings below the fields of a class, for `help`: Python itself drops them."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeVar

T = TypeVar("T")

_INDENTED = textwrap.TextWrapper(100, initial_indent="    ", subsequent_indent="        ")


def with_field_docs(member: T) -> T:
    """Make the docstring of a class end with its fields and their docstrings; return the class.

    The source is only read when somebody looks at the docstring, except of a class with a metaclass, such as
    pydantic's: `help` takes no docstring from a descriptor of it. Anything but a class is returned as it is.
    """
    if isinstance(member, type) and not isinstance(vars(member).get("__doc__"), _FieldDocs):
        if type(member) is type:
            member.__doc__ = _FieldDocs(member.__doc__ or "")  # type: ignore[assignment]
        elif fields := getattr(member, "model_fields", {}):
            found = _documented(member)
            described = {name: field.description or found.get(name) for name, field in fields.items()}
            docs = {name: text for name, text in described.items() if text}
            member.__doc__ = _joined(member.__doc__ or "", docs)
    return member


class _FieldDocs:
    """The docstring of a class; a descriptor, so that it is only made when it is read."""

    def __init__(self, text: str):
        self._text = text

    def __get__(self, instance: object, owner: type[Any]) -> str:
        return _joined(self._text, _documented(owner))


def _joined(docstring: str, fields: Mapping[str, str]) -> str:
    if not fields:
        return docstring
    described = [_INDENTED.fill(f"{name}: {' '.join(text.split())}") for name, text in fields.items()]
    return "\n".join([inspect.cleandoc(docstring), "", "Fields:", *described])


def _documented(cls: type[Any]) -> dict[str, str]:
    """Return the docstring of every documented field in the bodies of a class and of its bases."""
    ours = [base for base in reversed(cls.__mro__) if base.__module__.startswith("tirjudge")]
    return {
        name: text
        for base in ours
        for name, text in _documented_in(base.__module__).get(base.__name__, {}).items()
    }


@lru_cache
def _documented_in(module: str) -> dict[str, dict[str, str]]:
    """Return the classes of a module with their documented fields; a module is read once for all of them."""
    parsed = ast.parse(inspect.getsource(sys.modules[module]))
    return {one.name: dict(_fields(one)) for one in parsed.body if isinstance(one, ast.ClassDef)}


def _fields(cls: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, text in pairwise(cls.body):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(name)) | ast.Assign(targets=[ast.Name(name)]),
                ast.Expr(ast.Constant(str(words))),
            ) if not name.startswith("_"):
                yield name, words
