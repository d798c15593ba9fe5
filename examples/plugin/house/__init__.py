"""A judge without a language model, and a benchmark for it."""
