"""This project's own environments: a folder's name that tirjudge leaves to its users."""
