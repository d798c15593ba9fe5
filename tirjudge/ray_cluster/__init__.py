"""Judging on several machines: workers on the nodes of a Ray cluster, and the rows that are sent to them."""
