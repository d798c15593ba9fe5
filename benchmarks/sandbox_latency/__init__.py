"""Latency and throughput of programs: the sandboxes compared with other ways to run them."""
