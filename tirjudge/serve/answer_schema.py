"""Verdicts in the form of a JSON schema, which clients send as the response format `json_schema`.

Only keywords that a verdict can meet or fail are read. A pattern is not: it could take for ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

_MOST_STEPS = 100
"""Schemas that are compared with one value: a schema may refer to itself."""
_WITHOUT_EFFECT = frozenset(
    {
        # Notes to a reader.
        "$comment", "$defs", "$id", "$schema", "default", "definitions", "deprecated", "description",
        "examples", "title",
        # About objects and arrays, which no field of a verdict is.
        "additionalProperties", "items", "maxItems", "minItems", "prefixItems", "properties", "required",
    }
)  # fmt: skip
_TYPES: Mapping[str, type | tuple[type, ...]] = {"string": str, "number": (int, float), "null": type(None)}
_BOUNDS: Mapping[str, Any] = {
    "minimum": lambda value, bound: value >= bound,
    "maximum": lambda value, bound: value <= bound,
    "exclusiveMinimum": lambda value, bound: value > bound,
    "exclusiveMaximum": lambda value, bound: value < bound,
}
_LENGTHS: Mapping[str, Any] = {
    "minLength": lambda value, bound: len(value) >= bound,
    "maxLength": lambda value, bound: len(value) <= bound,
}
_READ = frozenset({"$ref", "allOf", "anyOf", "const", "enum", "oneOf", "type", *_BOUNDS, *_LENGTHS})
_MEANT = 'use {"type": "json_object"}, or ask for verdict and choice (or score, of one response), and reason'


def filled(schema: Any, values: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Return an object that fits the schema, with the first fitting one of each property's `values`.

    A property without values is null. A property that is not required is left out if nothing fits it.
    Raises ValueError if no object of these values fits, or the schema is not understood.
    """
    try:
        whole = _referred(schema, schema)
        if whole.get("type", "object") != "object":
            raise ValueError(f"the schema asks for no object; {_MEANT}")
        properties, required = whole.get("properties", {}), whole.get("required", [])
        found = {}
        for name in dict.fromkeys(chain(properties or values, required)):
            inner, possible = properties.get(name, True), values.get(name, [None])
            fitting = [value for value in possible if _fits(value, inner, schema, iter(range(_MOST_STEPS)))]
            if fitting:
                found[name] = fitting[0]
            elif name in required:
                raise ValueError(f"no verdict fits the schema's {str(name)[:60]!r}; {_MEANT}")
    except (AttributeError, KeyError, TypeError):
        raise ValueError(f"needs a JSON schema as its `schema`; {_MEANT}") from None
    return found


def _fits(value: Any, schema: Any, whole: Any, steps: Iterator[int]) -> bool:
    if isinstance(schema, bool):
        return schema
    if next(steps, None) is None:
        raise ValueError(f"the schema is too large; {_MEANT}")
    if unread := schema.keys() - _READ - _WITHOUT_EFFECT:
        raise ValueError(f"the schema's keyword {min(unread)[:60]!r} is not supported; {_MEANT}")

    def fits(inner: Any) -> bool:
        return _fits(value, inner, whole, steps)

    kinds = schema.get("type", [])
    bounds = _LENGTHS if isinstance(value, str) else {} if value is None else _BOUNDS
    return (
        ("$ref" not in schema or fits(_referred(schema, whole)))
        and (
            "type" not in schema
            or any(_is(value, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds))
        )
        and ("enum" not in schema or value in schema["enum"])
        and ("const" not in schema or value == schema["const"])
        and all(map(fits, schema.get("allOf", ())))
        and all(any(map(fits, schema[name])) for name in ("anyOf", "oneOf") if name in schema)
        and all(holds(value, schema[name]) for name, holds in bounds.items() if name in schema)
    )


def _is(value: Any, kind: str) -> bool:
    if kind == "integer":
        return isinstance(value, int | float) and value == int(value)
    return isinstance(value, _TYPES.get(kind, ()))


def _referred(schema: Any, whole: Any) -> Any:
    """Return the schema that a schema refers to, within the whole; itself if it does not refer to any."""
    for _ in range(_MOST_STEPS):
        if "$ref" not in schema:
            break
        found = whole
        for part in schema["$ref"].split("/")[1:]:
            found = found[part]
        schema = found
    return schema
