"""Tests of many rows: one test runs all of them, and a failure names its row."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

Test = Callable[..., Any]
_PARAM = type(pytest.param())


def every(step: int, rows: Iterable[Any]) -> list[Any]:
    """Return rows for `pytest.mark.parametrize`: the first of each `step` rows is no slow test."""
    params = [row if isinstance(row, _PARAM) else pytest.param(row) for row in rows]
    return [
        param if not number % step else param._replace(marks=[*param.marks, pytest.mark.slow])
        for number, param in enumerate(params)
    ]


@contextmanager
def _naming(row: object):
    try:
        yield
    except BaseException as error:
        error.add_note(f"row: {row!r}")
        raise


def each_row(names: str, rows: Iterable[Any]) -> Callable[[Test], Test]:
    """Run a test for every row, in one pytest test, in place of `pytest.mark.parametrize`.

    `names`: names of the test's arguments, with commas. A row is a value, or a sequence where there are
    several names. Thousands of tests cost pytest more than what they test; all rows share the fixtures.
    """
    keys = [name.strip() for name in names.split(",")]
    table: Sequence[Any] = list(rows)
    assert table

    def decorated(test: Test) -> Test:
        def arguments(row: Any) -> dict[str, Any]:
            return dict(zip(keys, row if len(keys) > 1 else (row,), strict=True))

        async def awaited(**fixtures: Any) -> None:
            for row in table:
                with _naming(row):
                    await test(**fixtures, **arguments(row))

        def called(**fixtures: Any) -> None:
            for row in table:
                with _naming(row):
                    test(**fixtures, **arguments(row))

        run = functools.wraps(test)(awaited if inspect.iscoroutinefunction(test) else called)
        signature = inspect.signature(test)
        given = [one for name, one in signature.parameters.items() if name not in keys]
        run.__signature__ = signature.replace(parameters=given)  # type: ignore[attr-defined]
        del run.__wrapped__  # type: ignore[attr-defined]
        return run

    return decorated
