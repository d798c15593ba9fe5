"""Rewards for a group of completions of one prompt, from comparisons by a judge."""

from tirjudge.group_rewards.base import Comparison, GroupOptions, GroupRewards
from tirjudge.group_rewards.group_judge import GroupJudge
from tirjudge.group_rewards.meeting import GroupMeeting, MembersMissing
from tirjudge.group_rewards.tournaments import METHODS, check_method, open_method

__all__ = [
    "METHODS",
    "Comparison",
    "GroupJudge",
    "GroupMeeting",
    "GroupOptions",
    "GroupRewards",
    "MembersMissing",
    "check_method",
    "open_method",
]
