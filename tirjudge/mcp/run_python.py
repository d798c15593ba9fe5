"""The tool `run_python_code`, compatible with mcp-run-python: its call and its answer."""

from __future__ import annotations

import json
import math
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from tirjudge.mcp import last_value
from tirjudge_environments.programs.outputs import error_line
from tirjudge_environments.quoting import cut_middle
from tirjudge_sandbox import Execution, Limits, Program, Sandbox, Status

ReturnMode = Literal["xml", "json"]
MOST_CHARACTERS = 75_000
"""Characters of an answer: about 25,000 tokens, which agents read at most."""
_LONGEST_REASON = 1000
_SOURCE = Path(last_value.__file__).read_text(encoding="utf-8")


class SandboxFailed(RuntimeError):
    """The sandbox failed, not the program."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of a run."""

    output: tuple[str, ...]
    """Lines of standard output, then of standard error."""
    value: str | None = None
    """The last expression's value as JSON; a text in XML is verbatim. None for None and after an error."""
    error: str | None = None

    @property
    def status(self) -> str:
        return "success" if self.error is None else "run-error"

    def shown(self, mode: ReturnMode, most: int = MOST_CHARACTERS) -> str:
        """Return the text that the agent reads; parts of a longer one than `most` are cut in the middle."""
        shown, room = "", most
        while room and len(shown := self._cut(room, mode)) > most:
            room = room * most // len(shown)
        return shown

    def _cut(self, room: int, mode: ReturnMode) -> str:
        """Return the text with at most about so many characters of content."""
        output, last = "\n".join(self.output), self.value or self.error or ""
        if len(output) + len(last) <= room:
            return self._json() if mode == "json" else self._xml()
        output = cut_middle(output, max(room // 2, room - len(last)))
        last = cut_middle(last, max(room // 2, room - len(output)))
        if self.error is None and mode == "json" and last != (self.value or ""):
            # JSON that was cut is no JSON any more, so it becomes a JSON text.
            last = json.dumps(last)
        value, error = (last, None) if self.error is None else (None, last)
        cut = replace(self, output=tuple(_lines(output)), value=value, error=error)
        return cut._json() if mode == "json" else cut._xml()

    def _json(self) -> str:
        fields: dict[str, Any] = {"status": self.status, "output": self.output}
        if self.error is None:
            fields["return_value"] = json.loads(self.value or "null")
        else:
            fields["error"] = self.error
        return json.dumps(fields, ensure_ascii=False)

    def _xml(self) -> str:
        parts = [f"<status>{self.status}</status>"]
        parts += _element("output", "\n".join(self.output)) if self.output else []
        parts += _element("return_value", self.value) if self.value else []
        parts += _element("error", self.error) if self.error else []
        return "\n".join(parts)


async def run_python_code(
    box: Sandbox,
    code: str,
    variables: Mapping[str, Any],
    mode: ReturnMode,
    limits: Limits,
    *,
    client: str = "",
) -> Answer:
    """Run code with these global variables, which are JSON values; `client`: see `Program`.

    Raises SandboxFailed.
    """
    # A random mark, so that no output separates itself from the value by accident.
    mark = f"\0{secrets.token_hex()}\0"
    bindings: dict[str, Any] = {"python_code": code, "global_variables": dict(variables), "mark": mark}
    bindings["text_as_it_is"] = mode == "xml"
    program = Program(source=_SOURCE, bindings=bindings, client=client)
    execution = await box.run(program, limits)
    if execution.status is Status.SANDBOX_FAILED:
        raise SandboxFailed(f"the sandbox failed, not the program: {execution.detail}")
    return _answer(execution, mark, mode)


def _answer(execution: Execution, mark: str, mode: ReturnMode) -> Answer:
    stdout, _, value = execution.stdout.partition(mark)
    stderr, _, trace = execution.stderr.partition(mark)
    output = (*_lines(stdout), *_lines(stderr))
    if execution.status is not Status.OK:
        error = trace or error_line(execution, _LONGEST_REASON)
        if output and execution.status is not Status.ERROR:
            error += "; its output is unfinished"
        return Answer(output, error=error)
    if mode == "json" and not _is_json(value):
        # The program printed the value itself, so it may not be valid JSON.
        value = ""
    return Answer(output, value=value or None)


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _is_json(text: str) -> bool:
    """Return True for valid JSON, which has no NaN and no infinite number."""
    try:
        json.loads(text, parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError):
        return False
    return True


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is no finite number")
    return number


def _element(name: str, content: str) -> list[str]:
    """Return the element's lines; its own tags are escaped in the content."""

    def escaped(match: re.Match[str]) -> str:
        return match[0].replace("<", "&lt;").replace(">", "&gt;")

    return [
        f"<{name}>",
        # Ending at the next bracket, each part is read once: the text may be a megabyte of open tags.
        re.sub(rf"</?\s*{name}(?:[^<>\n]*>)?", escaped, content, flags=re.IGNORECASE),
        f"</{name}>",
    ]
