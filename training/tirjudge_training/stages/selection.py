"""After RL: the checkpoint that is best on validation prompts."""

from __future__ import annotations

from pathlib import Path

from tirjudge.run_folder import JsonObject, RunFolder
from tirjudge_training import checkpoints, models
from tirjudge_training.data import Data
from tirjudge_training.heldout import accuracy, answers
from tirjudge_training.rl_stage import CHECKPOINTS
from tirjudge_training.stages.base import MODEL, Run, Size, Stage
"""placeholder"""
