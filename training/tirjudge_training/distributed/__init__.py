"""Several processes: communication, devices, full weights and checkpoints."""
