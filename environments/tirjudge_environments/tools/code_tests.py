"""Tests of untrusted code, with a separate program for each case, and the tool `run_tests`.

A case's expected value never reaches the code's process, and no printed text can end a line of the tool's
answer: passing code has computed the expected value, or guessed the value from the inputs.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tirjudge_environments.files.folder import NO_FILES
from tirjudge_environments.files.placing import with_room
from tirjudge_environments.orders import letters
from tirjudge_environments.programs.outputs import error_line
from tirjudge_environments.turn_reader import code_of
from tirjudge_environments.types import ToolSpec
from tirjudge_sandbox import Execution, Limits, Program, Sandbox, Status
from tirjudge_sandbox.base import MIB
from tirjudge_sandbox.http.fields import one_line

MOST_CASES = 16
"""Cases of one call of the tool."""
_WALL = 4
"""Seconds of wall time for each of CPU time: the machine may be busy."""
_OUTPUT_BYTES = 1 << 16
_MOST_VALUE_BYTES = MIB
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,1000}\.?[0-9]{0,1000}|\.[0-9]{1,1000})(?:[eE][+-]?[0-9]{1,4})?")
"""A number in a line of output; `1_5` and digits of other alphabets are words."""
_LONGEST_SHOWN = 200
"""Characters of a value, an output or an error in a reason."""
_MOST_MEMORY_MIB = 4096
_VALUE = "tirjudge-value.json"
_VALUE_LINE = "\ntirjudge-value "
"""The start of the line of standard output that holds the value where programs can write no file."""
_SOURCE = """\
def _tirjudge():
    import json, sys
    from builtins import eval, open
    from os import write

    names = globals()
    del names["_tirjudge"]
    if {path!r}:
        names["__file__"] = {path!r}
        sys.path.insert(0, {folder!r})
    # A prepared program may have imported modules of these names, which are not those of the files.
    for module in [*sys.modules]:
        if module.partition(".")[0] in {modules!r}:
            del sys.modules[module]
    sys.argv = [{path!r} or "program.py", *{arguments!r}]
    exec(compile({code!r}, "<program>", "exec"), names)
    if {call!r}:
        value = json.dumps(eval({call!r}, names))
        try:
            with open({file!r}, "w") as file:
                file.write(value)
        except PermissionError:
            # Programs can write no file in this placement, so the value is printed instead.
            left = ({line!r} + value + "\\n").encode()
            while left:
                left = left[write(1, left):]


_tirjudge()
"""
"""Runs the code as `__main__`. All names here are local to a function: the code cannot find them, nor change
anything here."""
_TAGGED = (
    "(lambda tagged: tagged(tagged, {call}))(lambda tagged, value: "
    "{{'tuple': [tagged(tagged, one) for one in value]}} if isinstance(value, tuple) else "
    "[tagged(tagged, one) for one in value] if isinstance(value, list) else "
    "{{repr(key): tagged(tagged, one) for key, one in value.items()}} if isinstance(value, dict) else "
    "value.tolist() if hasattr(value, 'tolist') else value)"
)
"""A call whose value is as `_tagged` makes it; a number of NumPy, which is no JSON, becomes Python's."""
_LIMITS = Limits(cpu_seconds=60, wall_seconds=120, memory_bytes=_MOST_MEMORY_MIB * MIB)


class Case(BaseModel):
    """One test of a program: its inputs, and what it must print or return."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    stdin: str = ""
    """Text of standard input."""
    arguments: tuple[str, ...] = ()
    """Words of the command line."""
    files: Mapping[str, str] = Field(default_factory=dict)
    """Files in the working folder: relative path to text."""
    call: str = ""
    """A Python expression that is evaluated after the program, such as `add(2, 3)`; empty for none. It
    compares nothing: `expected` is compared where the program cannot reach."""
    expected: Any = None
    """With a call the value of the call, as JSON. Without a call the standard output; null for any."""
    seconds: Annotated[float, Field(gt=0, le=60)] = 2.0
    """CPU time. There is four times as much wall time."""
    memory_mib: Annotated[int, Field(ge=1, le=_MOST_MEMORY_MIB)] = 512
    """Memory in MiB."""

    @model_validator(mode="after")
    def _expects_a_text_of_a_program(self) -> Case:
        if not self.call and not isinstance(self.expected, str | None):
            raise ValueError("without a call, `expected` is the standard output: a text, or null")
        if self.call and _compares(self.call):
            raise ValueError(
                "`call` compares, which an object of the program can answer as it likes: write the value "
                "alone, such as add(2, 3), as `call`, and what it must equal as `expected`"
            )
        return self


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The result of one case."""

    passed: bool | None
    """None if the sandbox failed, which says nothing about the code."""
    reason: str
    """Why the case failed, in one line of bounded length; empty if it passed."""
    execution: Execution
    """The run of the code; its status is CPU_LIMIT or WALL_LIMIT if no time was left for it."""


