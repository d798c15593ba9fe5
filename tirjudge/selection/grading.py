"""Questions of best-of-N: candidates from rows, and grades of which candidates solve them, kept on disk."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import secrets
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, Self

from pydantic import ValidationError

from tirjudge.data.rows import BadRow, Row
from tirjudge.judging.batch import Failure
from tirjudge.judging.questions import truncated
from tirjudge.rollout import all_or_none
from tirjudge.storage.json_lines import JsonLines, read_lines
from tirjudge_environments import JudgeTask
from tirjudge_environments.instruction_checks import followed, verifiers_of
from tirjudge_environments.messages import final_text, response_data, whole_text
from tirjudge_environments.registry import first_fault
from tirjudge_environments.tasks import DEFAULT_COLUMNS, Columns, RowError, read_task
from tirjudge_environments.tools.code_tests import Case, cases_of, run_tests
from tirjudge_environments.turn_reader import code_of
from tirjudge_sandbox import Execution, Limits, Program, Sandbox, Status, open_sandbox

CheckName = Literal["auto", "instructions", "tests", "math", "recorded", "label", "none"]
_EVIDENCE = {"instructions": "instruction_id_list", "tests": "tests", "math": "answer", "recorded": "solved"}
"""Check to the column that it needs; `auto` takes the first check whose column a row has, then its label."""
UNGRADED = "none"
"""The check of a question about which nothing is known: its candidates are selected, not graded."""

PRELOAD = ("numpy", "sympy", "math_verify")
"""Modules that the sandbox should preload: importing math-verify takes a second."""
MATH_LIMITS = Limits(cpu_seconds=120, wall_seconds=300)
_NO_MATH_VERIFY = "ModuleNotFoundError: No module named 'math_verify'"
TEST_LIMITS = Limits(cpu_seconds=60, wall_seconds=120, memory_bytes=1 << 30)
_ASSERTION_SECONDS = 20.0
"""CPU seconds of one assertion."""
_MODULES = (
    "string re datetime collections heapq bisect copy math random statistics itertools functools operator io "
    "sys json builtins typing"
)
_SETUP = "".join(f"import {name}\nfrom {name} import *\n" for name in _MODULES.split())
"""What LiveCodeBench imports before a program (`testing_util.py`)."""

_RUN_TEST_CASES = """
import unittest as _unittest
_cases = [one for one in list(globals().values())
          if isinstance(one, type) and issubclass(one, _unittest.TestCase)]
_suite = _unittest.TestSuite(map(_unittest.defaultTestLoader.loadTestsFromTestCase, _cases))
if not _suite.countTestCases() or not _unittest.TextTestRunner().run(_suite).wasSuccessful():
    raise SystemExit(1)
