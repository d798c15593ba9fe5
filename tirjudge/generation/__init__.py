"""Generators: where completions come from."""
