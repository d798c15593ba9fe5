"""The rollout engine: concurrent dialogues between a judge model and the sandbox."""

from tirjudge.rollout.concurrency import all_or_none, as_finished
from tirjudge.rollout.rollout import Rollout

__all__ = ["Rollout", "all_or_none", "as_finished"]
