"""Research on the small real judge: its training rows, and the sets, results and curves that measure it."""
