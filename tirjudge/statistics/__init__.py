"""Numbers with their n and 95 % intervals, and differences of two runs; rows may come in clusters."""
