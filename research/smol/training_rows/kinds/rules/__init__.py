"""Kinds of rules with wordings of their own, about whole texts and about documents."""
