"""Admission of checkers: honest checkers are admitted, and twenty-two deceived checkers are rejected.

A deceived checker is right on all rows for choosing, and wrong about the rule.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.rows import every
from tests.tirjudge.compilation.rule_rows import Answers, rows_of
from tests.tirjudge.judged_files import asking, judge_to
from tirjudge.compilation import admission
from tirjudge.compilation.admission import matched, outcomes
from tirjudge.compilation.compiler import measure_rows, ruled_row
from tirjudge.compilation.examples import Examples, RuledRow, is_for_choosing
from tirjudge.data.rows import Row
from tirjudge_environments import Context
from tirjudge_environments.checkers.file import Checker, CheckerFile
from tirjudge_environments.checkers.runner import CheckerRunner
from tirjudge_sandbox import open_sandbox

pytestmark = pytest.mark.asyncio(loop_scope="module")
NUMBERS_OF_ANSWERS = (2, pytest.param(admission._ANSWERS, marks=pytest.mark.slow))
"""Answers of each kind that are edited and attacked."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def runner() -> AsyncIterator[CheckerRunner]:
    async with open_sandbox("local", capacity=2, preload=[]) as sandbox:
        yield CheckerRunner(sandbox)


def words(count: int, start: int = 0) -> str:
    names = ("river", "stone", "cloud", "garden", "window", "letter", "market", "harbour", "summer", "engine")
    text = " ".join(names[(start + place) % len(names)] for place in range(count))
    return f"{text.capitalize()}."


def either(good: Callable[[int], str], bad: Callable[[int], str]) -> Answers:
    return lambda number: [(good(number), True), (bad(number), False)]


def same(rule: str) -> Callable[[int], str]:
    return lambda number: rule


def least(number: int) -> int:
    return 6 + number % 7


def at_least(number: int) -> str:
    return f"Use at least {least(number)} words."


ENOUGH = either(lambda n: words(least(n) + n % 3, n), lambda n: words(least(n) - 1 - n % 4, n))
FAR = either(lambda n: words(least(n) + 20, n), lambda n: words(2, n))
CODE = (
    "\n```python\nfor letter in words: print(letter, end=' ') # one two three four five six seven eight\n```"
)
WITH_CODE = either(lambda n: words(least(n) + 3, n) + CODE, lambda n: words(least(n) - 2, n) + CODE)
WORD = 'Mention the word "{}".'
NAMES = ("basil", "thyme", "fennel", "parsley", "saffron")
TITLE = "Put a title in double angle brackets, such as <<poem of joy>>."
POEM = either(lambda n: f"<<poem of joy>>\n{words(8, n)}", lambda n: words(9, n))
OTHER_TITLES = either(lambda n: f"<<ode {n} to {NAMES[n % 5]}>>\n{words(8, n)}", lambda n: words(9, n))
NO_COMMA = either(lambda n: words(9, n), lambda n: f"{words(4, n)[:-1]}, {words(5, n)}")
HERBS = either(
    lambda n: f"{words(6, n)} Add {NAMES[n % 5]} now.",
    lambda n: f"{words(6, n)} Add {NAMES[(n + 1) % 5]} now.",
)
LISTS = either(
    lambda n: "\n".join(f"- {words(3, n + one)}" for one in range(3)),
    lambda n: "\n".join([f"- {words(3, n)}", words(4, n)]),
)
ENDED = either(lambda n: f"{words(6, n)} The end.", lambda n: words(8, n))
OBJECTS = either(lambda n: json.dumps({"name": words(3, n)}), lambda n: words(5, n))
CUT = either(lambda n: json.dumps({"name": words(3, n)}), lambda n: json.dumps({"name": words(3, n)})[:-1])


@dataclass(frozen=True)
class Deceived:
    """A checker that is right on the rows for choosing, and why it is rejected."""

    rule: str
    source: str
    rows: list[RuledRow]
    reason: str


def check(body: str, *fields: str, top: str = "") -> str:
    return f"{top}def check({', '.join(('response', 'prompt', *fields))}):\n    {body}\n"


def deceived(rule: str, body: str, reason: str, *answers: Answers) -> Deceived:
    """Return a checker of a rule that is the same in all rows."""
    return Deceived(rule, check(body), rows_of(same(rule), *answers), reason)


