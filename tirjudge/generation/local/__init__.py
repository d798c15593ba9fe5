"""A generator that runs a transformers model in this process, with continuous batching."""