async def run_tests(
    sandbox: Sandbox,
    code: str,
    cases: Sequence[Case],
    *,
    limits: Limits = _LIMITS,
    seed: int = 0,
    files: Mapping[str, bytes] = NO_FILES.files,
    path: str = "",
) -> tuple[CaseResult, ...]:
    """Run Python code once for every case, in order, each time in a separate process.

    A case passes if the program ends by itself with exit code 0 and the call's value or the output is as
    expected. Outputs are compared line by line without surrounding white space; a line of numbers equals a
    line with the same numbers (LiveCodeBench, `testing_util.py`). Times of `limits` apply to all cases
    together, other bounds to each case. `files` are in the working folder of every case, below the case's
    own; `path` is that of the code among them, whose folder is the first that imports look in. Never raises
    for the code's behaviour; raises ValueError for files that cannot be written.
    """
    results: list[CaseResult] = []
    cpu, wall = limits.cpu_seconds, limits.wall_seconds
    for case in cases:
        if cpu <= 0 or wall <= 0:
            spent = Execution(status=Status.CPU_LIMIT if cpu <= 0 else Status.WALL_LIMIT)
            results.append(CaseResult(False, "not run: the time of all cases is spent", spent))
            continue
        own = replace(
            limits,
            cpu_seconds=min(case.seconds, cpu),
            wall_seconds=min(_WALL * case.seconds, wall),
            memory_bytes=min(case.memory_mib * MIB, limits.memory_bytes),
            output_bytes=min(_OUTPUT_BYTES, limits.output_bytes),
        )
        program = _program(code, case, seed, files, path)
        execution = await sandbox.run(program, with_room(own, program.files))
        cpu, wall = cpu - execution.cpu_seconds, wall - execution.wall_seconds
        results.append(_result(case, execution))
    return tuple(results)


def _program(code: str, case: Case, seed: int, files: Mapping[str, bytes], path: str) -> Program:
    own = {name: text.encode("utf-8", "surrogatepass") for name, text in case.files.items()}
    folder = path.rpartition("/")[0]
    source = _SOURCE.format(
        arguments=case.arguments,
        code=code,
        call=case.call,
        file=_VALUE,
        line=_VALUE_LINE,
        path=path,
        folder=folder,
        modules=_modules({**files, **own}, folder),
    )
    return Program(
        source=source,
        stdin=case.stdin,
        files={name: content for name, content in {**files, **own}.items() if name != _VALUE},
        fetch=(_VALUE,) if case.call else (),
        seed=seed,
    )


def _modules(files: Iterable[str], folder: str) -> list[str]:
    """Return the names that imports find among files, from the working folder or from `folder`."""
    sources = [name for name in files if name.endswith(".py")]
    inside = [name.removeprefix(f"{folder}/") for name in sources if folder and name.startswith(f"{folder}/")]
    names = {name.partition("/")[0].removesuffix(".py") for name in [*sources, *inside]}
    return sorted(names - {"__main__", *sys.builtin_module_names})


