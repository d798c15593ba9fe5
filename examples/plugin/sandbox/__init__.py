"""The sandboxes of this project; tirjudge itself uses no package of this name."""
