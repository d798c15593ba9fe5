"""Parsing of a model's text: programs, forged outputs and tags."""

from __future__ import annotations

import pytest

from tirjudge_environments.turn_reader import Turn, code_of

PROGRAM = "```python\nprint(1)\n```\n"


@pytest.mark.parametrize(
    ("text", "source"),
    [
        (PROGRAM, "print(1)\n"),
        ("Let me check.\n\n" + PROGRAM + "```python\nprint(2)\n```\n", "print(1)\n"),
        ("```python\nprint(1)\n```", "print(1)\n"),
        ("```python\r\nprint(1)\r\n```\r\n", "print(1)\r\n"),
        ("```python\n```\n", ""),
        ("```python  \nprint(1)\n```  \n", "print(1)\n"),
        ("1. Count:\n   ```python\n   if True:\n       print(1)\n   ```\n", "if True:\n    print(1)\n"),
        ("````python\ns = '''\n```\n'''\n````\n", "s = '''\n```\n'''\n"),
        ("```python\nprint(1)\n```output\n", "print(1)\n"),
        ("```json\n{}\n```\n" + PROGRAM, "print(1)\n"),
        ("```output\n1\n```\n" + PROGRAM, "print(1)\n"),
    ],
)
def test_the_first_closed_program_is_found(text: str, source: str) -> None:
    turn = Turn(text)
    assert turn.program is not None
    assert turn.source == source


@pytest.mark.parametrize(
    "text",
    [
        "```python\nprint(1)\n",
        "```\nprint(1)\n```\n",
        "```py\nprint(1)\n```\n",
        "```Python\nprint(1)\n```\n",
        "```json\n{}\n```\n",
        "inline ```python print(1)``` code",
        "Here: ```python\nprint(1)\n```\n",
        "````\n```python\nprint(1)\n```\n````\n",
        "``python\nprint(1)\n``\n",
    ],
)
def test_nothing_else_is_a_program(text: str) -> None:
    assert Turn(text).program is None


@pytest.mark.parametrize(
    ("overhang", "awaited"),
    [
        ("", False),
        ("```output\n", True),
        ("```output", True),
        ("\n\n```output\n\n", True),
        ("```output\n1\n```\n", False),
        ("```output\n1", False),
        ("So: ```output\n", False),
        ("It prints\n```output\n", False),
    ],
)
def test_an_empty_output_after_the_program_waits_for_the_sandbox(overhang: str, awaited: bool) -> None:
    turn = Turn(PROGRAM + overhang)
    assert (turn.awaited is not None) == awaited
    assert turn.request_end == (len(turn.text) if awaited else len(PROGRAM))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("```output\n1\n```\n", 1),
        ("```output", 1),
        (PROGRAM + "```output\n1\n```\n", 1),
        (PROGRAM + "```output\n1", 1),
        (PROGRAM + "```output\n", 0),
        (PROGRAM, 0),
        ("```json\n```output\n```\n", 0),
    ],
)
def test_an_output_written_by_the_model_is_forged(text: str, count: int) -> None:
    assert len(Turn(text).forged) == count


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<score>7</score>", "7"),
        ("<score> 7\n</score> and more", "7"),
        ("<score>7</score> no, <score>8</score>", "8"),
        ("```json\n<score>1</score>\n```\n<score>2</score>", "2"),
        ("<score>2</score>\n```\n<score>1</score>\n```", "1"),
        ("<score>2</score>\n```\n<score>1</score>", "1"),
        ("<score>2</score>\n```python\n<score>1</score>\n```", "2"),
        ("<score>2</score>\n```python\n<score>1</score>", "1"),
        ("<score>2", None),
        ("2</score>", None),
        ("<score>1</score><score>2", None),
        ("<score>1</score></score>", None),
        ("<score>1<score>2</score>", "2"),
        ("<Score>1</Score>", None),
        ("```\n<score>1</score>\n```", "1"),
        ("", None),
    ],
)
def test_the_answer_is_the_last_element_outside_programs(text: str, answer: str | None) -> None:
    assert Turn(text).answer("score") == answer


def test_the_code_of_a_response_has_no_indentation_of_its_fence() -> None:
    response = "1. A solution:\n   ```python\n   def one():\n       return 1\n   ```\n"
    assert code_of(response) == "def one():\n    return 1\n"
