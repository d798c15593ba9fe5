"""The check of a program's source against the import policy, with reasons that a model can use.

RestrictedPython's transformer reads the source and its result is discarded: the source runs as it was given.
Only two groups of its rules are kept, on imports and on attributes that lead into the interpreter. The others
refuse what honest programs do (`d[k] += 1`, annotations, dataclasses, `match`). The check is no security
boundary, since programs can get around it; the worker isolates them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection
from typing import Any

Check = Callable[[bytes, Collection[str]], str]
"""Maps a source and the paths of the program's files to one line with the reasons why it is refused, empty if
it is not."""

_MOST_REASONS = 5
_KEPT = ("visit_Attribute", "visit_Import", "visit_ImportFrom", "visit_Name")

_NETWORK = "there is no network here"
_PROGRAMS = "no other program can be started here"
_PROCESSES = "a program here is one process, which may have threads"
_INTERPRETER = "programs here do not look into the interpreter"
_ELSEWHERE = "it is not among the modules that programs may import here"
_REASONS = {
    name: reason
    for reason, names in {
        _NETWORK: "aiohttp ftplib http httpx imaplib paramiko poplib requests smtplib socket socketserver "
        "ssl urllib urllib3 xmlrpc",
        _PROGRAMS: "pexpect pty subprocess",
        _PROCESSES: "concurrent multiprocessing",
        _INTERPRETER: "cffi code ctypes pkgutil runpy",
    }.items()
    for name in names.split()
}
"""Reasons by a module's top-level name; other modules get the general reason."""
_OF_OS = dict.fromkeys(
    ("popen", "posix_spawn", "posix_spawnp", "startfile", "system"), _PROGRAMS
) | dict.fromkeys(("fork", "forkpty"), _PROCESSES)
_EXEC_AND_SPAWN = ("exec", "spawn")
_OF_OTHERS = dict.fromkeys(("create_subprocess_exec", "create_subprocess_shell"), _PROGRAMS) | {
    "ProcessPoolExecutor": _PROCESSES
}
"""Names in modules that may be imported, which cannot start here."""
_NAMES = ("__builtins__", "__import__", "__loader__", "__spec__")
_ATTRIBUTES = ("__builtins__", "__globals__", "__loader__", "__subclasses__")


def check(imports: Collection[str]) -> Check:
    """Return the check for programs that may import `imports` and their submodules.

    Raises OSError if RestrictedPython is not installed.
    """
    try:
        from RestrictedPython import transformer
    except ModuleNotFoundError:
        raise OSError(
            "an import policy needs RestrictedPython where programs run: it is not installed there"
        ) from None
    base = transformer.RestrictingNodeTransformer
    as_they_are = {name: _contents for name in dir(base) if name.startswith("visit_") and name not in _KEPT}
    refusals = type("Refusals", (_Rules, base), {**as_they_are, "generic_visit": _contents})
    inspecting = {*_ATTRIBUTES, *transformer.INSPECT_ATTRIBUTES}

    def check_source(source: bytes, files: Collection[str] = ()) -> str:
        found = refusals()
        found.imports, found.inspecting = imports, inspecting
        found.modules = _modules(source, files)
        try:
            found.visit(ast.parse(source))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            # Let compile() report syntax errors; what it accepts may run.
            return ""
        return _line(list(dict.fromkeys(found.errors)))

    return check_source


def _modules(source: bytes, files: Collection[str]) -> set[str]:
    """Return the names of the modules that a program brings along, or may write as its source says."""
    written = re.findall(rb"\b([A-Za-z_][A-Za-z0-9_]*)\.py\b", source)
    return {path.removesuffix(".py").split("/")[0] for path in files} | {name.decode() for name in written}


def _contents(self: Any, node: ast.AST) -> Any:
    return self.node_contents_visit(node)


class _Rules:
    """The rules that replace those of RestrictedPython's transformer."""

    errors: list[str]
    imports: Collection[str]
    modules: Collection[str]
    inspecting: Collection[str]

    def error(self, node: Any, reason: str) -> None:
        self.errors.append(f"line {node.lineno}: {reason}")

    def check_name(self, node: ast.AST, name: str | None, allow_magic_methods: bool = False) -> None:
        if name in _NAMES:
            self.error(node, f"{name}: {_INTERPRETER}")

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        if node.attr in self.inspecting:
            self.error(node, f".{node.attr}: {_INTERPRETER}")
        elif isinstance(node.value, ast.Name) and node.value.id == "os" and (why := _of_os(node.attr)):
            self.error(node, f"os.{node.attr}: {why}")
        elif node.attr in _OF_OTHERS:
            self.error(node, f"{node.attr}: {_OF_OTHERS[node.attr]}")
        return _contents(self, node)

    def visit_Import(self, node: ast.Import) -> Any:
        for alias in node.names:
            self._check_module(node, alias.name)
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        module = node.module or ""
        if node.level:
            self.error(node, "a relative import: a program here is no package")
        elif not self._allowed(module):
            for alias in node.names:
                # A policy may allow `concurrent.futures` alone, and so `from concurrent import futures`.
                self._check_module(node, f"{module}.{alias.name}", module)
        else:
            for alias in node.names:
                if why := _of_os(alias.name) if module == "os" else _OF_OTHERS.get(alias.name):
                    self.error(node, f"{module}.{alias.name}: {why}")
        return node

    def _check_module(self, node: ast.AST, name: str, shown: str = "") -> None:
        if not self._allowed(name):
            why = _REASONS.get(name.split(".")[0], _ELSEWHERE)
            self.error(node, f"import of {shown or name}: {why}")

    def _allowed(self, name: str) -> bool:
        parts = name.split(".")
        return parts[0] in self.modules or any(
            ".".join(parts[:count]) in self.imports for count in range(1, len(parts) + 1)
        )


def _of_os(name: str) -> str:
    return _PROGRAMS if name.startswith(_EXEC_AND_SPAWN) else _OF_OS.get(name, "")


def _line(reasons: list[str]) -> str:
    if not reasons:
        return ""
    more = len(reasons) - _MOST_REASONS
    shown = [*reasons[:_MOST_REASONS], f"and {more} more"] if more > 0 else reasons
    return f"PolicyError: the program was not run: {'; '.join(shown)}"
