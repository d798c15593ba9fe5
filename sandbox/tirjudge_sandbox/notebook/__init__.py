"""Notebooks: cells that share their variables, run by a Jupyter kernel inside a worker of a sandbox."""
