"""The stages of a training run; `base.py` holds their interface."""
