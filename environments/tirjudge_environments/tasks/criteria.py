"""Criteria of a row: texts, or objects with a weight, a polarity and `must_have`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tirjudge_environments.types import Criterion

_FIELDS = tuple(field.name for field in fields(Criterion))
_POLARITIES = ("positive", "negative")
_MOST_CRITERIA = 100
"""Criteria of one row: each is a dialogue for every view."""
LARGEST_WEIGHT = 1e9


def read_criteria(value: Any) -> tuple[Criterion, ...]:
    """Return the criteria of a row; raises ValueError, in one line that names the criterion.

    A criterion is a text, or an object with `text` and, optionally, `weight` (0 or more, 1 by default),
    `polarity` (`positive` or `negative`) and `must_have`. The weights add up to more than 0, and no text
    occurs twice.
    """
    if not isinstance(value, list | tuple):
        raise ValueError("criteria must be a list of texts or objects")
    if not value:
        raise ValueError("criteria is an empty list: leave it out, or give at least one criterion")
    if len(value) > _MOST_CRITERIA:
        raise ValueError(f"criteria has {len(value)} entries: a row has at most {_MOST_CRITERIA}")
    criteria = tuple(_criterion(one, f"criteria[{number}]") for number, one in enumerate(value))
    seen: dict[str, int] = {}
    for number, criterion in enumerate(criteria):
        first = seen.setdefault(" ".join(criterion.text.split()).casefold(), number)
        if first != number:
            raise ValueError(f"criteria[{number}] repeats criteria[{first}]: leave one of them out")
    if sum(criterion.weight for criterion in criteria) <= 0:
        raise ValueError("the weights of criteria add up to 0: at least one must be greater")
    return criteria


def _criterion(value: Any, name: str) -> Criterion:
    if isinstance(value, Criterion):
        value = {field: getattr(value, field) for field in _FIELDS}
    given = {"text": value} if isinstance(value, str) else value
    if not isinstance(given, Mapping):
        raise ValueError(f"{name} is neither a text nor an object with {', '.join(_FIELDS)}")
    unknown = next((str(key) for key in given if key not in _FIELDS), None)
    if unknown is not None:
        raise ValueError(f"{name} has an unknown field {unknown!r}: it has {', '.join(_FIELDS)}")
    # A table's row has every field of every other one, without a value.
    given = {key: one for key, one in given.items() if one is not None}
    text = given.get("text")
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"{name} has no text")
    polarity = given.get("polarity", "positive")
    if polarity not in _POLARITIES:
        raise ValueError(f"{name}: polarity {polarity!r} is neither {' nor '.join(_POLARITIES)}")
    must_have = given.get("must_have", False)
    if not isinstance(must_have, bool):
        raise ValueError(f"{name}: must_have {must_have!r} is neither true nor false")
    return Criterion(
        text=text,
        weight=_weight(given.get("weight", 1.0), name),
        polarity="negative" if polarity == "negative" else "positive",
        must_have=must_have,
    )


def _weight(value: Any, name: str) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # Neither `math.isfinite` nor `:g` takes a whole number that fits no float.
    if not number or not -math.inf < value < math.inf:
        raise ValueError(f"{name}: weight {value!r} is not a number")
    if value < 0:
        raise ValueError(f"{name}: weight {value!r:.20} is below 0: a fault has polarity negative instead")
    if value > LARGEST_WEIGHT:
        raise ValueError(f"{name}: weight {value!r:.20} is above {LARGEST_WEIGHT:g}")
    return float(value)
