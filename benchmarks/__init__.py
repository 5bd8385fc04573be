"""Measurements of holdfast. ``python benchmarks/lock.py`` (or ``make bench``) runs them; nothing here is installed."""
