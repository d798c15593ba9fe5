"""Generators: where completions come from."""

from tirjudge.generation.base import ContextTooLong, Generator, GeneratorFailed, Sampling

__all__ = ["ContextTooLong", "Generator", "GeneratorFailed", "Sampling"]
