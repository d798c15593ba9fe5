"""Measurements of group rewards: the order that each method finds, and policies trained on it."""
