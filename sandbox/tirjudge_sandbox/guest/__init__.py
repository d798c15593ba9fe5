"""What runs inside a worker: standard library only, loaded from these files alone by an interpreter of its own."""
