"""Docstrings below the fields of a class, for `help`: Python itself drops them."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, TypeVar

T = TypeVar("T")

_INDENTED = textwrap.TextWrapper(100, initial_indent="    ", subsequent_indent="        ")


def with_field_docs(member: T) -> T:
    """Make the docstring of a class end with its fields and their docstrings; return the class.

    The source is only read when somebody looks at the docstring. Anything but a class is returned as it is,
    and so is an enumeration: `help` takes no docstring from a descriptor of a class with a metaclass.
    """
    if isinstance(member, type) and not isinstance(vars(member).get("__doc__"), _FieldDocs):
        if type(member) is type:
            member.__doc__ = _FieldDocs(member.__doc__ or "")  # type: ignore[assignment]
        elif fields := getattr(member, "model_fields", {}):
            found = {name: field.description for name, field in fields.items() if field.description}
            member.__doc__ = _joined(member.__doc__ or "", found)
    return member


class _FieldDocs:
    """The docstring of a class; a descriptor, so that it is only made when it is read."""

    def __init__(self, text: str):
        self._text = text

    def __get__(self, instance: object, owner: type[Any]) -> str:
        return _joined(
            self._text, {name: text for cls in reversed(owner.__mro__) for name, text in _documented(cls)}
        )


def _joined(docstring: str, fields: Mapping[str, str]) -> str:
    if not fields:
        return docstring
    described = [_INDENTED.fill(f"{name}: {' '.join(text.split())}") for name, text in fields.items()]
    return "\n".join([inspect.cleandoc(docstring), "", "Fields:", *described])


def _documented(cls: type[Any]) -> Iterator[tuple[str, str]]:
    """Yield the name and the docstring of every documented field in the body of a class."""
    if not cls.__module__.startswith("tirjudge"):
        return
    (parsed,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(parsed, ast.ClassDef)
    for field, text in pairwise(parsed.body):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(name)) | ast.Assign(targets=[ast.Name(name)]),
                ast.Expr(ast.Constant(str(words))),
            ) if not name.startswith("_"):
                yield name, words
