"""Checkers: rules that programs decide without a model, written once and run on every row."""