"""


@dataclass(frozen=True, slots=True)
class CandidateSet:
    """A prompt with N candidates, and the evidence, if there is any, for which candidates solve it."""

    task: JudgeTask
    """Its `gold` holds the `check` and what that needs: `answer`, `instructions`, `tests` or `solved`."""
    where: str
    """File and line, for messages."""


@dataclass(frozen=True, slots=True)
class Grade:
    """Which candidates solve a question, and which give the same answer."""

    solved: tuple[float, ...] | None
    """Per candidate, from 0 to 1; usually 0 or 1. None if nothing says which candidates are right."""
    answers: tuple[int | None, ...]
    """Per candidate: equal numbers are equal answers; None is no answer."""


class Check(Protocol):
    """Grades the candidates of a question, without a judge."""

    async def grade(self, question: CandidateSet) -> Grade:
        """Raises ValueError, in one line, for a question that it cannot grade."""


class RefereeUnavailable(RuntimeError):
    """The model or the sandbox failed, or the prompt does not fit, so that nothing can be selected now."""

    def __init__(self, detail: str, *, passing: bool) -> None:
        """`passing` is True if a later attempt may succeed."""
        super().__init__(detail)
        self.passing = passing


def questions(
    rows: Iterable[Row | BadRow],
    *,
    check: CheckName = "auto",
    columns: Columns = DEFAULT_COLUMNS,
    labels: Mapping[str, str] | None = None,
    most: int | None = None,
) -> Iterator[CandidateSet | Failure]:
    """Read every row in order as a question, or as the reason why it is none.

    `most` is the largest number of candidates; later ones are left out. Ids must be unique.
    """
    seen: dict[str, str] = {}
    for row in rows:
        if isinstance(row, BadRow):
            yield Failure(row.where, None, row.reason)
            continue
        try:
            question = _question(row, check, columns, labels, most)
        except ValueError as error:
            yield Failure(row.where, None, str(error))
            continue
        name = question.task.id
        if name in seen:
            yield Failure(row.where, name, f"its id {name!r} was used before, at {seen[name]}")
        else:
            seen[name] = row.where
            yield question


def shown(question: CandidateSet, truncate: int | None, *, thinking: bool = True) -> CandidateSet:
    """Return the question as the judge sees it, see `truncated`."""
    return replace(question, task=truncated(question.task, truncate, thinking=thinking))


def _question(
    row: Row, check: CheckName, columns: Columns, labels: Mapping[str, str] | None, most: int | None
) -> CandidateSet:
    fields = unpacked(row.fields)
    task = read_task(fields, default_id=row.default_id, columns=columns, labels=labels, beside=row.beside)
    name = _check_of(row.fields, fields, task.label) if check == "auto" else check
    missing = task.label is None if name == "label" else _evidence(name, fields) is None
    if missing and name != UNGRADED:
        needed = _EVIDENCE.get(name, "a label that names one candidate")
        raise RowError(f"no evidence for which candidates solve it: a row needs {needed}")
    gold = {} if name == UNGRADED else _gold(name, fields, len(task.candidates), task.label)
    if "solved" in gold:
        gold["solved"] = gold["solved"][:most]
    kept = replace(
        task, candidates=task.candidates[:most], files=task.files[:most], sources=task.sources[:most]
    )
    return CandidateSet(replace(kept, gold={"check": name, **gold}, label=None), row.where)


def _check_of(row: Mapping[str, Any], fields: Mapping[str, Any], label: int | None) -> str:
    """Return the check that a row has columns for; scores of JETTS come before other metadata."""
    if _is_from_jetts(row) and fields["solved"] is not None:
        return "recorded"
    usual = UNGRADED if label is None else "label"
    return next((name for name in _EVIDENCE if _evidence(name, fields) is not None), usual)


def _evidence(name: str, fields: Mapping[str, Any]) -> Any:
    """Return what a row has in the column of a check; None if it is missing or the empty cell of a table."""
    value = fields.get(_EVIDENCE.get(name, ""))
    return None if value == "" else value


def _gold(name: str, fields: Mapping[str, Any], count: int, label: int | None) -> dict[str, Any]:
    """Return what a check needs. Raises ValueError for values that it cannot use."""
    if name == "label":
        return {"solved": [float(index == label) for index in range(count)]}
    value = fields[_EVIDENCE[name]]
    match name:
        case "instructions":
            instructions = {"instruction_id_list": value, "kwargs": fields.get("kwargs")}
            verifiers_of(instructions)
            return {"instructions": instructions}
        case "recorded":
            if not isinstance(value, list) or len(value) != count or not all(map(_is_share, value)):
                raise RowError(f"solved must be a list of {count} truth values or numbers from 0 to 1")
            return {"solved": [float(one) for one in value]}
        case "tests":
            entry_point = _text(fields.get("entry_point"), "entry_point")
            tests = _cases(value, entry_point) or _text(value, "tests")
            setup = {"setup": _SETUP} if "testtype" in str(value) and isinstance(tests, list) else {}
            return {"tests": tests, "entry_point": entry_point, **setup}
    return {"answer": _text(value, "answer")}


def _cases(value: Any, function: str) -> list[dict[str, Any]]:
    """Return the fields of `Case` for cases or for LiveCodeBench's tests; empty for tests in Python.

    Both may be JSON. Raises ValueError for a list of anything else.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return []
    if not isinstance(value, list) or not value:
        return []
    try:
        return [_case(one, function).model_dump(mode="json", exclude_defaults=True) for one in value]
    except ValidationError as error:
        raise RowError(f"tests: {first_fault(error)}") from None


