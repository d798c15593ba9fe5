"""Measuring scripts of the embedded judge `smol`: sets, baselines, results, curves and mistakes."""
