"""Warm workers: interpreters that run one program at a time, how to start them, and their pool."""
