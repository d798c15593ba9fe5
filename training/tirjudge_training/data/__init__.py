"""Training tasks: the interface of a task source, and tasks from a user's rows."""
