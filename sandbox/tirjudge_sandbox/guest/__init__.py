"""The code that runs inside a worker, in an interpreter of its own.

This folder is mounted into the worker, or copied into the container's image, without the rest of the package.
Its modules therefore import the standard library and each other, and nothing else.
"""