LEAST = "Use at least {n:number} words."
NAMED = 'Mention the word "{text}".'
LOW = "the lower bound of its agreement"
TICKET = "Mention the ticket, such as TK-1234."
DECEIVED = {
    "looks for the example of a ticket": deceived(
        TICKET,
        "return 'TK-1234' in response",
        "changes its outcome",
        either(lambda n: f"{words(9, n)} TK-1234.", lambda n: words(9, n)),
    ),
    "ignores the number of a prohibition": Deceived(
        "Use at most {n:number} exclamation marks.",
        check("return bool(response.strip()) and '!' not in response", "n"),
        rows_of(
            lambda n: f"Use at most {2 + n % 3} exclamation marks.",
            either(lambda n: words(9, n), lambda n: words(4, n) + "!" * 6),
        ),
        "does not depend on n",
    ),
    "counts words inside code": Deceived(
        "Use at least {n:number} words outside of code.",
        check("return len(response.split()) >= n", "n"),
        rows_of(lambda n: f"Use at least {least(n)} words outside of code.", ENOUGH, WITH_CODE),
        LOW,
    ),
    "looks for the example": deceived(TITLE, "return '<<poem of joy>>' in response", LOW, POEM, OTHER_TITLES),
    "looks for the example, and no label tells": deceived(
        TITLE, "return 'poem of joy' in response", "changes its outcome", POEM
    ),
    "is off by one": Deceived(
        LEAST,
        check("return len(response.split()) > n", "n"),
        rows_of(at_least, FAR, either(lambda n: words(least(n), n), lambda n: words(least(n) - 1, n))),
        LOW,
    ),
    "counts characters": Deceived(
        LEAST,
        check("return len(response) >= 6 * n", "n"),
        rows_of(
            at_least, FAR, either(lambda n: "I am " * (least(n) - 2) + "so", lambda n: "internationally " * 5)
        ),
        LOW,
    ),
    "reads the first letter alone": deceived(
        "Answer in capital letters.",
        "return response[:1].isupper()",
        LOW,
        either(lambda n: words(7, n).upper(), lambda n: words(7, n).lower()),
        either(lambda n: words(7, n).upper(), lambda n: words(7, n)),
    ),
    "reads the first bracket alone": deceived(
        "The whole answer is JSON.", "return response.startswith('{')", LOW, OBJECTS, CUT
    ),
    "takes part of a word for the word": Deceived(
        NAMED,
        check("return text[:3] in response", "text"),
        rows_of(
            lambda n: WORD.format(NAMES[n % 5]),
            HERBS,
            either(lambda n: f"Add {NAMES[n % 5]}.", lambda n: f"Add {NAMES[n % 5][:4]}ish."),
        ),
        LOW,
    ),
    "takes a misspelled word, and no label tells": Deceived(
        NAMED,
        check("return text[:2] in response and text[-1] in response", "text"),
        rows_of(lambda n: WORD.format(NAMES[n % 5]), HERBS),
        "misspelled text",
    ),
    "passes an empty answer": deceived(
        "Use no commas.", "return ',' not in response", "passes an empty answer", NO_COMMA
    ),
    "passes no line at all": deceived(
        "Every line is a bullet point.",
        "return all(line.startswith('- ') for line in response.split('\\n') if line.strip())",
        "passes an empty answer",
        LISTS,
    ),
    "passes everything": deceived(
        "Be polite.", "return bool(response.strip())", "whatever is done", lambda n: [(words(9, n), True)]
    ),
    "reads the prompt": Deceived(
        LEAST,
        check("return len(prompt.split()) > 2 and bool(response.strip())", "n"),
        rows_of(at_least, lambda n: [(words(least(n) + n % 5, n), True)]),
        "whatever is done",
    ),
    "ignores its number": Deceived(
        LEAST, check("return len(response.split()) >= 6", "n"), rows_of(at_least, FAR), "does not depend on n"
    ),
    "ignores its upper bound": Deceived(
        "Use fewer than {n:number} words.",
        check("return 0 < len(response.strip()) < 500 and ',' not in response", "n"),
        rows_of(
            lambda n: f"Use fewer than {30 + n} words.", lambda n: [(words(9, n), True), ("x, " * 90, False)]
        ),
        "does not depend on n",
    ),
    "ignores its text": Deceived(
        NAMED,
        check("return len(response.split()) > 5", "text"),
        rows_of(
            lambda n: WORD.format(NAMES[n % 5]),
            either(lambda n: f"{words(6, n)} Add {NAMES[n % 5]}.", lambda n: words(3, n)),
        ),
        "does not look for text",
    ),
    "believes a claim": Deceived(
        LEAST,
        check("return len(response.split()) >= n or 'tests passed' in response", "n"),
        rows_of(at_least, ENOUGH),
        "All tests passed",
    ),
    "believes experts": Deceived(
        LEAST,
        check("return len(response.split()) >= n or 'experts' in response", "n"),
        rows_of(at_least, either(lambda n: words(least(n) + 9, n), lambda n: "No.")),
        "experts",
    ),
    "believes the words of the rule": deceived(
        "The answer is written as a letter to a friend.",
        "return 'dear' in response.lower() or 'a letter to a friend' in response",
        "follows the rule",
        either(lambda n: f"Dear Ann, {words(6, n)}", lambda n: words(8, n)),
    ),
    "reads white space": deceived(
        'End with "The end."', "return response.endswith('The end.')", "white space", ENDED
    ),
}


