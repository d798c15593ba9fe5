"""Judge formats, one file per paper or prompt style; `registry` has their names."""
