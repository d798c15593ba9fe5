"""Sources of corpora, one file each, registered in the entry-point group `tirjudge.sources`."""
