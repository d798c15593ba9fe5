"""RL steps on given rollouts: our trainer compared with a bare GRPOTrainer."""
