"""Warm workers: interpreters that run one program at a time, a pool of them, and how to start them."""
