"""Rules that become checkers: candidates from recorded programs and models, and what admits them."""
