"""Judge formats, one file per paper or prompt style; each registers its classes as entry points."""