def _result(case: Case, execution: Execution) -> CaseResult:
    if execution.status is Status.SANDBOX_FAILED:
        return CaseResult(None, "the sandbox failed", execution)
    if execution.status is not Status.OK:
        return CaseResult(False, f"ended with {_shown(error_line(execution, _LONGEST_SHOWN))}", execution)
    if not case.call:
        if case.expected is None or _same_output(execution.stdout, case.expected):
            return CaseResult(True, "", execution)
        return CaseResult(False, _differs("printed", execution.stdout, case.expected), execution)
    content = execution.files.get(_VALUE, _printed_value(execution.stdout))
    if content is None or len(content) > _MOST_VALUE_BYTES:
        fault = "ended before the call" if content is None else "returned a value that is too large"
        return CaseResult(False, fault, execution)
    try:
        value = json.loads(content)
        passed = _equal(value, case.expected)
        reason = "" if passed else _differs("returned", value, case.expected)
    except (ValueError, RecursionError):  # the code may write the file itself
        return CaseResult(False, "returned no JSON value", execution)
    return CaseResult(passed, reason, execution)


def _printed_value(stdout: str) -> bytes | None:
    _, start, rest = stdout.rpartition(_VALUE_LINE)
    return rest.partition("\n")[0].encode() if start else None


def _same_output(printed: str, expected: str) -> bool:
    ours, theirs = ([line.strip() for line in text.strip().split("\n")] for text in (printed, expected))
    return len(ours) == len(theirs) and all(map(_same_line, ours, theirs))


def _same_line(one: str, other: str) -> bool:
    if one == other:
        return True
    ours, theirs = one.split(), other.split()
    numbers = all(_NUMBER.fullmatch(word) for word in (*ours, *theirs))
    return numbers and list(map(Decimal, ours)) == list(map(Decimal, theirs))


def _equal(value: Any, expected: Any) -> bool:
    """Compare values of JSON: 1 equals 1.0, and true does not equal 1."""
    if isinstance(value, list) and isinstance(expected, list):
        return len(value) == len(expected) and all(map(_equal, value, expected))
    if isinstance(value, dict) and isinstance(expected, dict):
        return value.keys() == expected.keys() and all(_equal(value[key], expected[key]) for key in value)
    return isinstance(value, bool) == isinstance(expected, bool) and bool(value == expected)


def _compares(call: str) -> bool:
    """Return True if the value of an expression is made of comparisons."""
    try:
        tree = ast.parse(call.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False  # the program shows the error
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        # The value does not consist of what a key function, a filter or a choice compares.
        if isinstance(node, ast.Lambda):
            skipped.update(ast.walk(node.body))
        elif isinstance(node, ast.comprehension):
            skipped.update(part for condition in node.ifs for part in ast.walk(condition))
        elif isinstance(node, ast.IfExp):
            skipped.update(ast.walk(node.test))
    compared = (ast.Compare, ast.Not)
    special = ("__eq__", "__ne__", "__contains__")
    return any(
        node not in skipped
        and (isinstance(node, compared) or (isinstance(node, ast.Attribute) and node.attr in special))
        for node in ast.walk(tree)
    )


def cases_of(tests: str, seconds: float) -> list[Case] | None:
    """Return assertions of equality with a literal, such as `assert add(2, 3) == 5`, as cases.

    None if there is any other test.
    """
    cases: list[Case] = []
    try:
        for statement in ast.parse(tests).body:
            match statement:
                case ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[right])):
                    value, literal = (right, left) if _is_literal(left) else (left, right)
                    expected = _tagged(ast.literal_eval(literal))
                    json.dumps(expected)
                    call = _TAGGED.format(call=ast.unparse(value))
                    cases.append(Case(call=call, expected=expected, seconds=seconds))
                case _:
                    return None
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    return cases or None


def _tagged(value: Any) -> Any:
    """Return a value as JSON that tells a tuple from a list and the keys 1 and "1" apart."""
    if isinstance(value, tuple):
        return {"tuple": list(map(_tagged, value))}
    if isinstance(value, list):
        return list(map(_tagged, value))
    return {repr(key): _tagged(one) for key, one in value.items()} if isinstance(value, dict) else value


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except ValueError:
        return False
    return True


def _differs(verb: str, found: Any, expected: Any) -> str:
    return f"{verb} {_shown(found)}, expected {_shown(expected)}"


def _shown(value: Any) -> str:
    """Return a value as JSON in ASCII: no character of it ends a line, or reads as another one."""
    text = json.dumps(value)
    half = _LONGEST_SHOWN // 2
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:half]} ... {text[-half:]}"


