"""Measuring scripts of the small real judge: sets, baselines, results, curves and mistakes."""
