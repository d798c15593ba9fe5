"""Reinforcement learning: DAPO on TRL with rollouts in the sandbox."""
