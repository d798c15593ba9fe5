"""Files that a run writes: run folders, result files, and trajectories as JSON records."""
