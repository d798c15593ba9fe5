"""Selections and rewards from judgments of several responses: best-of-N, and rewards for a group."""
