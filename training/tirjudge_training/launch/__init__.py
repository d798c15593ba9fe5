"""RL stages that another trainer runs, on several machines, and configurations of `accelerate launch`."""
