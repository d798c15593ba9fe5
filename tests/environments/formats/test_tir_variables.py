"""The option `name_variables`: the prompt names the variables of programs, and a note follows a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tirjudge_environments import Criterion, JudgeTask, RunCode
from tirjudge_environments.boundary import shown_prompt
from tirjudge_environments.files.folder import Folder
from tirjudge_environments.formats.tir_comparison import TirListwise, TirPairwise
from tirjudge_environments.formats.tir_pointwise import TirPointwise
from tirjudge_environments.types import Refused
from tirjudge_sandbox import Execution, Status

MakeTask = Callable[..., JudgeTask]
PAIR = {"prompt": "Say hello.", "response_a": "hello", "response_b": "bye", "responses": ["hello", "bye"]}
EITHER = "<preference>A</preference> or <preference>B</preference>"
SINGLE = {"prompt": "Say hello.", "response": "hello"}


def sentence(format: Any, task: JudgeTask) -> str:
    """Return the line that the option adds to a prompt, up to the names' end."""
    view = format.views(task)[0]
    plain, named = (
        shown_prompt(type(format)(**{**dict(format), "name_variables": one}), task, view).messages[-1].content
        for one in (False, True)
    )
    added = [line for line in named.splitlines() if line not in plain.splitlines()]
    assert "\n".join(line for line in named.splitlines() if line not in added) == plain
    assert len(added) < 2
    return added[0].partition(". ")[0] if added else ""


def test_a_prompt_names_exactly_the_variables_of_the_programs(make_task: MakeTask) -> None:
    told = sentence(TirPairwise(order="given"), make_task())
    assert told.endswith(": `prompt`, `response_a`, `response_b`, `responses`")
    told = sentence(TirListwise(), make_task("a", "b", "c", reference="the answer"))
    assert told.endswith(": `prompt`, `reference`, `response_a`, `response_b`, `response_c`, `responses`")
    assert sentence(TirPointwise(), make_task("a")).endswith(": `prompt`, `response`")


def test_folders_are_named_by_the_sentence_about_files_alone(make_task: MakeTask) -> None:
    told = sentence(TirPairwise(), make_task(files=(Folder({"a": b"1"}), Folder({"b": b"2"}))))
    assert told.endswith(": `prompt`, `response_a`, `response_b`, `responses`")


@pytest.mark.parametrize("options", [{"exact": True}, {"bindings": False}, {"tools": False}], ids=str)
def test_nothing_is_named_where_nothing_is_defined(make_task: MakeTask, options: dict[str, Any]) -> None:
    assert sentence(TirPairwise(**options), make_task()) == ""


def note(source: str, bindings: dict[str, Any], status: Status = Status.OK, **options: Any) -> str:
    """Return the names that the note behind an output has; empty without a note."""
    outcome = Execution(status=status, exit_code=0, stdout="A 1 of 1\n", stderr="ValueError: 1\n")
    shown = TirPairwise(**{"name_variables": True, **options}).show(RunCode(source, bindings), outcome)
    assert shown.startswith("```output\n")
    assert shown.endswith("\n```\n")
    found = [line for line in shown.splitlines() if line.startswith("Note: ")]
    return ", ".join(one.strip("`") for one in found[0].split(" had ")[0][6:].split(", ")) if found else ""


REPLACED = {
    "response_a = '''hello'''\nprint(len(response_a))": "response_a",
    "response_a: str = 'x'": "response_a",
    "response_a, response_b = 'hello', 'bye'": "response_a, response_b",
    "response_a = response_b = 'hello'": "response_a, response_b",
    "responses = ['hello', 'bye']\nprint(responses)": "responses",
    "def main():\n    response_b = 'bye'\n    print(len(response_b))\nmain()": "response_b",
    "if (prompt := 'Say hi.'):\n    print(prompt)": "prompt",
    "response_a = '\\d'": "response_a",
}
USED = [
    "print(len(response_a), len(response_b))",
    "response_a = response_a.strip()",
    "a = response_a.split()\nb = [w for w in a if w]\nresponse_a = b",
    "response_a, response_b = response_b, response_a",
    "response_a, size = response_a.lower(), 3",
    "responses = [r.lower() for r in responses]",
    "responses = []\nresponses.append(response_a)",
    "for response in responses:\n    print(response)",
    "def clean():\n    return response_a.strip()\nresponse_a = clean()",
    "def check(text):\n    response_a = text.strip()\n    return response_a\nprint(check(response_a))",
    "texts = {'a': response_a}\nresponse_a = texts['a']",
    "response_a += ' and more'",
    "counts = dict()\ncounts[response_a] = 1",
    "print(f'{response_a == 1}')",
    "this is no program",
    "x = " + "(" * 5000,
    "x = " + "-" * 50_000 + "1",
    "response_a = 'x'  # " + "long" * 50_000,
]


@pytest.mark.parametrize("source", REPLACED, ids=repr)
def test_a_program_that_gives_a_variable_another_value_is_told_so(source: str) -> None:
    assert note(source, PAIR) == REPLACED[source]
    assert note(source, PAIR, Status.ERROR) == REPLACED[source]
    assert note(source, PAIR, name_variables=False) == ""
    assert note(source, {}) == ""


@pytest.mark.parametrize("source", USED, ids=lambda source: repr(source[:40]))
def test_a_value_that_comes_from_the_variables_is_no_other_value(source: str) -> None:
    assert note(source, PAIR) == ""


def test_a_single_response_and_a_refused_program(make_task: MakeTask) -> None:
    assert note("response = 'hi'", SINGLE) == "response"
    assert note("def check(response):\n    return len(response)\nprint(check(response))", SINGLE) == ""
    refused = TirPairwise(name_variables=True).show(RunCode("response_a = 'x'", PAIR), Refused("No."))
    assert refused == "```output\nNo.\n```\n"


@pytest.mark.parametrize(
    ("format", "count", "criteria", "allowed"),
    [
        (TirPairwise, 2, 0, EITHER),
        (TirPairwise, 2, 3, f"{EITHER}, 3 times: for each criterion in order"),
        (TirPointwise, 1, 0, "<score>a number from 1 to 10</score>"),
    ],
)
def test_the_answers_that_a_view_may_get(
    make_task: MakeTask, format: Any, count: int, criteria: int, allowed: str
) -> None:
    task = make_task(*"abc"[:count], criteria=tuple(Criterion(text=str(n)) for n in range(criteria)))
    judge = format(per_criterion=True)
    assert judge.allowed_answers(task, judge.views(task)[0]) == allowed
    three = make_task("a", "b", "c")
    assert (
        TirListwise().allowed_answers(three, TirListwise().views(three)[0])
        == f"{EITHER} or <preference>C</preference>"
    )
