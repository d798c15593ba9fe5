"""The `docker` backend: workers in long-lived, hardened containers."""
