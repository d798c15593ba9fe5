"""The orders in which a judge sees a task's responses, and the letters of the responses."""

from __future__ import annotations

from string import ascii_uppercase
from typing import Literal

from tirjudge_environments.types import JudgeTask, View, derive_seed

Order = Literal["random", "given", "both"]
"""One permutation drawn from (seed, task id); as given; or both as given and reversed."""


def ordered_views(task: JudgeTask, order: Order, seed: int) -> tuple[View, ...]:
    """Return one view of all responses, or two for `both`; a view is named by its order: `AB`, `BA`."""
    given = tuple(range(len(task.candidates)))
    if order == "given":
        return (_view(given),)
    if order == "both":
        return (_view(given), _view(given[::-1]))
    # Sorting by a hash gives a permutation that depends only on the seed and the task, not on other draws.
    return (_view(tuple(sorted(given, key=lambda index: derive_seed(seed, task.id, index)))),)


def single_views(task: JudgeTask) -> tuple[View, ...]:
    """Return one view per response; raises ValueError for a task without responses."""
    if not task.candidates:
        raise ValueError(f"task {task.id!r} has no response")
    return tuple(View(str(index), (index,)) for index in range(len(task.candidates)))


def require_pair(task: JudgeTask) -> None:
    """Raise ValueError unless the task has exactly two responses."""
    if len(task.candidates) != 2:
        raise ValueError(f"a pair has two responses; task {task.id!r} has {len(task.candidates)}")


def _view(order: tuple[int, ...]) -> View:
    names = letters(len(order))
    return View(("" if len(order) <= 26 else "-").join(names[index] for index in order), order)


def letter(position: int) -> str:
    """Return the letter of a shown position: 0 is A, 25 is Z, 26 is AA."""
    name = ""
    number = position + 1
    while number:
        number, digit = divmod(number - 1, len(ascii_uppercase))
        name = ascii_uppercase[digit] + name
    return name


def letters(count: int) -> tuple[str, ...]:
    """Return the first `count` letters: A to Z, then AA, AB, and so on."""
    return tuple(letter(position) for position in range(count))
