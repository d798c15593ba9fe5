"""Generators: models that complete a dialogue, local ones and endpoints."""

from tirjudge.generation.base import ContextTooLong, Generator, GeneratorFailed, Sampling

__all__ = ["ContextTooLong", "Generator", "GeneratorFailed", "Sampling"]