class _Asked(BaseModel):
    """The arguments of the tool."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    response: str = ""
    """The letter of the response to test; empty for all."""
    file: str = ""
    """The path of a Python module among the files of the response, such as src/app.py, to run in place of the
    longest fence, beside its other files."""
    cases: Annotated[tuple[Case, ...], Field(min_length=1, max_length=MOST_CASES)]
    """Objects with `stdin`, `arguments`, `files`, `call`, `expected`, `seconds` and `memory_mib`, all of them
    optional. Each case runs the program of the response anew."""


def _untitled(schema: Any) -> Any:
    """Return a JSON schema without the titles that pydantic adds, which tell a model nothing."""
    if isinstance(schema, list):
        return list(map(_untitled, schema))
    if not isinstance(schema, dict):
        return schema
    return {name: _untitled(part) for name, part in schema.items() if name not in ("title", "format")}


RUN_TESTS = ToolSpec(
    name="run_tests",
    description="Run the Python program of a response, its longest fence or one of its files, on cases, and "
    "return which passed.",
    parameters=_untitled(_Asked.model_json_schema()),
)


class RunTests:
    """The tool `run_tests`: the code of one response of the view, or of all, on cases that a judge writes."""

    spec = RUN_TESTS

    def __init__(self, sandbox: Sandbox, limits: Limits = Limits()) -> None:
        """`limits`: their times apply to all cases of a call together."""
        self._sandbox, self.limits = sandbox, limits

    async def call(
        self, arguments: Mapping[str, Any], *, bindings: Mapping[str, Any] | None = None, seed: int = 0
    ) -> Execution:
        bound = bindings or {}
        responses = bound.get("responses", [])
        names = letters(len(responses))
        named = dict(zip(names, responses, strict=True))
        folders = dict.fromkeys(names, NO_FILES) | dict(zip(names, bound.get("files", ()), strict=False))
        texts: list[str] = []
        runs: list[Execution] = []
        try:
            asked = _Asked.model_validate(arguments)
            if asked.response:
                named = {asked.response: named[asked.response]}
            # Each has its own share of the time, so that no program can use up that of another response.
            share = replace(
                self.limits,
                cpu_seconds=self.limits.cpu_seconds / len(named),
                wall_seconds=self.limits.wall_seconds / len(named),
            )
            for name, response in named.items():
                text = response if isinstance(response, str) else response[-1]["content"]
                code = folders[name].text(asked.file) if asked.file else code_of(text)
                if code is None:
                    texts.append(f"response {name}: {_shown(asked.file)} is no text among its files")
                    continue
                try:
                    results = await run_tests(
                        self._sandbox,
                        code,
                        asked.cases,
                        limits=share,
                        seed=seed,
                        files=folders[name].files if asked.file else {},
                        path=asked.file,
                    )
                except ValueError as error:  # its files and those of a case, which others may have room for
                    texts.append(f"response {name}: {error}")
                    continue
                runs += [result.execution for result in results]
                texts.append(_table(name, results))
            if not runs:
                return _refused("; ".join(texts))
        except KeyError:
            return _refused(f"response: there are only {', '.join(named)}")
        except ValidationError as error:
            return _refused(one_line(error))
        failed = next((run for run in runs if run.status is Status.SANDBOX_FAILED), None)
        return failed or Execution(
            status=Status.OK,
            stdout="\n".join(texts),
            wall_seconds=sum(run.wall_seconds for run in runs),
            cpu_seconds=sum(run.cpu_seconds for run in runs),
            queued_seconds=sum(run.queued_seconds for run in runs),
            max_rss_bytes=max(run.max_rss_bytes for run in runs),
            isolation=runs[0].isolation,
        )


def _refused(reason: str) -> Execution:
    return Execution(status=Status.ERROR, stderr=f"ValueError: {reason}")


def _table(name: str, results: Sequence[CaseResult]) -> str:
    """Return the text that shows a judge a response's results."""
    passed = sum(result.passed is True for result in results)
    lines = [f"response {name}: {passed} of {len(results)} cases passed"]
    for number, result in enumerate(results, 1):
        lines.append(f"case {number}: {'passed' if result.passed else f'failed: {result.reason}'}")
    return "\n".join(lines)
