"""Runs of a recipe: checked, planned, tried out small, trained stage by stage, and compared."""
