"""Environments of RL frameworks whose reward is a served judge's."""
