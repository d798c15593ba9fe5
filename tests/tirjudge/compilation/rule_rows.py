"""Labelled rows about one rule each, for tests of what admits a checker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tirjudge.compilation.compiler import ruled_row
from tirjudge.compilation.examples import RuledRow, is_for_choosing
from tirjudge.data.rows import Row
from tirjudge.statistics.clusters import prompt_cluster

Answers = Callable[[int], Sequence[tuple[str, bool]]]
"""Returns, for the number of a prompt, its answers, and for each whether it follows the rule."""
PROMPTS = 40


def single(number: int, prompt: str, response: str, label: bool, *criteria: object) -> RuledRow:
    fields = {"prompt": prompt, "response": response, "label": label, "criteria": list(criteria)}
    return ruled_row(Row(f"row {number}", f"r{number}", fields))


def rows_of(rule: Callable[[int], str], plain: Answers, tricky: Answers | None = None) -> list[RuledRow]:
    """Return a row for each answer: plain ones for choosing, and tricky ones, if any, for measuring."""
    return list(_rows(rule, plain, tricky or plain))


def _rows(rule: Callable[[int], str], plain: Answers, tricky: Answers) -> Iterator[RuledRow]:
    count = 0
    for number in range(PROMPTS):
        prompt = f"Write about subject {number}."
        chosen = is_for_choosing(prompt_cluster([{"role": "user", "content": prompt}]))
        for response, follows in (plain if chosen else tricky)(number):
            count += 1
            yield single(count, prompt, response, follows, rule(number))
