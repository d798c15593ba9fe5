"""Labels of a row: which response people prefer, and how people rate a single response."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tirjudge_environments.orders import letter, letters
from tirjudge_environments.tasks.cells import RowError, is_empty, is_nan, parsed, text_of
from tirjudge_environments.tasks.columns import similar_name

_TIE = re.compile(r"tie|[A-Z]+(=[A-Z]+)+", re.IGNORECASE)
_RANKING = re.compile(r"[A-Z]+(>{1,2}[A-Z]+)+|[A-Z]+(<{1,2}[A-Z]+)+", re.IGNORECASE)
_PAIR = re.compile(r"[A-Z]+(>{1,2}|<{1,2})[A-Z]+", re.IGNORECASE)
_LETTERED = re.compile(
    r"(?:answer|assistant|candidate|choice|completion|model|option|output|response|system|text)([a-z])"
)
"""A response by its letter, as `similar_name` leaves it: `model_a`, `Response B`."""
_NUMBER = re.compile(
    r"([+-]?[0-9]{1,9}(?:[.,][0-9]{1,9})?)"
    r"(?:\s*(?:(?:/|of|out of)(?!\s*[0-9]+\s*/)|[-–—:](?!\s*[0-9])|\().*)?",
    re.DOTALL,
)
"""A rating, with what may follow: `4`, `4,5`, `4/5`, `4 - good`; no range (`3-4`) and no date."""
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2},[0-9]{3}")
"""A number that is a thousand times larger in one country than in another."""
_LARGEST_SCORE = 1e9
_UNLABELLED = frozenset({"", "nan", "na", "n/a", "#n/a", "null", "<na>", "\\n"})
"""Texts that tables write for a missing value, in lower case."""
_TIES = frozenset(
    (
        *("tie", "tied", "draw", "equal", "same", "thesame", "both", "neither", "bothgood", "bothbad"),
        *("tiebothbad", "tiebothgood", "equallygood", "equallybad", "nopreference", "nodifference"),
        "aboutthesame",
    )
)
"""Names of a tie, as `similar_name` leaves them."""
_PLACES = {"left": 0, "right": 1, "first": 0, "second": 1}
"""Names of the responses of a pair."""
_PASSED = frozenset(
    ("pass", "passed", "yes", "y", "true", "t", "correct", "right", "good", "ok", "accept", "accepted", "👍")
)
_FAILED = frozenset(
    ("fail", "failed", "no", "n", "false", "f", "incorrect", "wrong", "bad", "reject", "rejected", "👎")
)
_WRAPPED = ("value", "selected", "choices", "rating", "label")
"""Fields in which annotation tools, such as Argilla and Label Studio, hold an answer."""


def is_unlabelled(value: Any) -> bool:
    """Return True for a value that tables write where one is missing, such as NaN and `N/A`."""
    return value is None or str(value).strip().lower() in _UNLABELLED


def is_tie(text: str) -> bool:
    """Return True for a name of a tie, such as `tie (bothbad)`."""
    return similar_name(text) in _TIES


@dataclass(frozen=True, slots=True)
class Label:
    """People's judgement of a row."""

    best: int | None = None
    """Index of the best response; None for a tie, a single response, and without a label."""
    strength: int | None = None
    """Strength of the preference of a pair: 2 for `A>>B`, 1 for `A>B`; 0 for a tie; None if not said."""
    rating: bool | float | None = None
    """People's judgement of a single response: True or False for pass or fail, a number for a rating."""
    scores: tuple[float, ...] = ()
    """People's rating of each of several responses."""


def read_label(value: Any, labels: Mapping[str, str] | None, names: Sequence[Iterable[str]]) -> Label:
    """Return the label of a row; raises RowError, whose message begins with "label".

    `labels` translates values first, see `read_task`. `names` has for each response the names, of columns and
    of sources, that a label may have in place of its letter.
    """
    count, value = len(names), _unwrapped(value)
    if isinstance(value, list):
        flags = [_flag(one) for one in value]
        if None not in flags and count > 1 and len(value) in (count, count + 1):
            return _one_hot([bool(flag) for flag in flags], count)
        if len(value) == count > 1 and all(map(_is_score, value)):
            scores = tuple(map(float, value))
            return Label(best=highest(scores), scores=scores)
        if value and all(one == value[0] for one in value):
            return read_label(value[0], labels, names)
        raise RowError(f"label is a list of {len(value)} values: name one, as in --column label=label.0")
    if value is None or is_nan(value):
        return Label()
    text = translated(value, labels, tie=count > 1)
    if text.lower() in _UNLABELLED:
        return Label()
    if count == 1:
        return Label(rating=_rating(text))
    return _preferred(text, names)


def winner_columns(row: Mapping[str, Any], count: int) -> list[Any] | None:
    """Return the values of columns that say by 1 and 0 who won, the tie last; None without such columns."""
    columns = [name for name in row if similar_name(name).startswith("winner")]
    if len(columns) not in (count, count + 1) or any(_flag(row[name]) is None for name in columns):
        return None
    ties = [name for name in columns if re.search("tie|draw|both|neither", name.lower())]
    responses = [name for name in columns if name not in ties]
    return [row[name] for name in (*responses, *ties)] if len(responses) == count else None


