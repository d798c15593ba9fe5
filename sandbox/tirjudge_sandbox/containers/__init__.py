"""The `docker` backend: warm workers in long-lived, hardened containers."""
