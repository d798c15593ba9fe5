"""Kinds of rules composed from units of a text, properties of a unit, and shapes that join the two."""
