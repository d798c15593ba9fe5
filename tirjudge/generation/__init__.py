"""Generators: where completions come from."""

from tirjudge.generation.base import Generator, GeneratorFailed, Sampling

__all__ = ["Generator", "GeneratorFailed", "Sampling"]
