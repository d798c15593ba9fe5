"""Calibration: agreement of a judge with people, its variance, and when a confidence lets it abstain."""
