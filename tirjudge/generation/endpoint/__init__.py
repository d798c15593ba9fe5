"""A generator behind any OpenAI-compatible endpoint."""
