"""Reports: one self-contained page on judged rows, on two runs over the same rows, or on a training run."""
