"""Judging: a configured judge, its engine, judgments, and batches of rows."""
