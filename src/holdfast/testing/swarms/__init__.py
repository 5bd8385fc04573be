"""Swarms: simulated histories with random faults, drawn from a seed, one module with ``simulate(seed)`` per capability."""
