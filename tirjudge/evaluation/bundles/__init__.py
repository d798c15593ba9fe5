"""Submission bundles: a judged run in one file, and the check that what it claims holds."""
