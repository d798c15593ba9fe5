"""The training data of the small real judge: generated prompts with constraints, answers and programs."""
