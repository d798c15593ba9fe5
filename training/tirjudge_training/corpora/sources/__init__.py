"""Sources of corpora, one file each; `corpora.base` has their names."""
