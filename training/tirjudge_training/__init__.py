"""Training: SFT and DAPO on TRL with our rollouts."""
