"""A judge without a language model, and what it is measured on."""
