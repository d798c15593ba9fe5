"""Judge formats: one file each."""
