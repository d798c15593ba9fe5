"""LLM judges that run programs before they give a verdict."""
