"""What runs inside a worker: standard library only, loaded by an interpreter of its own."""
