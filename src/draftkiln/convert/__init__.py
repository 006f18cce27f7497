"""Conversion: samples of speculators 0.3 and 0.4 -> a run directory that is validated and trained like any other."""
