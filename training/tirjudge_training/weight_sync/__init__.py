"""Samplers that follow the trainer: in its own process, in a vLLM beside it, or on vLLM servers."""
