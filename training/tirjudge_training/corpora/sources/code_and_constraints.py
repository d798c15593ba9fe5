"""Sources of prompts whose sampled answers are sorted by unit tests or by IFEval's checks."""

from __future__ import annotations

import ast
import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator

from tirjudge_environments import Message
from tirjudge_environments.instruction_checks import open_verifier
from tirjudge_sandbox import Limits, Program, Sandbox, Status
from tirjudge_training.corpora.base import ChatTurn, Sampler, Skipped, Source, SourceCard, SourceItem

# CodeRM: programs sorted by the unit tests that come with them (TIR Table 6, "CodeRM").


TESTS = 3
"""The number of unit tests, each a whole test case class, that a program must pass (ours)."""
PASSED = "every test passed"
"""Printed at the end, so that a program that exits early with status 0 does not count as right."""
# The solution's `__name__` is not `__main__`, so that the main block does not run. Every test gets a copy of
# the solution's names, so that no test sees another test's names.
RUNNER = f"""
import io, unittest
space = {{"__name__": "solution"}}
exec(solution, space)
run = 0
for test in tests:
    module = dict(space)
    exec(test, module)
    classes = [one for one in module.values() if isinstance(one, type)]
    cases = [one for one in classes if issubclass(one, unittest.TestCase)]
    suite = unittest.TestSuite(map(unittest.defaultTestLoader.loadTestsFromTestCase, cases))
    result = unittest.TextTestRunner(stream=io.StringIO()).run(suite)
    assert result.wasSuccessful()
    run += result.testsRun
assert run
print({PASSED!r})
"""


def _parsed(value: Any) -> Any:
    """Parse a list that the column may store as JSON or as a Python literal."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        pass
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        raise ValueError("neither a list nor a string with one") from None


class Code(BaseModel):
    """A program or a unit test."""

    code: str


class CodeRmRow(BaseModel):
    """A row of CodeRM-UnitTest: a problem, its solutions and its unit tests."""

    question: str
    code_ground_truth: str
    code_generate: Annotated[list[Code], BeforeValidator(_parsed)]
    unit_tests: Annotated[list[Code], BeforeValidator(_parsed)]


class CodeRm(Source[CodeRmRow]):
    """Takes the reference and a small model's solutions; the sandbox decides, not the dataset's verdicts."""

    card: ClassVar[SourceCard] = SourceCard(
        dataset="KAKA22/CodeRM-UnitTest",
        domain="code",
        about=f"solutions that pass {TESTS} unit tests and solutions that fail one, run in the sandbox",
        licence="Apache-2.0",
        needs=frozenset({"sandbox"}),
    )

    def question(self, row: CodeRmRow) -> SourceItem | Skipped:
        programs = (row.code_ground_truth, *(one.code for one in row.code_generate))
        return SourceItem(
            prompt=(Message("user", row.question),),
            known={"programs": programs, "tests": tuple(one.code for one in row.unit_tests[:TESTS])},
        )

    async def fill(self, question: SourceItem, sampler: Sampler, sandbox: Sandbox) -> SourceItem | Skipped:
        programs, tests = question.known["programs"], question.known["tests"]
        passed = await asyncio.gather(*(_passes(program, tests, sandbox) for program in programs))
        if None in passed:
            return Skipped("the sandbox failed")
        # The tests decide who is right, so tests that fail the reference decide nothing.
        if not passed[0]:
            return Skipped("the reference solution fails its own tests")
        sorted_out = list(zip(programs, passed, strict=True))
        good = [program for program, right in sorted_out if right]
        bad = [program for program, right in sorted_out if not right and program.strip()]
        return question.answered(good, bad) if bad else Skipped("no solution that fails a test")


async def _passes(program: str, tests: Sequence[str], sandbox: Sandbox) -> bool | None:
    """Run the tests on a program; None if the sandbox failed, which says nothing about the program."""
    done = await sandbox.run(
        Program(source=RUNNER, bindings={"solution": program, "tests": list(tests)}), Limits()
    )
    if done.status is Status.SANDBOX_FAILED:
        return None
    return done.status is Status.OK and done.stdout.rstrip().endswith(PASSED)


# Tulu 3: prompts with a constraint, and sampled answers (TIR Table 6, "Tulu-3 Synthetic Pairs").


UNDECIDED = "no answer that follows the constraint, or none that does not"
Arguments = Mapping[str, Any]
Verifiers = list[tuple[str, dict[str, Any]]]
"""IFEval instruction ids with their arguments; an answer follows the constraint if all instructions hold."""


def _counted(instruction: str, number: str, relation: str, **more: Any) -> Callable[[Arguments], Verifiers]:
    """Translate "at least", "at most" or "around" N into IFEval's relations; without one, exactly N."""

    def verifiers(given: Arguments) -> Verifiers:
        least, most = _bounds(given["N"], given.get("quantifier"))
        rest = {key: given[value] for key, value in more.items()}
        bounds = (("at least", least), ("less than", None if most is None else most + 1))
        return [(instruction, {number: n, relation: how, **rest}) for how, n in bounds if n is not None]

    return verifiers


