"""Records: a judged row as its file has it, its answer to a question, and its text for people."""