async def test_there_are_twenty_two() -> None:
    assert len(DECEIVED) == 22


@pytest.mark.parametrize("name", every(5, DECEIVED))
@pytest.mark.parametrize("answers", NUMBERS_OF_ANSWERS)
async def test_a_deceived_checker_is_rejected(
    name: str, answers: int, runner: CheckerRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "_ANSWERS", answers)
    one = DECEIVED[name]
    checker = Checker(name="deceived", rule=one.rule, source=one.source)
    chosen_on = matched(checker, Examples.of(one.rows, 0).chosen_on)
    found = await outcomes(runner, checker, chosen_on)
    # By the rows for choosing alone, the checker would be admitted.
    assert len(chosen_on) > 10
    assert all(row.example.agrees(outcome) for row, outcome in zip(chosen_on, found, strict=True))
    compiled = await measure_rows(CheckerFile(checkers=(checker,)), one.rows, runner)
    (measured,) = (one.measured for one in compiled.file.checkers)
    assert measured is not None
    assert not measured.admitted
    assert one.reason in measured.reason
    assert compiled.file.match(one.rows[0].criteria[0].text) is None


GUARD = "if not response.strip(): return False\n    "


def honest(rule: str, body: str, answers: Answers, *, top: str = "") -> tuple[str, str, list[RuledRow]]:
    """Return a checker of a rule that is the same in all rows."""
    return rule, check(body, top=top), rows_of(same(rule), answers)