def _bounds(n: int, quantifier: str | None) -> tuple[int | None, int | None]:
    """Return (least, most); Tulu's "around" allows a deviation of a tenth, and of at least one."""
    if quantifier == "at least":
        return n, None
    if quantifier == "at most":
        return None, n
    slack = max(round(n / 10), 1) if quantifier == "around" else 0
    return n - slack, n + slack


def _plain(instruction: str, **arguments: str) -> Callable[[Arguments], Verifiers]:
    return lambda given: [(instruction, {key: given[name] for key, name in arguments.items()})]


FUNCTIONS: dict[str, Callable[[Arguments], Verifiers]] = {
    "verify_keywords": _plain("keywords:existence", keywords="keyword_list"),
    "verify_keyword_frequency": _counted("keywords:frequency", "frequency", "relation", keyword="word"),
    "validate_forbidden_words": _plain("keywords:forbidden_words", forbidden_words="forbidden_words"),
    "verify_letter_frequency": _counted(
        "keywords:letter_frequency", "let_frequency", "let_relation", letter="letter"
    ),
    "validate_response_language": _plain("language:response_language", language="language"),
    "validate_word_constraint": _counted("length_constraints:number_words", "num_words", "relation"),
    "verify_sentence_constraint": _counted(
        "length_constraints:number_sentences", "num_sentences", "relation"
    ),
    "validate_paragraphs": _plain(
        "length_constraints:nth_paragraph_first_word",
        num_paragraphs="N",
        nth_paragraph="i",
        first_word="first_word",
    ),
    "verify_postscript": _plain("detectable_content:postscript", postscript_marker="postscript_marker"),
    "validate_placeholders": _plain("detectable_content:number_placeholders", num_placeholders="N"),
    "verify_bullet_points": _plain("detectable_format:number_bullet_lists", num_bullets="N"),
    "validate_title": _plain("detectable_format:title"),
    "validate_highlighted_sections": _plain(
        "detectable_format:number_highlighted_sections", num_highlights="N"
    ),
    "validate_sections": _plain(
        "detectable_format:multiple_sections", num_sections="N", section_spliter="section_splitter"
    ),
    "validate_json_format": _plain("detectable_format:json_format"),
    "validate_repeat_prompt": _plain("combination:repeat_prompt", prompt_to_repeat="original_prompt"),
    "validate_two_responses": _plain("combination:two_responses"),
    "validate_uppercase": _plain("change_case:english_capital"),
    "validate_lowercase": _plain("change_case:english_lowercase"),
    "validate_frequency_capital_words": _counted(
        "change_case:capital_word_frequency", "capital_frequency", "capital_relation"
    ),
    "validate_end": _plain("startend:end_checker", end_phrase="end_phrase"),
    "validate_quotation": _plain("startend:quotation"),
    "validate_no_commas": _plain("punctuation:no_comma"),
}
"""Tulu's functions as IFEval instructions. Two have no counterpart: `validate_choice` takes any options, and
`verify_paragraph_count` uses the divider `* * *`, where IFEval uses `***`."""


class TuluRow(BaseModel):
    """A row of RLVR-IFeval: a prompt and the function that checks its constraint."""

    messages: list[ChatTurn]
    ground_truth: Annotated[
        dict[str, Any], BeforeValidator(lambda value: json.loads(value) if isinstance(value, str) else value)
    ]


class Tulu3(Source[TuluRow]):
    """Takes answers as good if IFEval's verifiers accept them."""

    card: ClassVar[SourceCard] = SourceCard(
        dataset="allenai/RLVR-IFeval",
        domain="if",
        about="sampled answers to prompts with a constraint, sorted by its verifier",
        licence="ODC-BY",
        needs=frozenset({"generators"}),
    )

    def question(self, row: TuluRow) -> SourceItem | Skipped:
        function = FUNCTIONS.get(str(row.ground_truth.get("func_name")))
        if function is None:
            return Skipped("a constraint without a verifier")
        try:
            verifiers = function({key: value for key, value in row.ground_truth.items() if value is not None})
        except KeyError:
            return Skipped("a constraint without its arguments")
        prompt = tuple(turn.message for turn in row.messages)
        return SourceItem(prompt=prompt, known={"verifiers": verifiers})

    async def fill(self, question: SourceItem, sampler: Sampler, sandbox: Sandbox) -> SourceItem | Skipped:
        try:
            verifiers = [open_verifier(name, **given) for name, given in question.known["verifiers"]]
        except ValueError:
            return Skipped("a constraint whose arguments its verifier does not accept")
        answers = [answer.text for answer in await sampler.answers(question.key, question.prompt)]
        good = [text for text in answers if all(one.holds(text) for one in verifiers)]
        # An empty answer breaks most constraints, but teaches a judge nothing.
        bad = [text for text in answers if text.strip() and text not in good]
        return question.answered(good, bad) if good and bad else Skipped(UNDECIDED)
