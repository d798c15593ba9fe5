"""Policies: the samplers of a training run, and how they receive the trainer's weights."""
