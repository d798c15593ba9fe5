"""Planning: what a run will take, and checks before it starts."""