def _case(value: Any, function: str) -> Case:
    if not isinstance(value, Mapping) or "testtype" not in value:
        return Case.model_validate(value)
    given, output = _text(value.get("input"), "input"), _text(value.get("output"), "output")
    if value["testtype"] == "stdin":
        return Case(stdin=given, expected=output)
    # LiveCodeBench writes the arguments of a call as JSON, one on each line.
    arguments = ", ".join(repr(json.loads(line)) for line in given.split("\n"))
    called = f"(Solution().{function} if 'Solution' in globals() else {function})({arguments})"
    return Case(call=called, expected=json.loads(output))


def unpacked(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Convert a JETTS row into the columns of tirjudge; BigCodeBench's column `test` is `tests`."""
    if _is_from_jetts(fields):
        fields = _from_jetts(fields, fields["query"])
    if "tests" in fields or "test" not in fields:
        return fields
    return {**fields, "tests": fields["test"]}


def _is_from_jetts(fields: Mapping[str, Any]) -> bool:
    return isinstance(fields.get("query"), Mapping) and "prompt" not in fields


def _from_jetts(fields: Mapping[str, Any], query: Mapping[str, Any]) -> Mapping[str, Any]:
    """Convert a JETTS row, whose query and responses are objects with a content and metadata."""
    responses = fields.get("responses")
    if not isinstance(responses, list) or not all(isinstance(one, Mapping) for one in responses):
        raise RowError("responses of a JETTS row must be objects with a content and metadata")
    metadata = query.get("metadata")
    scores = [(one.get("metadata") or {}).get("score") for one in responses]
    return {
        **(metadata if isinstance(metadata, Mapping) else {}),
        **{name: value for name, value in fields.items() if name != "query"},
        "prompt": query.get("content"),
        "responses": [one.get("content") for one in responses],
        "solved": None if None in scores else scores,
    }


def _is_share(value: Any) -> bool:
    return isinstance(value, bool | int | float) and 0 <= value <= 1


def _text(value: Any, name: str) -> str:
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise RowError(f"{name} must be a text or a number")
    return str(value)


def same_answers(keys: Iterable[Hashable]) -> tuple[int, ...]:
    """Number answers for `Grade.answers`: each gets the index of the first answer with an equal key."""
    first: dict[Hashable, int] = {}
    return tuple(first.setdefault(key, place) for place, key in enumerate(keys))


def same_responses(task: JudgeTask) -> tuple[int, ...]:
    """Number answers for `Grade.answers`: equal are files, and texts that differ only in white space."""
    texts = [" ".join(whole_text(response).split()) for response in task.candidates]
    return same_answers(zip(texts, task.files or texts, strict=True))


class Recorded:
    """Grades that the row itself contains: `solved`, the scores of JETTS rows, or a label.

    Candidates with the same text and files give the same answer.
    """

    async def grade(self, question: CandidateSet) -> Grade:
        return Grade(tuple(question.task.gold["solved"]), same_responses(question.task))


class Instructions:
    """IFEval's prompt-level strict accuracy: a candidate solves the question if it follows every instruction.

    Candidates with the same text and files give the same answer.
    """

    async def grade(self, question: CandidateSet) -> Grade:
        verifiers = verifiers_of(question.task.gold["instructions"])
        candidates = question.task.candidates
        solved = tuple(float(all(followed(verifiers, final_text(one)).strict)) for one in candidates)
        return Grade(solved, same_responses(question.task))


class Mathematics:
    """Compares the last boxed expression, otherwise the last number, of a candidate with `gold["answer"]`.

    Answers with equal values are the same answer, such as 1/2 and 0.5. A candidate whose answer cannot be
    read, or not be compared with the gold answer, within the limits has none.
    """

    def __init__(self, sandbox: Sandbox, limits: Limits = MATH_LIMITS) -> None:
        self._sandbox, self._limits = sandbox, limits

    async def grade(self, question: CandidateSet) -> Grade:
        candidates = question.task.candidates
        everyone = tuple(range(len(candidates)))
        execution = await self._run(question, everyone)
        if execution.status is Status.OK:
            return _grade(execution, everyone, len(candidates))
        # Some expression did not end: find out which, first the gold answer, then candidate by candidate.
        execution = await self._run(question, ())
        if execution.status is not Status.OK:
            raise ValueError(f"math-verify cannot compare with the answer: {_last_line(execution)}")
        readable = tuple([index for index in everyone if await self._has_answer(question, index)])
        execution = await self._run(question, readable)
        if execution.status is not Status.OK:
            raise ValueError(f"math-verify cannot compare the candidates' answers: {_last_line(execution)}")
        return _grade(execution, readable, len(candidates))

    async def _has_answer(self, question: CandidateSet, candidate: int) -> bool:
        """Return True if a candidate alone has an answer that can be read and compared within the limits."""
        execution = await self._run(question, (candidate,))
        return execution.status is Status.OK and json.loads(execution.stdout)["answers"] != [None]

    async def _run(self, question: CandidateSet, candidates: tuple[int, ...]) -> Execution:
        """Compare these candidates in the sandbox. Raises RefereeUnavailable if the sandbox failed."""
        bound = {
            "gold": question.task.gold["answer"],
            "responses": [final_text(question.task.candidates[index]) for index in candidates],
        }
        source = (
            f"from __future__ import annotations\n\n{inspect.getsource(show_grades)}\n"
            "show_grades(gold, responses)\n"
        )
        execution = await self._sandbox.run(Program(source=source, bindings=bound), self._limits)
        if execution.status is Status.SANDBOX_FAILED:
            raise RefereeUnavailable(execution.detail, passing=True)
        if _NO_MATH_VERIFY in execution.stderr:
            raise ValueError("comparing final answers needs the extra `eval`: pip install 'tirjudge[eval]'")
        return execution


def show_grades(gold: str, responses: list[str]) -> None:
    """Print as JSON if the gold answer can be read, who is right, and who gives the same answer.

    The source of this function runs in the sandbox, because answers are hostile text: one may be an
    expression that never ends. It must not refer to anything outside of its body.
    """
    import json
    import logging
    import time

    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    logging.disable(logging.CRITICAL)
    configs = (LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig())
    seconds = 5  # for reading one answer, and for comparing two

    def read(text: str) -> list[Any]:
        found: list[Any] = parse(text, configs, parsing_timeout=seconds)
        return found

    def same(first: list[Any], second: list[Any]) -> bool:
        return bool(verify(first, second, timeout_seconds=seconds))

    right = read("\\boxed{" + gold + "}")
    found = [read(text) for text in responses]
    solved: list[bool] = []
    for place, one in enumerate(found):
        started = time.monotonic()
        solved.append(bool(one) and same(right, one))
        if time.monotonic() - started >= seconds:
            found[place] = []  # otherwise it would take as long again beside every other candidate
    answers: list[int | None] = []
    for place, one in enumerate(found):
        alike = (first for first in range(place) if answers[first] == first and same(found[first], one))
        answers.append(next(alike, place) if one else None)
    print(json.dumps({"gold": bool(right), "solved": solved, "answers": answers}))


def _grade(execution: Execution, candidates: tuple[int, ...], count: int) -> Grade:
    """Read the printed grades. Raises ValueError for a gold answer that cannot be read."""
    shown: dict[str, Any] = json.loads(execution.stdout)
    if not shown["gold"]:
        raise ValueError("math-verify cannot read its answer")
    solved = [0.0] * count
    answers: list[int | None] = [None] * count
    for index, right, answer in zip(candidates, shown["solved"], shown["answers"], strict=True):
        solved[index] = float(right)
        answers[index] = None if answer is None else candidates[answer]
    return Grade(tuple(solved), tuple(answers))


def _last_line(execution: Execution) -> str:
    lines = execution.stderr.strip().splitlines()
    return lines[-1] if lines else execution.status.value


class UnitTests:
    """A candidate solves a question if its program passes `gold["tests"]`; equal programs are one answer.

    Tests are cases, each of which runs the program by itself (see `run_tests`), or Python: assertions,
    unittest cases (BigCodeBench), or a function `check` that takes what `gold["entry_point"]` names
    (HumanEval). Assertions that something equals a literal become cases, whose values are compared outside of
    the program's process. All other tests in Python share a process with the program, so a program that is
    written to deceive them can do so. A program that exits before its tests are done has not passed.
    """

    def __init__(self, sandbox: Sandbox, limits: Limits = TEST_LIMITS) -> None:
        self._sandbox, self._limits = sandbox, limits

    async def grade(self, question: CandidateSet) -> Grade:
        programs = [code_of(final_text(response)) for response in question.task.candidates]
        solved = await all_or_none(self._passes(program, question) for program in programs)
        # Without empty lines and trailing white space.
        bare = (tuple(line.rstrip() for line in one.splitlines() if line.strip()) for one in programs)
        return Grade(tuple(map(float, solved)), same_answers(bare))

    async def _passes(self, program: str, question: CandidateSet) -> bool:
        """Run the tests on a program. Raises RefereeUnavailable if the sandbox failed."""
        gold = question.task.gold
        cases = (
            cases_of(gold["tests"], _ASSERTION_SECONDS)
            if isinstance(gold["tests"], str)
            else list(map(Case.model_validate, gold["tests"]))
        )
        if cases is not None:
            program = gold.get("setup", "") + program
            results = await run_tests(self._sandbox, program, cases, limits=self._limits)
            for result in results:
                if result.passed is None:
                    raise RefereeUnavailable(result.execution.detail, passing=True)
            return all(result.passed for result in results)
        tests = _complete(gold["tests"], gold.get("entry_point", ""))
        # A random word that is printed last proves that the tests ran to their end. In some placements
        # programs can write no file, and the program may have replaced `print` and `sys.stdout`.
        word = secrets.token_hex(16)
        source = f"{program}\n\n{tests}\n\n__import__('os').write(1, b{word!r})\n"
        execution = await self._sandbox.run(Program(source=source), self._limits)
        if execution.status is Status.SANDBOX_FAILED:
            raise RefereeUnavailable(execution.detail, passing=True)
        return execution.status is Status.OK and word in execution.stdout


def _complete(tests: str, entry_point: str) -> str:
    if "TestCase" in tests:
        return tests + _RUN_TEST_CASES
    if entry_point and "def check(" in tests:
        return f"{tests}\ncheck({entry_point})\n"
    return tests


class Grades:
    """A file of grades that adds what it lacks; an async context manager.

    Its sandbox is opened for the first question that needs one. Entering raises Locked and OSError.
    """

    def __init__(self, path: Path, *, allow_weak_isolation: bool = False) -> None:
        self._path, self._allow_weak_isolation = path, allow_weak_isolation
        self._checks: dict[str, Check] = {
            "instructions": Instructions(),
            "label": Recorded(),
            "recorded": Recorded(),
        }
        self._opening = asyncio.Lock()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._lines = self._stack.enter_context(JsonLines(self._path))
        self._kept = {
            row["key"]: Grade(tuple(row["solved"]), tuple(row["answers"])) for row in read_lines(self._path)
        }
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def grade(self, question: CandidateSet) -> Grade:
        """Return the grade of a question, from the file if it is there.

        Raises ValueError for a question that cannot be graded, RefereeUnavailable if the sandbox failed, and
        SandboxUnavailable if there can be none.
        """
        if question.task.gold["check"] == UNGRADED:
            return Grade(None, same_responses(question.task))
        key = _key(question)
        if key not in self._kept:
            check = await self._check(question.task.gold["check"])
            grade = await check.grade(question)
            self._lines.append(
                {"key": key, "id": question.task.id, "solved": grade.solved, "answers": grade.answers}
            )
            self._kept[key] = grade
        return self._kept[key]

    async def _check(self, name: str) -> Check:
        async with self._opening:
            if name not in self._checks:
                sandbox = await self._stack.enter_async_context(
                    open_sandbox("local", preload=PRELOAD, allow_weak_isolation=self._allow_weak_isolation)
                )
                self._checks |= {"math": Mathematics(sandbox), "tests": UnitTests(sandbox)}
        return self._checks[name]


def _key(question: CandidateSet) -> str:
    """Hash everything that a grade depends on, so that an edited row is graded again."""
    task = question.task
    parts: list[Any] = [task.id, list(map(response_data, task.candidates)), dict(task.gold)]
    if task.files:
        parts.append([folder.digest for folder in task.files])
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()
