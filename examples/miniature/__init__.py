"""A judge of 0.92 M parameters from random weights: its network, constraints, rows and warm-up."""
