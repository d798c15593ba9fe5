"""Latency and throughput of one small program: the sandboxes compared with plain alternatives."""
