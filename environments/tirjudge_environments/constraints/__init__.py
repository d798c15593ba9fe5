"""Checkable constraints: instructions that a short program can verify."""
