"""Pairs of workspaces that agents left behind, labelled by program, and workspaces that attack the judge."""
