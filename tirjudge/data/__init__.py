"""Rows of input: files, pipes, and datasets of the Hugging Face hub."""
