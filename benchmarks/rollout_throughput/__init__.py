"""Rollouts with programs: this package's engine compared with the loops that other trainers ship."""
