"""This project's own sandboxes: a folder's name that tirjudge leaves to its users."""
