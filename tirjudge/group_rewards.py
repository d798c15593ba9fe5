"""Rewards for a group of completions of one prompt: what Python programs use of `tirjudge.selection`."""

from tirjudge.selection.group_rewards import GroupOptions, GroupRewards

__all__ = ["GroupOptions", "GroupRewards"]
