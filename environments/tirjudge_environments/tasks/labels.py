"""Labels of a row: an index, a letter, a ranking, a tie, or the highest gold score."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tirjudge_environments.orders import letter, letters
from tirjudge_environments.tasks.cells import RowError, is_empty, parsed, text_of

_TIE = re.compile(r"tie|[A-Z]+(=[A-Z]+)+", re.IGNORECASE)
_RANKING = re.compile(r"[A-Z]+(>{1,2}[A-Z]+)+|[A-Z]+(<{1,2}[A-Z]+)+", re.IGNORECASE)
_PAIR = re.compile(r"[A-Z]+(>{1,2}|<{1,2})[A-Z]+", re.IGNORECASE)
_LARGEST_SCORE = 1e9


def label_text(value: Any, labels: Mapping[str, str] | None) -> str:
    """Return the label after translation by `labels`; empty if there is none."""
    if value is None or value == "":
        return ""
    text = text_of(value, "label").strip()
    if labels is None:
        return text
    # Tables with missing values hold whole numbers as floats: `1.0`.
    if text not in labels and re.fullmatch(r"-?[0-9]{1,9}\.0", text):
        text = text.removesuffix(".0")
    if text not in labels:
        raise RowError(f"label {text!r} is none of {', '.join(labels)}")
    return labels[text]


def label_of(text: str, count: int) -> int | None:
    """Return the index of the best of `count` responses; None for a tie. Raises RowError."""
    if not text or text.lower() == "tie":
        return None
    if _TIE.fullmatch(text) and _name_different(text.upper().split("="), count):
        return None
    best = _best(text, count)
    if best is None:
        last = letter(count - 1)
        raise RowError(
            f"label {text!r} is no index from 0 to {count - 1}, no letter from A to {last}, no A>B"
        )
    return best


def gold_of(checklist: Any, label: str) -> dict[str, Any]:
    """Return the checklist and the strength of the preference, as far as the row has them."""
    gold: dict[str, Any] = {}
    if not is_empty(checklist):
        points = parsed(checklist)
        if not isinstance(points, list):
            raise RowError("checklist must be a list of texts")
        gold["checklist"] = tuple(text_of(point, "a point of the checklist") for point in points)
    if _TIE.fullmatch(label) or _PAIR.fullmatch(label):
        gold["strength"] = max(label.count(">"), label.count("<"))
    return gold


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
    """Return the index of the unique highest score; None if several share it or there are none."""
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
