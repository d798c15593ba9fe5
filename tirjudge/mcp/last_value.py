"""The program that wraps an agent's code: runs it as `__main__` and prints its last value as JSON.

It is sent to the sandbox as source, so it imports only the standard library. The code may use `await` at top
level. The value follows `mark` on standard output, the traceback follows `mark` on standard error; the
program can forge both.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import dataclasses
import inspect
import json
import linecache
import sys
import traceback
import types
import warnings
from typing import Any

_FILE = "main.py"


def run(code: str, variables: dict[str, Any], mark: str, text_as_it_is: bool) -> None:
    """Run the code and end as it ends. With `text_as_it_is` a text value is printed without quotes."""
    linecache.cache[_FILE] = (len(code), None, f"{code}\n".splitlines(keepends=True), _FILE)
    names = {**variables, "__name__": "__main__", "__builtins__": builtins}
    streams = sys.stdout, sys.stderr
    _hide_places({frame.f_code.co_filename for frame, _ in traceback.walk_stack(sys._getframe())})
    try:
        value = _value(_parts(code), names)
        if value is not None:
            text = value if text_as_it_is and isinstance(value, str) else _json(value)
            _print(streams[0], mark, text)
    except SystemExit:
        raise
    except BaseException as error:
        trace = traceback.format_exception(error.with_traceback(_own(error)))
        _print(streams[1], mark, "".join(trace))
        sys.exit(1)


def _hide_places(files: set[str]) -> None:
    """Leave out where a warning arose if that is in one of these files, which the agent did not write."""
    shown = warnings.formatwarning

    def formatted(message: Any, category: Any, filename: str, *more: Any, **named: Any) -> str:
        if filename in files:
            return f"{category.__name__}: {message}\n"
        return shown(message, category, filename, *more, **named)

    warnings.formatwarning = formatted


def _parts(code: str) -> list[types.CodeType]:
    """Compile the statements, with a final expression as a part of its own."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree = compile(code, _FILE, "exec", flags | ast.PyCF_ONLY_AST, dont_inherit=True)
    parts: list[Any] = [tree]
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        parts.append(ast.Expression(tree.body.pop().value))
    return [
        compile(part, _FILE, "eval" if isinstance(part, ast.Expression) else "exec", flags, dont_inherit=True)
        for part in parts
    ]


def _value(parts: list[types.CodeType], names: dict[str, Any]) -> Any:
    if not any(part.co_flags & inspect.CO_COROUTINE for part in parts):
        return [eval(part, names) for part in parts][-1]

    async def evaluated() -> Any:
        value = None
        for part in parts:
            value = eval(part, names)
            if part.co_flags & inspect.CO_COROUTINE:
                value = await value
        return value

    return asyncio.run(evaluated())


def _own(error: BaseException) -> types.TracebackType | None:
    """Return the traceback from the first frame of the agent's code on."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != _FILE:
        trace = trace.tb_next
    return trace


def _print(stream: Any, mark: str, text: str) -> None:
    # Half a character is written as its escape, which JSON has as well.
    stream.write("".join((mark, text)).encode("utf-8", "backslashreplace").decode())
    stream.flush()


def _json(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, default=_plain)
        # JSON has no infinite numbers and no NaN, which `dumps` writes all the same.
        finite = json.loads(text, parse_constant=lambda name: repr(float(name)))
        return json.dumps(finite, indent=2, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        pass
    # An error of `repr` is not shown as one during the handling of that above.
    return json.dumps(repr(value), ensure_ascii=False)


def _plain(value: Any) -> Any:
    """Return a JSON form of a value that JSON does not know; its repr if there is none."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    for name in ("tolist", "model_dump", "isoformat"):
        method = getattr(value, name, None)
        if callable(method) and not isinstance(value, type):
            return method()
    return list(value) if isinstance(value, set | frozenset) else repr(value)


if __name__ == "__main__":
    run(python_code, global_variables, mark, text_as_it_is)  # type: ignore[name-defined]  # noqa: F821
