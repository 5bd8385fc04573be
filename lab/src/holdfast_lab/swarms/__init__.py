"""Swarms: simulated histories with random faults. A seed determines each history. Each capability has a module with
``simulate(seed)``."""
