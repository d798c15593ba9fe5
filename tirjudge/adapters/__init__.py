"""Judges inside frameworks that evaluate models; one file for each, with the framework's classes."""
