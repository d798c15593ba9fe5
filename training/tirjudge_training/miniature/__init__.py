"""The miniature: a demonstration model, its warm-up corpus and its generated tasks."""
