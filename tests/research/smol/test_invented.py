"""Checks with words that the prompt does not hold: which are left out, and what the programs then decide."""

from __future__ import annotations

import pytest

from research.smol.invented import choices, held_checks

PROMPT = "Use the words 'Sea' and 'tide pool'. Write at most 3 lines."
END = '\nfor name, r in zip("AB", responses):\n    print(name, sum(check(r)), "of", len(check(r)))'


def program(*checks: str) -> str:
    return f"import re\ndef check(r):\n    return [{', '.join(checks)}]{END}"


@pytest.mark.parametrize(
    ("checks", "left"),
    [
        (['"sea" in r.lower()', '"boat" in r'], ["'sea' in r.lower()"]),
        (['all(w in r for w in ["sea", "tide  pool"])', "r.isupper()"], None),
        (["len(r) > 3", "len(r) > 3"], ["len(r) > 3"]),
        # A pattern is no word, and the last check is never left out.
        ([r're.findall(r"Chapter \d+", r) != []', "len(r) > 3"], None),
        (['"boat" in r'], None),
    ],
)
def test_checks_with_invented_words_and_repeated_ones_are_left_out(
    checks: list[str], left: list[str] | None
) -> None:
    source = program(*checks)
    found = held_checks(source, PROMPT)
    if left is None:
        assert found == source
    else:
        assert f"return [{', '.join(left)}]" in found
    assert held_checks("def check(r:", PROMPT) == "def check(r:"


async def test_a_program_decides_after_its_invented_check_is_left_out() -> None:
    row = {"id": "1", "prompt": PROMPT, "responses": ["a boat", "the sea"], "label": 1}
    source = program('"sea" in r', '"boat" in r')
    text = f"```python\n{source}\n```\n"
    line = {"views": [{"order": [1, 0], "segments": [{"kind": "program", "text": text}]}]}
    assert await choices([(row, line), (row, None)]) == [(True, None, True), (False, None, None)]