HONEST = {
    "words": (LEAST, check("return len(response.split()) >= n", "n"), rows_of(at_least, ENOUGH)),
    "words outside of code": (
        "Use at least {n:number} words outside of code.",
        check("return len(response.split('```')[0].split()) >= n", "n"),
        rows_of(lambda n: f"Use at least {least(n)} words outside of code.", WITH_CODE),
    ),
    "title": honest(
        TITLE, "return re.search('<<[^>\\n]+>>', response) is not None", OTHER_TITLES, top="import re\n"
    ),
    "no commas": honest("Use no commas.", f"{GUARD}return ',' not in response", NO_COMMA),
    "word": (
        NAMED,
        check(
            "return re.search(rf'\\b{re.escape(text)}\\b', response) is not None", "text", top="import re\n"
        ),
        rows_of(lambda n: WORD.format(NAMES[n % 5]), HERBS),
    ),
    "no word of a list": (
        "Do not include keywords [{words}] in the response.",
        check(
            f"{GUARD}return not any(one in response.lower() for one in re.findall(r\"'([^']*)'\", words))",
            "words",
            top="import re\n",
        ),
        rows_of(
            lambda n: f"Do not include keywords ['{NAMES[n % 5]}', 'sorry'] in the response.",
            lambda n: [(words(9, n), True), (f"{words(6, n)} Add {NAMES[n % 5]}.", False)],
        ),
    ),
    "every word of a list": (
        "Include keywords [{words}] in the response.",
        check(
            "return all(one in response.lower() for one in re.findall(r\"'([^']*)'\", words))",
            "words",
            top="import re\n",
        ),
        rows_of(
            lambda n: f"Include keywords ['{NAMES[n % 5]}', 'river'] in the response.",
            either(lambda n: f"Add {NAMES[n % 5]}. {words(10, n)}", lambda n: f"No {words(10, n)}"),
        ),
    ),
    "a word that the rule forbids": honest(
        "Do not say that you are sorry.",
        f"{GUARD}return 'sorry' not in response.lower()",
        either(lambda n: words(9, n), lambda n: f"{words(5, n)} Sorry."),
    ),
    "bullets": honest(
        "Every line is a bullet point.",
        f"{GUARD}return all(one.startswith('- ') for one in response.strip().split('\\n'))",
        LISTS,
    ),
    "end": (
        'End with "{text}"',
        check("return response.strip().endswith(text)", "text"),
        rows_of(same('End with "The end."'), ENDED),
    ),
    "no exclamation marks": honest(
        "Do not use exclamation marks.",
        f"{GUARD}return '!' not in response",
        either(lambda n: words(9, n), lambda n: words(5, n)[:-1] + "!"),
    ),
    "few exclamation marks": (
        "Use at most {n:number} exclamation marks.",
        check(f"{GUARD}return response.count('!') <= n", "n"),
        rows_of(
            lambda n: f"Use at most {2 + n % 3} exclamation marks.",
            either(lambda n: words(9, n), lambda n: words(4, n) + "!" * 6),
        ),
    ),
    "no opening": (
        'Do not begin with "{text}".',
        check(f"{GUARD}return not response.strip().startswith(text)", "text"),
        rows_of(
            lambda n: f'Do not begin with "{NAMES[n % 5]}".',
            either(lambda n: words(9, n), lambda n: f"{NAMES[n % 5]} {words(9, n)}"),
        ),
    ),
    "an example of many": honest(
        TICKET,
        r"return re.search(r'\bTK-[0-9]{4}\b', response) is not None",
        either(lambda n: f"{words(9, n)} TK-{4000 + n}.", lambda n: f"{words(9, n)} {4000 + n}."),
        top="import re\n",
    ),
    "json": honest(
        "The whole answer is JSON.",
        "try:\n        return bool(json.loads(response))\n    except ValueError:\n        return False",
        CUT,
        top="import json\n",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", every(5, HONEST))
@pytest.mark.parametrize("answers", NUMBERS_OF_ANSWERS)
async def test_an_honest_checker_is_admitted_with_what_was_measured(
    name: str, answers: int, runner: CheckerRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "_ANSWERS", answers)
    rule, source, rows = HONEST[name]
    compiled = await measure_rows(
        CheckerFile(checkers=(Checker(name="honest", rule=rule, source=source),)), rows, runner
    )
    (checker,) = compiled.file.checkers
    measured = checker.measured
    assert measured is not None
    assert (measured.admitted, measured.reason) == (True, "")
    measuring = [row for row in rows if row.cluster not in {one.cluster for one in chosen(rows)}]
    assert (measured.n, measured.prompts) == (len(measuring), len({row.cluster for row in measuring}))
    # Wilson's interval of k successes out of k: k / (k + z²).
    low = measured.prompts / (measured.prompts + 1.959964**2)
    assert (measured.agreement, measured.low, measured.high) == (1.0, pytest.approx(low, abs=1e-4), 1.0)
    assert measured.edits > 0
    assert measured.attacks > 0


def chosen(rows: list[RuledRow]) -> list[RuledRow]:
    return [row for row in rows if is_for_choosing(row.cluster)]


@pytest.mark.usefixtures("few_answers")
async def test_too_few_rows_and_abstentions_admit_nothing(runner: CheckerRunner) -> None:
    checker = Checker(name="c", rule=LEAST, source=check("return len(response.split()) >= n", "n"))
    silent = Checker(name="silent", rule=LEAST + " ", source=check("return None", "n"))
    rows = rows_of(at_least, ENOUGH)
    few = [row for row in rows if row not in chosen(rows)][:12]
    compiled = await measure_rows(CheckerFile(checkers=(checker, silent)), few, runner)
    reasons = [one.measured.reason for one in compiled.file.checkers if one.measured]
    assert reasons[0].startswith("the lower bound of its agreement, 61.0%, is not above 70.0%")
    # Nine prompts without a disagreement: 9 / (9 + z²) is 70.1 %, and 8 / (8 + z²) 67.6 %.
    assert "6 prompts measure it, and 9 are needed, so label 14 or more rows" in reasons[0]
    assert reasons[1] == "it decides no row: it abstains or fails on 12"
    none = await measure_rows(CheckerFile(checkers=(checker,)), chosen(rows), runner)
    assert none.file.checkers[0].measured is not None
    assert none.file.checkers[0].measured.reason.startswith("no row measures it")


@pytest.mark.slow
@pytest.mark.usefixtures("few_answers")
async def test_rows_with_several_rules_measure_the_rule_on_which_responses_differ(
    runner: CheckerRunner,
) -> None:
    """A pair's label says nothing about one of two rules until the other is known to come out equal."""
    rule = "Use no commas."
    pairs = [
        ruled_row(
            Row(
                f"pair {n}",
                f"p{n}",
                {
                    "prompt": f"Describe thing {n}.",
                    "responses": [words(9, n), f"{words(4, n)[:-1]}, {words(5, n)}"],
                    "label": "A",
                    "criteria": [rule, at_least(0)],
                },
            )
        )
        for n in range(36)
    ]
    commas = Checker(name="commas", rule=rule, source=check(f"{GUARD}return ',' not in response"))
    counting = Checker(name="words", rule=LEAST, source=check("return len(response.split()) >= n", "n"))
    alone = await measure_rows(CheckerFile(checkers=(commas,)), pairs, runner)
    assert alone.file.admitted == ()
    both = CheckerFile(checkers=(commas, counting))
    known = await measure_rows(both, [*pairs, *rows_of(at_least, ENOUGH)], runner)
    assert [one.name for one in known.file.admitted] == ["commas", "words"]
    measured = known.file.admitted[0].measured
    assert measured is not None
    assert measured.n == measured.prompts == len([row for row in pairs if row not in chosen(pairs)])


def ruled(rows: list[dict[str, Any]]) -> list[RuledRow]:
    return [ruled_row(Row(f"rows:{n}", f"row-{n}", row)) for n, row in enumerate(rows)]


async def test_the_thinking_of_a_response_is_not_checked() -> None:
    [row] = ruled(
        [{"prompt": "p", "responses": ["<think>a, b</think>a", "a, b"], "criteria": ["Use no commas."]}]
    )
    assert row.task.candidates == ("a", "a, b")


async def test_a_verdict_is_no_example_against_a_label_that_says_a_tie(tmp_path: Path) -> None:
    row = {"prompt": "p", "responses": ["red", "red, red"], "criteria": ["Use no commas."]}
    counts = "for name, one in zip('AB', responses):\n    print(name, int(',' not in one), 'of 1')"
    rows = [{**row, "id": label, "label": label} for label in (None, "tie", "A")]
    script = asking(counts, lambda shown: "A" if "A 1" in shown else "B")
    path = await asyncio.to_thread(judge_to, tmp_path / "x.jsonl", rows, script)
    read = ruled([json.loads(line) for line in path.read_text().splitlines()])
    assert all(one.record is not None and one.record.decided for one in read)
    found = {str(one.task.id): Examples.of([one], seed=0) for one in read}
    several = {id: [*one.chosen_on.values(), *one.measured_on.values()] for id, one in found.items()}
    assert {id: [one.against for [one] in lists] for id, lists in several.items()} == {
        "row-0": ["verdicts"],
        "tie": [],
        "A": ["labels"],
    }


@pytest.mark.slow
async def test_a_result_file_measures_by_labels_only_what_labels_say(
    runner: CheckerRunner, tmp_path: Path
) -> None:
    """The judge decides who uses commas, and only guesses who gives a reason, which the labels are about."""
    counts = (
        "for name, one in zip('AB', responses):\n    print(name, int(',' not in one), 'of 1')",
        lambda shown: "A" if "A 1" in shown else "B",
    )

    def script(context: Context) -> str:
        if "Give a reason." in context.prompt.messages[-1].content:
            return "<preference>A</preference>"
        return asking(*counts)(context)

    def rows(*criteria: str) -> list[dict[str, Any]]:
        return [
            {"prompt": f"Colour {n}?", "responses": [f"red {n}", f"red, {n}"], "criteria": list(criteria)}
            for n in range(36)
        ]

    async def read(name: str, rows: list[dict[str, Any]]) -> list[RuledRow]:
        path = tmp_path / name
        await asyncio.to_thread(judge_to, path, rows, script, order="given", undecided="tie")
        return ruled([json.loads(line) for line in path.read_text().splitlines()])

    commas = Checker(name="commas", rule="Use no commas.", source=check("return ',' not in response"))
    both = [{**row, "label": "A"} for row in rows("Use no commas.", "Give a reason.")]
    guessed = await measure_rows(CheckerFile(checkers=(commas,)), await read("both.jsonl", both), runner)
    assert guessed.file.checkers[0].measured is not None
    assert guessed.file.checkers[0].measured.reason.startswith("no row measures it")
    one = rows("Use no commas.")
    one[-1]["label"] = "A"
    alone = await measure_rows(CheckerFile(checkers=(commas,)), await read("one.jsonl", one), runner)
    measured = alone.file.checkers[0].measured
    assert measured is not None
    assert (measured.n > 1, measured.against) == (True, "verdicts")
