"""A judge of 0.92 M parameters from random weights: its network, constraints, rows and warm-up."""

from pathlib import Path

TRAINED = Path(__file__).parent / "trained"
"""The folder of the miniature that `recipes/mini.toml` trained."""
