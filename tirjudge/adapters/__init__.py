"""Judges inside frameworks that evaluate or train models; one file for each, with the framework's classes."""
