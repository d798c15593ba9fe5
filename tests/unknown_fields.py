"""Requests with one misspelt field in each object that a server's OpenAPI document describes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Way = tuple[str | int, ...]


def misspelt(document: dict[str, Any], path: str) -> Iterator[tuple[Any, Way, str]]:
    """Yield a body of the POST route `path` for each of its objects, the misspelt field's way and its name.

    The name is that of the object's longest field, which is meant.
    """
    content = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    return _broken(content["schema"], document)


def post_paths(document: dict[str, Any]) -> list[str]:
    """Return the routes that take a body."""
    return [path for path, methods in document["paths"].items() if "post" in methods]


def _resolved(schema: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        found: Any = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        schema = found
    return schema


def _options(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for kind in ("anyOf", "oneOf", "allOf") for one in schema.get(kind, ())]


def _broken(schema: dict[str, Any], document: dict[str, Any]) -> Iterator[tuple[Any, Way, str]]:
    schema = _resolved(schema, document)
    for option in _options(schema):
        yield from _broken(option, document)
    if "properties" in schema:
        whole = _valid(schema, document)
        meant = max(schema["properties"], key=len)
        name = f"{meant}_"
        yield {**whole, name: 1}, (name,), meant
        for field, inner in schema["properties"].items():
            for value, way, meant in _broken(inner, document):
                yield {**whole, field: value}, (field, *way), meant
    elif "items" in schema:
        for value, way, meant in _broken(schema["items"], document):
            yield [value], (0, *way), meant


def _valid(schema: dict[str, Any], document: dict[str, Any]) -> Any:
    """Return a value with the required fields alone."""
    schema = _resolved(schema, document)
    if options := _options(schema):
        return _valid(options[0], document)
    if "enum" in schema or "const" in schema:
        return schema.get("enum", [schema.get("const")])[0]
    match schema.get("type"):
        case "object":
            required = schema.get("required", ())
            return {name: _valid(schema["properties"][name], document) for name in required}
        case "array":
            return [_valid(schema["items"], document)]
        case "string":
            return "x"
        case "boolean":
            return False
        case _:
            return 1
