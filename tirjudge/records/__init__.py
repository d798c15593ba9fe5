"""Records: a judged row as its file has it, its answer to a question, its text for people, and as a log."""
