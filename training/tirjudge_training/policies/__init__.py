"""Who samples in a training run, and how the trainer's weights get there."""