def _unwrapped(value: Any) -> Any:
    """Return an answer without the lists and objects in which annotation tools hold it."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        found = parsed(value)
        value = found if isinstance(found, list) else value
    for _ in range(4):
        if isinstance(value, Mapping) and len(found := [key for key in _WRAPPED if key in value]) == 1:
            value = value[found[0]]
        elif isinstance(value, list) and len(value) == 1:
            value = value[0]
    return None if value == [] else value


def _flag(value: Any) -> bool | None:
    """Return the truth value that a column says by 1 and 0, or in words; None for any other value."""
    text = "" if value is None else str(value).strip().lower()
    return {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}.get(text)


def _one_hot(flags: Sequence[bool], count: int) -> Label:
    won = [index for index, flag in enumerate(flags) if flag]
    if not won:
        return Label()
    if won == [count] or won == list(range(count)):
        return Label(strength=0)
    if len(won) > 1:
        raise RowError("label has several winners")
    return Label(best=won[0])


def translated(value: Any, labels: Mapping[str, str] | None, *, tie: bool = True) -> str:
    """Return the meaning of a value under `labels`; empty for a value that `labels` leaves out.

    Without `labels`, return the value. A value outside `labels` is returned if missing, if a tie (with
    `tie`), or if `labels` only leaves values out. Raises RowError for any other value.
    """
    text = text_of(value, "label").strip()
    if labels is None:
        return text
    # Tables with missing values hold whole numbers as floats: `1.0`.
    whole = text.removesuffix(".0") if re.fullmatch(r"-?[0-9]{1,9}\.0", text) else text
    for key in (text, whole):
        if key in labels:
            return labels[key]
    alike = {meaning for key, meaning in labels.items() if key.strip().casefold() == text.casefold()}
    if len(alike) == 1:
        return alike.pop()
    if not any(labels.values()) or text.lower() in _UNLABELLED or (tie and similar_name(text) in _TIES):
        return text
    raise RowError(f"label {text!r} is none of {', '.join(labels)}")


def _preferred(text: str, names: Sequence[Iterable[str]]) -> Label:
    """Return the preference that a text names, among several responses."""
    count, wanted = len(names), similar_name(text)
    for alike in (str.strip, similar_name):
        named = [index for index, own in enumerate(names) if alike(text) in {alike(name) for name in own}]
        if len(named) == 1 and wanted:
            return Label(best=named[0])
    if wanted in _TIES:
        return Label(strength=0)
    if _TIE.fullmatch(text) and _name_different(text.upper().split("="), count):
        return Label(strength=0)
    best = _best(text, count)
    if best is None and (lettered := _LETTERED.fullmatch(wanted)):
        best = _best(lettered[1], count)
    if best is None and count == 2:
        best = _PLACES.get(wanted)
    if best is None:
        last = letter(count - 1)
        raise RowError(
            f"label {text!r} is no index from 0 to {count - 1}, no letter from A to {last}, no A>B"
        )
    return Label(best=best, strength=max(text.count(">"), text.count("<")) if _PAIR.fullmatch(text) else None)


def _rating(text: str) -> bool | float:
    """Return the rating of a single response that a text gives; raises RowError."""
    word = similar_name(text) or text
    if word in _PASSED or word in _FAILED:
        return word in _PASSED
    if number := _NUMBER.fullmatch(text):
        if _THOUSANDS.fullmatch(number[1]):
            raise RowError(f"label {text!r} has a comma before three digits: write the number without it")
        return float(number[1].replace(",", "."))
    raise RowError(
        f"label {text!r} of a single response is neither a number nor pass or fail (yes or no, true or false)"
    )


def checklist_of(value: Any) -> tuple[str, ...] | None:
    """Return people's reasons; None without any."""
    if is_empty(value):
        return None
    points = parsed(value)
    if not isinstance(points, list):
        raise RowError("checklist must be a list of texts")
    return tuple(text_of(point, "a point of the checklist") for point in points)


def gold_scores_of(value: Any, count: int) -> tuple[float, ...]:
    """Return the gold scores; empty if there are none."""
    if is_empty(value):
        return ()
    scores = parsed(value)
    if not isinstance(scores, list) or len(scores) != count or not all(map(_is_score, scores)):
        raise RowError(f"gold_scores must be a list of {count} numbers, one for each response")
    return tuple(float(score) for score in scores)


def _is_score(value: Any) -> bool:
    """Return True for a finite number that fits a float."""
    # NaN and infinity fail the comparison.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST_SCORE


def highest(scores: Sequence[float]) -> int | None:
    """Return the index of the unique highest score; None for a shared highest score or no scores."""
    top = [index for index, score in enumerate(scores) if score == max(scores)]
    return top[0] if len(top) == 1 else None


def _best(text: str, count: int) -> int | None:
    # Tables with missing values hold whole numbers as floats: `1.0`.
    if re.fullmatch(r"[0-9]{1,9}(\.0)?", text):
        index = int(text.removesuffix(".0"))
        return index if index < count else None
    names = re.split("[<>]+", text.upper()) if _RANKING.fullmatch(text) else [text.upper()]
    if not _name_different(names, count):
        return None
    return letters(count).index(names[-1 if "<" in text else 0])


def _name_different(names: Sequence[str], count: int) -> bool:
    """Return True if the names are letters of `count` responses, each of another response."""
    return set(names) <= set(letters(count)) and len(set(names)) == len(names)
