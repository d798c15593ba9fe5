"""Published figures: every cell of the papers' tables of results, with its source and its protocol."""

from __future__ import annotations

from tirjudge.evaluation.published.figures import ANY, PublishedFigure, published

__all__ = ["ANY", "PublishedFigure", "published"]
