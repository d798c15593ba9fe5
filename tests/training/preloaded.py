"""The modules that `tests.training.forked` imports before it forks."""

import gc

import peft
import trl

import tirjudge_training.cli
import tirjudge_training.run

LOADED = (peft.get_peft_model, trl.GRPOTrainer, trl.SFTTrainer, tirjudge_training.cli, tirjudge_training.run)
gc.freeze()
