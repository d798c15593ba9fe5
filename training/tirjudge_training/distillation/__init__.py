"""Distillation: a teacher's dialogues, filtered and converted for the student."""
